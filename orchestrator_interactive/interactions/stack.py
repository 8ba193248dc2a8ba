"""A conversation's log, as those who write and read it see it."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

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
from orchestrator_interactive.interactions.serializers import decode, encode
from orchestrator_interactive.interactions.states import AssistantMessageState, UserMessageState
from orchestrator_interactive.interactions.states.base import START
from orchestrator_interactive.interactions.stores.base import Change, Log, conflict
from orchestrator_interactive.interactions.tree import Tree

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Sequence

    from orchestrator_interactive.interactions.states.base import BaseState
    from orchestrator_interactive.interactions.stores.base import LogStore
    from orchestrator_interactive.interactions.tree import Branch, Piece

logger = structlog.get_logger(__name__)

# Of states that are read at a time.
_PAGE = 500
# Of open calls that are written with a state.
_MOST_OPEN_WRITTEN = 16
# What a person says then begins a task; else it belongs to the one that is on.
_TASK_BEGINS_AFTER = (START, AssistantMessageState.__name__)


@dataclass(frozen=True, slots=True)
class StackEntry:
    """A state with its place.

    Args:
        index: from the beginning of the conversation.
        ref: of its artifact.
        ts: when it was pushed, in seconds since the epoch.
        episode: the number of the task that it belongs to.
        kind: the name of its type.
        state: `None` where it cannot be read; `problem` then says why.
        parents: the refs of the artifacts that it comes from.
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
class _Seen:
    """The log as it was when the stack last looked, and the node at its end."""

    log: Log
    last: Node | None

    @property
    def length(self) -> int:
        return self.log.tree.head.end


class InteractionStack:
    """The states of a conversation on its current branch.

    A stack knows the log as it was when it last looked: at its first use, after each change of its own, after a
    conflict and after `refresh`. A change is one atomic step; where somebody else has written meanwhile it raises
    WriteConflict, nothing is written, and the next use looks again.

    All methods raise StoreError where the store cannot be used.

    Args:
        store: where the log is kept; it is not closed by the stack.
        asked_by: the ref of another agent's request that this conversation answers; it is the parent of the first
            artifact of each task.
    """

    def __init__(self, store: LogStore, conversation_id: str, agent_id: str, *, asked_by: str | None = None) -> None:
        self.key = Key(conversation_id, agent_id)
        self._store = store
        self._asked_by = asked_by
        self._seen: _Seen | None = None
        self._left: Tree | None = None
        self._moves = self._version = 0
        self._fence: int | None = None
        self._one_at_a_time = asyncio.Lock()

    @property
    def moves(self) -> int:
        """How often the conversation was found, or put, elsewhere than where this stack had left it."""
        return self._moves

    async def push(self, *states: BaseState, since: int | None = None) -> tuple[str, ...]:
        """Add states at the end, all of them or none; returns the refs of their artifacts.

        With `since`, the number of `moves` so far, only where the conversation has not moved.

        Raises:
            InvalidTransition: one of them may not come here (ConversationFinished: nothing may).
            ValueError: one of them holds what JSON does not know.
            WriteConflict: somebody else has written.
        """
        async with self._one_at_a_time:
            seen = await self._look()
            if since not in (None, self._moves):
                raise conflict(self.key)
            try:
                return await self._push(seen, states)
            except Fenced:
                raise
            except WriteConflict:
                now = await self._look()
                if not _ends_alike(seen.log.tree, now.log.tree):
                    self._seen = None
                    raise
                return await self._push(now, states)  # somebody forked or pruned: that is no conflict

    async def restart(self, *states: BaseState) -> str | None:
        """Begin the current branch anew with these states; returns the branch that has what was there, if anything was.

        Raises:
            InvalidTransition, ValueError, WriteConflict: as in `push`.
        """
        async with self._one_at_a_time:
            return await self._rewind(await self._look(), 0, states)

    async def pop(self) -> BaseState:
        """Take the last state away and return it; it stays reachable on a branch that is left behind.

        Raises:
            NoSuchState: there is none.
            Unreadable: it is damaged; `rewind` goes behind it.
            WriteConflict: somebody else has written.
        """
        async with self._one_at_a_time:
            seen = await self._look()
            if seen.last is None:
                raise NoSuchState("The conversation is empty: there is nothing to pop.")
            state = self._decoded(seen.last, seen.log.tree)
            await self._rewind(seen, seen.length - 1)
            return state

    async def rewind(self, index: int) -> str | None:
        """Make the state at `index` the last one; returns the branch that has what is left behind, if anything is.

        Raises:
            NoSuchState: there is none at this index.
            WriteConflict: somebody else has written.
        """
        async with self._one_at_a_time:
            seen = await self._look()
            return await self._rewind(seen, self._place(seen, index) + 1)

    async def fork(self, index: int | None = None, name: str | None = None) -> str:
        """Make a branch with the states up to the one at `index`, by default all; returns its name.

        The current branch stays the current one.

        Raises:
            NoSuchState: there is none at this index.
            BranchExists, BadBranchName: the name is taken, or is none.
            WriteConflict: somebody else has written.
        """
        async with self._one_at_a_time:
            seen = await self._look()
            length = seen.length if index is None else self._place(seen, index) + 1
            tree, name = seen.log.tree.forked(seen.log.tree.current, length, name, time.time())
            await self._replant(seen, tree, seen.last)
            return name

    async def checkout(self, name: str) -> None:
        """Go on with another branch.

        Raises:
            NoSuchBranch: there is none of this name.
            WriteConflict: somebody else has written.
        """
        async with self._one_at_a_time:
            seen = await self._look()
            tree = seen.log.tree.checked_out(name)
            await self._replant(seen, tree, await self._last(tree))

    async def prune(self, names: Iterable[str]) -> int:
        """Forget branches, with the states that no other branch has; returns how many. The current one stays.

        Raises:
            NoSuchBranch: there is none of such a name.
            WriteConflict: somebody else has written.
        """
        async with self._one_at_a_time:
            seen = await self._look()
            tree, cuts = seen.log.tree.pruned(names)
            await self._replant(seen, tree, seen.last, cuts=cuts)
            return sum(cut.stop - cut.start for cut in cuts)

    async def refresh(self) -> None:
        """Look at the log as it is now."""
        async with self._one_at_a_time:
            self._seen = None
            await self._look()

    async def fence(self, token: int) -> None:
        """Keep out whoever writes with a lower token, and write with this one from here on; the next use looks again.

        Raises:
            Fenced: a higher one has been here. So do all methods that write, from then on.
        """
        async with self._one_at_a_time:
            self._fence, self._seen = token, None
            await self._store.fence(self.key, token)

    async def current(self) -> BaseState | None:
        """The last state; `None`: the conversation is empty.

        Raises:
            Unreadable: it is damaged.
        """
        seen = await self._looked()
        return None if seen.last is None else self._decoded(seen.last, seen.log.tree)

    async def length(self) -> int:
        return (await self._looked()).length

    async def at(self, index: int) -> BaseState:
        """The state at an index; a negative one counts from the end.

        Raises:
            NoSuchState: there is none.
            Unreadable: it is damaged.
        """
        seen = await self._looked()
        place = self._place(seen, index)
        return self._decoded((await self._read(seen.log.tree, place, place + 1))[0], seen.log.tree)

    async def iter_last_n(self, n: int) -> AsyncIterator[StackEntry]:
        """The last `n` entries in order, damaged ones among them.

        Raises:
            ValueError: `n` is negative.
        """
        if n < 0:
            raise ValueError("`n` is a number of entries: 0 or more.")
        seen = await self._looked()
        for start in range(max(seen.length - n, 0), seen.length, _PAGE):
            for node in await self._read(seen.log.tree, start, min(start + _PAGE, seen.length)):
                yield self._entry(node)

    async def get_branch_info(self) -> list[Branch]:
        """All branches, in the order in which they came to be."""
        return (await self._looked()).log.tree.branches()

    async def _push(self, seen: _Seen, states: Sequence[BaseState]) -> tuple[str, ...]:
        log = seen.log
        nodes = self._nodes(seen.last, log.tree, states)
        if nodes:
            end, now = log.tree.head.end + len(nodes), nodes[-1].envelope["ts"]
            tree = log.tree.grown(end, now)
            await self._commit(Change(log.version, end, now, None if log.version else tree, nodes, fence=self._fence))
            self._see(Log(log.version + 1, tree), nodes[-1], pushed=True)
        return tuple(node.ref(self.key) for node in nodes)

    async def _rewind(self, seen: _Seen, length: int, states: Sequence[BaseState] = ()) -> str | None:
        tree, left = seen.log.tree.rewound(length, time.time())
        if tree is seen.log.tree and not states:
            return None
        last = await self._last(tree)
        nodes = self._nodes(last, tree, states)
        await self._replant(
            seen, tree.grown(length + len(nodes), tree.head.written), nodes[-1] if nodes else last, nodes
        )
        return left

    async def _replant(
        self, seen: _Seen, tree: Tree, last: Node | None, nodes: Sequence[Node] = (), cuts: Sequence[Piece] = ()
    ) -> None:
        """Commit other branches than before."""
        head = tree.head
        await self._commit(Change(seen.log.version, head.end, head.written, tree, nodes, cuts, fence=self._fence))
        self._see(Log(seen.log.version + 1, tree), last)

    def _nodes(self, last: Node | None, tree: Tree, states: Sequence[BaseState]) -> list[Node]:
        """The nodes for states that come at the end of the current branch."""
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
        replayed = 1 + (last.replayed if last else 0) if len(then.open) > _MOST_OPEN_WRITTEN else 0
        return Node(segment, index, envelope, episode + begins, then, (asked_by,) if asked_by else (), replayed)

    async def _looked(self) -> _Seen:
        async with self._one_at_a_time:
            return await self._look()

    async def _look(self) -> _Seen:
        if self._seen is None:
            log = await self._store.load(self.key) or Log(0, Tree.planted(time.time(), self._asked_by))
            if log.version < self._version:
                logger.error("log.forgotten", conversation=self.key.conversation_id, had=self._version, has=log.version)
            return self._see(log, await self._last(log.tree))
        return self._seen

    def _see(self, log: Log, last: Node | None, *, pushed: bool = False) -> _Seen:
        if not pushed and self._left is not None and not _ends_alike(self._left, log.tree):
            self._moves += 1
        self._seen, self._left, self._version = _Seen(log, last), log.tree, log.version
        return self._seen

    async def _last(self, tree: Tree) -> Node | None:
        """The node at the end of the current branch. One that is damaged belongs to the task that was on."""
        end = tree.head.end
        nodes = await self._read(tree, max(end - 1, 0), end)
        if nodes and nodes[0].envelope["t"] == DAMAGED:
            before = await self._read(tree, max(end - _PAGE, 0), end)
            return replace(nodes[0], episode=max(node.episode for node in before))
        if nodes and nodes[0].replayed:
            return replace(nodes[0], flow=self._replayed(await self._read(tree, end - 1 - nodes[0].replayed, end)))
        return nodes[0] if nodes else None

    def _replayed(self, nodes: Sequence[Node]) -> Flow:
        """The flow after these nodes, where only that of the first is known.

        After one that cannot be read, the calls are open that were open before it.
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
        """The nodes [start, stop) of the current branch, each in its place."""
        nodes: list[Node] = []
        for piece in tree.pieces(tree.current, start, stop):
            found = await self._store.read(self.key, piece.segment, piece.start, piece.stop)
            # A single state may be damaged; where a whole page is missing, the number of states is.
            if not found and piece.stop - piece.start >= _PAGE:
                raise DamagedLog(f"Of {piece.stop - piece.start} states of {self.key.conversation_id} none is there.")
            there = {node.index: node for node in found}
            nodes += [there.get(i) or damaged(piece.segment, i) for i in range(piece.start, piece.stop)]
        return nodes

    async def _commit(self, change: Change) -> None:
        try:
            await self._store.commit(self.key, change)
        except BaseException:  # a cancelled one may have been written all the same: the next use looks
            self._seen = None
            raise

    def _place(self, seen: _Seen, index: int) -> int:
        place = index + seen.length if index < 0 else index
        if not 0 <= place < seen.length:
            name = seen.log.tree.head.name
            there = f"has the states 0 to {seen.length - 1}" if seen.length else "is empty"
            raise NoSuchState(f"There is no state {index}: branch {name} {there}.")
        return place

    def _decoded(self, node: Node, tree: Tree) -> BaseState:
        try:
            return decode(node.envelope)
        except UnreadableState as e:
            place = f"State {node.index} of branch {tree.head.name}, conversation {self.key.conversation_id}"
            raise type(e)(f"{place}: {e}") from e

    def _entry(self, node: Node) -> StackEntry:
        envelope, ref, state, problem = node.envelope, node.ref(self.key), None, None
        try:
            state = decode(envelope)
        except UnreadableState as e:
            problem = str(e)
        return StackEntry(node.index, ref, envelope["ts"], node.episode, envelope["t"], state, problem, node.parents)


def _ends_alike(one: Tree, other: Tree) -> bool:
    """Whether the current branches have the same states: a segment only grows, or is put elsewhere."""
    head, there = one.head, other.head
    return one.current == other.current and (head.parent, head.base, head.end) == (there.parent, there.base, there.end)
