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
from orchestrator_interactive.interactions.flow import after
from orchestrator_interactive.interactions.records import DAMAGED, Flow, Key, Node, OpenCall, damaged
from orchestrator_interactive.interactions.serializers import decode, pack, read_state
from orchestrator_interactive.interactions.states import (
    START,
    AssistantMessageState,
    UserMessageState,
    WaitingState,
)
from orchestrator_interactive.interactions.stores import as_store
from orchestrator_interactive.interactions.stores.base import Change, Log, conflict
from orchestrator_interactive.interactions.tree import Tree

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Sequence

    from redis.asyncio import Redis, RedisCluster

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


class InteractionStack:
    """The states of a conversation on its current branch.

    A stack caches the log. It reads the log at its first use, after each of its own changes, after a conflict and after
    `refresh`. A change is atomic. If another writer has changed the log, it raises WriteConflict, writes nothing, and
    the next use reads the log again.

    All methods raise StoreError if the store cannot be used.

    Args:
        store: store of the log, or a client of `redis.asyncio`; the stack does not close it.
        asked_by: ref of another agent's request that this conversation answers; it becomes the parent of the first
            artifact of each task.
    """

    def __init__(
        self,
        store: LogStore | Redis | RedisCluster,
        conversation_id: str,
        agent_id: str,
        *,
        asked_by: str | None = None,
    ) -> None:
        self.key = Key(conversation_id, agent_id)
        self._store = as_store(store)
        self._asked_by = asked_by
        # The log as of the last read or write, and its last node; `_is_read` is False if it must be read again.
        self._log = Log(0, Tree.empty(0.0))
        self._last: Node | None = None
        self._is_read = False
        # The log after a push whose outcome is unknown, because it was cancelled or has failed.
        self._pushed: Log | None = None
        self._moves: int | None = None
        self._fence: int | None = None
        self._lock = asyncio.Lock()
        # Called with the states of each push.
        self.on_push: Callable[[Sequence[BaseState]], None] | None = None

    @property
    def moves(self) -> int:
        """Number of times that the current branch's end changed other than by this stack's pushes."""
        return self._moves or 0

    async def push(self, *states: BaseState, since: int | None = None) -> tuple[str, ...]:
        """Append states atomically; return the refs of their artifacts.

        With `since`, a former value of `moves`, the push fails if the conversation has moved since.

        Raises:
            InvalidTransition: a state is not allowed here (ConversationFinished: none is).
            ValueError: a state is not representable as JSON.
        """
        async with self._lock:
            log = await self._load()
            if since not in (None, self._moves):
                raise conflict(self.key)
            try:
                return await self._push(log, states)
            except Fenced:
                raise
            except WriteConflict:
                now = await self._load()
                if not _ends_alike(log.tree, now.tree):
                    self._is_read = False
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
            log = await self._load()
            if self._last is None:
                raise NoSuchState("The conversation is empty: there is nothing to pop.")
            state = self._decoded(self._last)
            await self._rewind(log, log.tree.head.end - 1)
            return state

    async def rewind(self, index: int) -> str | None:
        """Make the state at `index` the last one; return the branch that keeps the removed states, if any.

        Raises:
            NoSuchState: no state has this index.
        """
        async with self._lock:
            log = await self._load()
            return await self._rewind(log, _place(log.tree, index) + 1)

    async def truncate(self, length: int, left: str) -> None:
        """Keep the first `length` states; the others are kept on the new branch `left`.

        Raises:
            NoSuchState: the branch is shorter.
            BranchExists, BadBranchName: the name is taken or invalid.
        """
        async with self._lock:
            log = await self._load()
            if length:
                _place(log.tree, length - 1)
            await self._rewind(log, length, left=left)

    async def begin_anew(self, name: str) -> None:
        """Switch to a new, empty branch in one step.

        Raises:
            BranchExists, BadBranchName: the name is taken or invalid.
        """
        async with self._lock:
            log = await self._load()
            tree, _ = log.tree.forked(log.tree.current, 0, name, time.time())
            await self._commit(log, tree.checked_out(name), None)

    async def fork(self, index: int | None = None, name: str | None = None) -> str:
        """Create a branch with the states up to `index`, by default all; return its name.

        The current branch does not change.

        Raises:
            NoSuchState: no state has this index.
            BranchExists, BadBranchName: the name is taken or invalid.
        """
        async with self._lock:
            log = await self._load()
            length = log.tree.head.end if index is None else _place(log.tree, index) + 1
            tree, name = log.tree.forked(log.tree.current, length, name, time.time())
            await self._commit(log, tree, self._last)
            return name

    async def checkout(self, name: str) -> None:
        """Switch to another branch.

        Raises:
            NoSuchBranch: the conversation has no branch of this name.
        """
        async with self._lock:
            log = await self._load()
            tree = log.tree.checked_out(name)
            await self._commit(log, tree, await self._last_of(tree))

    async def prune(self, names: Iterable[str]) -> int:
        """Delete branches and the states that only they have; return the number of states. Keeps the current branch.

        Raises:
            NoSuchBranch: the conversation has no branch of such a name.
        """
        async with self._lock:
            log = await self._load()
            tree, cuts = log.tree.pruned(names)
            await self._commit(log, tree, self._last, cuts=cuts)
            return sum(cut.stop - cut.start for cut in cuts)

    async def refresh(self) -> None:
        """Read the log again."""
        async with self._lock:
            self._is_read = False
            await self._load()

    async def fence(self, token: int) -> None:
        """Set the fencing token of this stack and of the log: writers with a lower token are refused from now on.

        Raises:
            Fenced: the log has a higher token. All later writes of this stack raise it, too.
        """
        async with self._lock:
            self._fence, self._is_read = token, False
            await self._store.fence(self.key, token)

    @property
    def fencing_token(self) -> int | None:
        """The token under which this stack writes; `None`: it has none."""
        return self._fence

    async def current(self) -> BaseState | None:
        """Return the last state; `None` if the conversation is empty.

        Raises:
            UnreadableState: the state is damaged.
        """
        await self._loaded()
        return None if self._last is None else self._decoded(self._last)

    async def length(self) -> int:
        return (await self._loaded()).head.end

    async def at(self, index: int) -> BaseState:
        """Return the state at an index; a negative one counts from the end.

        Raises:
            NoSuchState: no state has this index.
            UnreadableState: the state is damaged.
        """
        tree = await self._loaded()
        place = _place(tree, index)
        return self._decoded((await self._read(tree, place, place + 1))[0])

    async def iter_last_n(self, n: int) -> AsyncIterator[StackEntry]:
        """Yield the last `n` entries in order, including unreadable ones.

        Raises:
            ValueError: `n` is negative.
        """
        if n < 0:
            raise ValueError("`n` must be 0 or more.")
        tree = await self._loaded()
        pieces = tree.pieces(tree.current, max(tree.head.end - n, 0), tree.head.end)
        async for node in nodes(self._store, self.key, pieces):
            yield StackEntry(**entry_fields(self.key, node))

    async def open_calls(self) -> tuple[OpenCall, ...]:
        """Return the calls without a result at the end of the log."""
        async with self._lock:
            await self._load()
            return self._last.flow.open if self._last is not None else ()

    async def pending_waits(self) -> list[WaitingState]:
        """Return the waiting states that are not over: those for an open call, and one at the end of the log."""
        async with self._lock:
            tree, last = (await self._load()).tree, self._last
        flow = last.flow if last is not None else Flow()
        calls = {call.id: int(call.place.rpartition("/")[2]) for call in flow.open}
        if not calls and flow.last != WaitingState.__name__:
            return []
        start = min([*calls.values(), max(tree.head.end - _PAGE, 0)])
        states = [read_state(node)[0] for node in await self._read(tree, start, tree.head.end)]
        in_flow = [state for state in states if state is not None and state.follows is not None]
        waits = [state for state in in_flow if isinstance(state, WaitingState) and state.correlation_id in calls]
        at_end = in_flow[-1] if in_flow else None
        return [*waits, at_end] if isinstance(at_end, WaitingState) and at_end not in waits else waits

    async def get_branch_info(self) -> list[Branch]:
        """Return all branches in order of creation."""
        return (await self._loaded()).branches()

    async def _push(self, log: Log, states: Sequence[BaseState]) -> tuple[str, ...]:
        nodes = self._nodes(self._last, log.tree, states)
        if nodes:
            tree = log.tree.with_end(log.tree.head.end + len(nodes), nodes[-1].envelope["ts"])
            await self._commit(log, tree, nodes[-1], nodes, is_push=True)
            if self.on_push is not None:
                self.on_push(states)
        return tuple([node.ref(self.key) for node in nodes])

    async def _rewind(
        self, log: Log, length: int, states: Sequence[BaseState] = (), left: str | None = None
    ) -> str | None:
        tree, left = log.tree.rewound(length, time.time(), left)
        if tree is log.tree and not states:
            return None
        last = await self._last_of(tree)
        nodes = self._nodes(last, tree, states)
        tree = tree.with_end(length + len(nodes), tree.head.written)
        await self._commit(log, tree, nodes[-1] if nodes else last, nodes)
        return left

    async def _commit(  # noqa: PLR0913 - the parts of a change
        self,
        log: Log,
        tree: Tree,
        last: Node | None,
        nodes: Sequence[Node] = (),
        cuts: Sequence[Piece] = (),
        *,
        is_push: bool = False,
    ) -> None:
        """Write a change of this log, after which its branches are `tree` and its last node is `last`."""
        head, written = tree.head, None if is_push and log.version else tree
        change = Change(log.version, head.end, head.written, written, nodes, cuts, fence=self._fence)
        self._is_read = False  # a cancelled commit may have succeeded: the next use reads the log
        self._pushed = Log(log.version + 1, tree) if is_push else None
        await self._store.commit(self.key, change)
        self._remember(Log(log.version + 1, tree), last)

    def _nodes(self, last: Node | None, tree: Tree, states: Sequence[BaseState]) -> list[Node]:
        """Build the nodes of states at the end of the current branch."""
        nodes: list[Node] = []
        flow, episode, replayed = (last.flow, last.episode, last.replayed) if last else (Flow(), 0, 0)
        for index, state in enumerate(states, tree.head.end):
            begins = isinstance(state, UserMessageState) and not state.meanwhile and flow.last in _TASK_BEGINS_AFTER
            envelope = pack(state)
            flow, call = after(flow, state, f"{tree.current}/{index}")
            cause = f"{self.key.path}/{call.place}" if call else self._asked_by if begins else None
            episode += begins
            replayed = 1 + replayed if len(flow.open) > _MAX_OPEN_WRITTEN else 0
            nodes.append(Node(tree.current, index, envelope, episode, flow, (cause,) if cause else (), replayed))
        return nodes

    async def _loaded(self) -> Tree:
        async with self._lock:
            return (await self._load()).tree

    async def _load(self) -> Log:
        if not self._is_read:
            log = await self._store.load(self.key) or Log(0, Tree.empty(time.time(), self._asked_by))
            if log.version < self._log.version:
                had = self._log.version
                logger.error("log.expired", conversation=self.key.conversation_id, had=had, has=log.version)
            self._remember(log, await self._last_of(log.tree))
        return self._log

    def _remember(self, log: Log, last: Node | None) -> None:
        pushed, self._pushed = self._pushed, None
        if self._moves is None:
            self._moves = 0
        elif not (pushed is not None and _is_same(pushed, log)) and not _ends_alike(self._log.tree, log.tree):
            self._moves += 1
        self._log, self._last, self._is_read = log, last, True

    async def _last_of(self, tree: Tree) -> Node | None:
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
                flow, _ = after(flow, decode(node.envelope), f"{node.segment}/{node.index}")
            except InvalidTransition:
                flow = flow._replace(last=node.flow.last)
            except UnreadableState:
                flow = flow._replace(last=damaged(node.segment, node.index).flow.last)
        return flow

    async def _read(self, tree: Tree, start: int, stop: int) -> list[Node]:
        """Read the nodes [start, stop) of the current branch."""
        pieces = tree.pieces(tree.current, start, stop)
        return [node async for node in nodes(self._store, self.key, pieces)]

    def _decoded(self, node: Node) -> BaseState:
        try:
            return decode(node.envelope)
        except UnreadableState as e:
            name = self._log.tree.head.name
            place = f"State {node.index} of branch {name}, conversation {self.key.conversation_id}"
            raise type(e)(f"{place}: {e}") from e


def _place(tree: Tree, index: int) -> int:
    """Return the place of a state; a negative index counts from the end."""
    length = tree.head.end
    place = index + length if index < 0 else index
    if not 0 <= place < length:
        states = f"has the states 0 to {length - 1}" if length else "is empty"
        raise NoSuchState(f"There is no state {index}: branch {tree.head.name} {states}.")
    return place


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


def _is_same(one: Log, other: Log) -> bool:
    """Return whether two logs are the same version by the same writer."""
    is_version = one.version == other.version and one.tree.head.written == other.tree.head.written
    return is_version and _ends_alike(one.tree, other.tree)


def _ends_alike(one: Tree, other: Tree) -> bool:
    """Return whether the current branches have the same states. A segment keeps its states, or another replaces it."""
    head, there = one.head, other.head
    return one.current == other.current and (head.parent, head.base, head.end) == (there.parent, there.base, there.end)
