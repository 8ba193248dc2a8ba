"""A conversation's log for readers and writers."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import structlog

from orchestrator_interactive.interactions.errors import (
    DamagedLog,
    Fenced,
    InvalidTransition,
    NoSuchState,
    UnreadableState,
    WriteConflict,
)
from orchestrator_interactive.interactions.flow import after, answers
from orchestrator_interactive.interactions.records import DAMAGED, Flow, Key, Node, damaged
from orchestrator_interactive.interactions.serializers import decode, encode, read_state
from orchestrator_interactive.interactions.states import START, AssistantMessageState, UserMessageState
from orchestrator_interactive.interactions.stores.base import Change, Log, conflict
from orchestrator_interactive.interactions.tree import Tree

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Sequence

    from orchestrator_interactive.interactions.states import BaseState
    from orchestrator_interactive.interactions.stores.base import LogStore
    from orchestrator_interactive.interactions.tree import Branch, Piece

logger = structlog.get_logger(__name__)

# States per read.
_PAGE = 500
# Maximum number of open calls stored with each state.
_MAX_OPEN_WRITTEN = 16
# A user message after these states starts a task; elsewhere it belongs to the current task.
_TASK_BEGINS_AFTER = (START, AssistantMessageState.__name__)


@dataclass(frozen=True, slots=True)
class StackEntry:
    """A state with its position.

    Args:
        index: position from the beginning of the conversation.
        ref: ref of its artifact.
        ts: time of the push, in seconds since the epoch.
        episode: number of the task that it belongs to.
        kind: name of the state's type.
        state: `None` if it is unreadable; `problem` then gives the reason.
        parents: refs of the artifacts that caused it.
    """

    index: int
    ref: str
    ts: float
    episode: int
    kind: str
    state: BaseState | None
    problem: str | None = None
    parents: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Snapshot:
    """The log and its last node as of the last read."""

    log: Log
    last: Node | None

    @property
    def length(self) -> int:
        return self.log.tree.head.end


class InteractionStack:
    """The states of a conversation on its current branch.

    A stack caches the log. It reads the log at its first use, after each of its own changes, after a conflict and after
    `refresh`. A change is atomic. If another writer has changed the log, it raises WriteConflict, writes nothing, and
    the next use reads the log again.

    All methods raise StoreError if the store cannot be used.

    Args:
        store: store of the log; the stack does not close it.
        asked_by: ref of another agent's request that this conversation answers; it becomes the parent of the first
            artifact of each task.
    """

    def __init__(self, store: LogStore, conversation_id: str, agent_id: str, *, asked_by: str | None = None) -> None:
        self.key = Key(conversation_id, agent_id)
        self._store = store
        self._asked_by = asked_by
        self._snapshot: _Snapshot | None = None
        self._last_tree: Tree | None = None
        self._moves = self._version = 0
        self._fence: int | None = None
        self._lock = asyncio.Lock()

    @property
    def moves(self) -> int:
        """Number of times that the current branch's end changed other than by this stack's pushes."""
        return self._moves

    async def push(self, *states: BaseState, since: int | None = None) -> tuple[str, ...]:
        """Append states atomically; return the refs of their artifacts.

        With `since`, a former value of `moves`, the push fails if the conversation has moved since.

        Raises:
            InvalidTransition: a state is not allowed here (ConversationFinished: none is).
            ValueError: a state is not representable as JSON.
        """
        async with self._lock:
            snapshot = await self._load()
            if since not in (None, self._moves):
                raise conflict(self.key)
            try:
                return await self._push(snapshot, states)
            except Fenced:
                raise
            except WriteConflict:
                now = await self._load()
                if not _ends_alike(snapshot.log.tree, now.log.tree):
                    self._snapshot = None
                    raise
                return await self._push(now, states)  # another writer forked or pruned, which does not conflict

    async def restart(self, *states: BaseState) -> str | None:
        """Restart the current branch with these states; return the branch that keeps the former ones, if any.

        Raises:
            InvalidTransition, ValueError: as in `push`.
        """
        async with self._lock:
            return await self._rewind(await self._load(), 0, states)

    async def pop(self) -> BaseState:
        """Remove and return the last state; it remains on a new branch.

        Raises:
            NoSuchState: the conversation is empty.
            UnreadableState: the state is damaged; use `rewind` to go back past it.
        """
        async with self._lock:
            snapshot = await self._load()
            if snapshot.last is None:
                raise NoSuchState("The conversation is empty: there is nothing to pop.")
            state = self._decoded(snapshot.last, snapshot.log.tree)
            await self._rewind(snapshot, snapshot.length - 1)
            return state

    async def rewind(self, index: int) -> str | None:
        """Make the state at `index` the last one; return the branch that keeps the removed states, if any.

        Raises:
            NoSuchState: no state has this index.
        """
        async with self._lock:
            snapshot = await self._load()
            return await self._rewind(snapshot, self._place(snapshot, index) + 1)

    async def fork(self, index: int | None = None, name: str | None = None) -> str:
        """Create a branch with the states up to `index`, by default all; return its name.

        The current branch does not change.

        Raises:
            NoSuchState: no state has this index.
            BranchExists, BadBranchName: the name is taken or invalid.
        """
        async with self._lock:
            snapshot = await self._load()
            length = snapshot.length if index is None else self._place(snapshot, index) + 1
            tree, name = snapshot.log.tree.forked(snapshot.log.tree.current, length, name, time.time())
            await self._commit_tree(snapshot, tree, snapshot.last)
            return name

    async def checkout(self, name: str) -> None:
        """Switch to another branch.

        Raises:
            NoSuchBranch: the conversation has no branch of this name.
        """
        async with self._lock:
            snapshot = await self._load()
            tree = snapshot.log.tree.checked_out(name)
            await self._commit_tree(snapshot, tree, await self._last(tree))

    async def prune(self, names: Iterable[str]) -> int:
        """Delete branches and the states that only they have; return the number of states. Keeps the current branch.

        Raises:
            NoSuchBranch: the conversation has no branch of such a name.
        """
        async with self._lock:
            snapshot = await self._load()
            tree, cuts = snapshot.log.tree.pruned(names)
            await self._commit_tree(snapshot, tree, snapshot.last, cuts=cuts)
            return sum(cut.stop - cut.start for cut in cuts)

    async def refresh(self) -> None:
        """Read the log again."""
        async with self._lock:
            self._snapshot = None
            await self._load()

    async def fence(self, token: int) -> None:
        """Set the fencing token of this stack and of the log: writers with a lower token are refused from now on.

        Raises:
            Fenced: the log has a higher token. All later writes of this stack raise it, too.
        """
        async with self._lock:
            self._fence, self._snapshot = token, None
            await self._store.fence(self.key, token)

    async def current(self) -> BaseState | None:
        """Return the last state; `None` if the conversation is empty.

        Raises:
            UnreadableState: the state is damaged.
        """
        snapshot = await self._loaded()
        return None if snapshot.last is None else self._decoded(snapshot.last, snapshot.log.tree)

    async def length(self) -> int:
        return (await self._loaded()).length

    async def at(self, index: int) -> BaseState:
        """Return the state at an index; a negative one counts from the end.

        Raises:
            NoSuchState: no state has this index.
            UnreadableState: the state is damaged.
        """
        snapshot = await self._loaded()
        place = self._place(snapshot, index)
        return self._decoded((await self._read(snapshot.log.tree, place, place + 1))[0], snapshot.log.tree)

    async def iter_last_n(self, n: int) -> AsyncIterator[StackEntry]:
        """Yield the last `n` entries in order, including unreadable ones.

        Raises:
            ValueError: `n` is negative.
        """
        if n < 0:
            raise ValueError("`n` must be 0 or more.")
        snapshot = await self._loaded()
        tree = snapshot.log.tree
        pieces = tree.pieces(tree.current, max(snapshot.length - n, 0), snapshot.length)
        async for node in nodes(self._store, self.key, pieces):
            yield StackEntry(**entry_fields(self.key, node))

    async def get_branch_info(self) -> list[Branch]:
        """Return all branches in order of creation."""
        return (await self._loaded()).log.tree.branches()

    async def _push(self, snapshot: _Snapshot, states: Sequence[BaseState]) -> tuple[str, ...]:
        log = snapshot.log
        nodes = self._nodes(snapshot.last, log.tree, states)
        if nodes:
            end, now = log.tree.head.end + len(nodes), nodes[-1].envelope["ts"]
            tree = log.tree.with_end(end, now)
            await self._commit(Change(log.version, end, now, None if log.version else tree, nodes, fence=self._fence))
            self._remember(Log(log.version + 1, tree), nodes[-1], pushed=True)
        return tuple(node.ref(self.key) for node in nodes)

    async def _rewind(self, snapshot: _Snapshot, length: int, states: Sequence[BaseState] = ()) -> str | None:
        tree, left = snapshot.log.tree.rewound(length, time.time())
        if tree is snapshot.log.tree and not states:
            return None
        last = await self._last(tree)
        nodes = self._nodes(last, tree, states)
        await self._commit_tree(
            snapshot, tree.with_end(length + len(nodes), tree.head.written), nodes[-1] if nodes else last, nodes
        )
        return left

    async def _commit_tree(
        self, snapshot: _Snapshot, tree: Tree, last: Node | None, nodes: Sequence[Node] = (), cuts: Sequence[Piece] = ()
    ) -> None:
        """Commit a change of the branches."""
        head = tree.head
        await self._commit(Change(snapshot.log.version, head.end, head.written, tree, nodes, cuts, fence=self._fence))
        self._remember(Log(snapshot.log.version + 1, tree), last)

    def _nodes(self, last: Node | None, tree: Tree, states: Sequence[BaseState]) -> list[Node]:
        """Build the nodes of states at the end of the current branch."""
        nodes: list[Node] = []
        for index, state in enumerate(states, tree.head.end):
            last = self._node(last, tree.current, index, state)
            nodes.append(last)
        return nodes

    def _node(self, last: Node | None, segment: int, index: int, state: BaseState) -> Node:
        flow, episode = (last.flow, last.episode) if last else (Flow(), 0)
        begins = isinstance(state, UserMessageState) and not state.meanwhile and flow.last in _TASK_BEGINS_AFTER
        envelope = encode(state)
        call = answers(flow, state)
        asked_by = f"{self.key.path}/{call.place}" if call else self._asked_by if begins else None
        then = after(flow, state, f"{segment}/{index}")
        replayed = 1 + (last.replayed if last else 0) if len(then.open) > _MAX_OPEN_WRITTEN else 0
        return Node(segment, index, envelope, episode + begins, then, (asked_by,) if asked_by else (), replayed)

    async def _loaded(self) -> _Snapshot:
        async with self._lock:
            return await self._load()

    async def _load(self) -> _Snapshot:
        if self._snapshot is None:
            log = await self._store.load(self.key) or Log(0, Tree.empty(time.time(), self._asked_by))
            if log.version < self._version:
                logger.error("log.expired", conversation=self.key.conversation_id, had=self._version, has=log.version)
            return self._remember(log, await self._last(log.tree))
        return self._snapshot

    def _remember(self, log: Log, last: Node | None, *, pushed: bool = False) -> _Snapshot:
        if not pushed and self._last_tree is not None and not _ends_alike(self._last_tree, log.tree):
            self._moves += 1
        self._snapshot, self._last_tree, self._version = _Snapshot(log, last), log.tree, log.version
        return self._snapshot

    async def _last(self, tree: Tree) -> Node | None:
        """Return the last node of the current branch; a damaged one gets the episode of the nodes before it."""
        end = tree.head.end
        nodes = await self._read(tree, max(end - 1, 0), end)
        if nodes and nodes[0].envelope["t"] == DAMAGED:
            before = await self._read(tree, max(end - _PAGE, 0), end)
            return replace(nodes[0], episode=max(node.episode for node in before))
        if nodes and nodes[0].replayed:
            return replace(nodes[0], flow=self._replayed(await self._read(tree, end - 1 - nodes[0].replayed, end)))
        return nodes[0] if nodes else None

    def _replayed(self, nodes: Sequence[Node]) -> Flow:
        """Recompute the flow after these nodes from the first node's flow.

        An unreadable node leaves the open calls unchanged.
        """
        flow = nodes[0].flow
        for node in nodes[1:]:
            try:
                flow = after(flow, decode(node.envelope), f"{node.segment}/{node.index}")
            except InvalidTransition:
                flow = flow._replace(last=node.flow.last)
            except UnreadableState:
                flow = flow._replace(last=damaged(node.segment, node.index).flow.last)
        return flow

    async def _read(self, tree: Tree, start: int, stop: int) -> list[Node]:
        """Read the nodes [start, stop) of the current branch."""
        pieces = tree.pieces(tree.current, start, stop)
        return [node async for node in nodes(self._store, self.key, pieces)]

    async def _commit(self, change: Change) -> None:
        was_committed = False
        try:
            await self._store.commit(self.key, change)
            was_committed = True
        finally:
            if not was_committed:  # a cancelled commit may have succeeded: the next use reads the log
                self._snapshot = None

    def _place(self, snapshot: _Snapshot, index: int) -> int:
        place = index + snapshot.length if index < 0 else index
        if not 0 <= place < snapshot.length:
            name = snapshot.log.tree.head.name
            states = f"has the states 0 to {snapshot.length - 1}" if snapshot.length else "is empty"
            raise NoSuchState(f"There is no state {index}: branch {name} {states}.")
        return place

    def _decoded(self, node: Node, tree: Tree) -> BaseState:
        try:
            return decode(node.envelope)
        except UnreadableState as e:
            place = f"State {node.index} of branch {tree.head.name}, conversation {self.key.conversation_id}"
            raise type(e)(f"{place}: {e}") from e


async def nodes(store: LogStore, key: Key, pieces: Iterable[Piece]) -> AsyncIterator[Node]:
    """Yield the nodes of some pieces of a log, read page by page; a damaged node replaces a missing one.

    Raises:
        DamagedLog: a whole page is missing, so the length of the log is wrong.
    """
    for piece in pieces:
        for start in range(piece.start, piece.stop, _PAGE):
            stop = min(start + _PAGE, piece.stop)
            stored = {node.index: node for node in await store.read(key, piece.segment, start, stop)}
            if not stored and stop - start == _PAGE:
                raise DamagedLog(f"{_PAGE} consecutive states of {key.conversation_id} are missing.")
            for index in range(start, stop):
                yield stored.get(index) or damaged(piece.segment, index)


def entry_fields(key: Key, node: Node) -> dict[str, Any]:
    """Return the fields of a StackEntry."""
    state, problem = read_state(node)
    return {
        "index": node.index,
        "ref": node.ref(key),
        "ts": node.envelope["ts"],
        "episode": node.episode,
        "kind": node.envelope["t"],
        "state": state,
        "problem": problem,
        "parents": node.parents,
    }


def _ends_alike(one: Tree, other: Tree) -> bool:
    """Return whether the current branches have the same states. A segment keeps its states, or another replaces it."""
    head, there = one.head, other.head
    return one.current == other.current and (head.parent, head.base, head.end) == (there.parent, there.base, there.end)
