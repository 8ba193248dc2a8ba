"""The ids of the delivered messages in conversation logs: a cached search, and a complete list for audits."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from orchestrator_interactive.interactions.errors import NewerState, UnknownState, UnreadableState
from orchestrator_interactive.interactions.records import Key
from orchestrator_interactive.interactions.rows import RowState, row_of
from orchestrator_interactive.interactions.serializers import decode
from orchestrator_interactive.interactions.states import (
    AgentCallState,
    AgentResultState,
    UserMessageState,
    UserResponseState,
)
from orchestrator_interactive.transcript.rows import delivered_ids_in, talk_ids_in

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from orchestrator_interactive.interactions.records import Node
    from orchestrator_interactive.interactions.stores import LogStore
    from orchestrator_interactive.interactions.tree import Segment

# Number of states per read.
_PAGE = 500
# Maximum number of logs in the cache; the least recently used ones are dropped.
_CACHED_LOGS = 100
# The types of states that can contain a message's row.
_WITH_IDS = frozenset(
    kind.__name__ for kind in (UserMessageState, UserResponseState, RowState, AgentCallState, AgentResultState)
)


@dataclass(frozen=True, slots=True)
class LoggedIds:
    """The ids of messages in a log.

    Args:
        every: the ids on all branches, including abandoned ones, and those of messages that sub-agents have read.
        talk: those of talk among people.
        branches: the ids in log order, by branch name.
        is_whole: whether no segment was pruned and all state types are known, so that no id can be missing.
        damaged: indices of missing or unreadable states, by the name of a branch that contains them.
    """

    every: frozenset[str]
    talk: frozenset[str]
    branches: Mapping[str, tuple[str, ...]]
    is_whole: bool
    damaged: Mapping[str, tuple[int, ...]]


async def logged_ids(store: LogStore, key: Key) -> LoggedIds | None:
    """Read the ids of the messages in a log; `None` if there is no log.

    Raises:
        DamagedLog: its branches cannot be read.
        StoreError: the store cannot be used.
    """
    log = await store.load(key)
    if log is None:
        return None
    tree = log.tree
    # A pruned branch has lost its name or its segment.
    is_whole = len(tree.segments) == tree.next_segment and all(each.name for each in tree.segments.values())
    segments = {
        number: await _read_segment(store, key, number, segment.base, segment.end)
        for number, segment in tree.segments.items()
    }
    branches = {}
    for branch in tree.branches():
        number = tree.named(branch.name)
        branches[branch.name] = tuple(
            id_
            for piece in tree.pieces(number, 0, tree.segments[number].end)
            for index in range(piece.start, piece.stop)
            for id_ in segments[piece.segment].ids.get(index, ())
        )
    damaged = {
        tree.segments[number].name or f"{number} (pruned)": tuple(found.damaged)
        for number, found in segments.items()
        if found.damaged
    }
    every = frozenset(id_ for found in segments.values() for ids in found.ids.values() for id_ in ids)
    every |= {id_ for found in segments.values() for id_ in found.by_agents}
    talk = frozenset(id_ for found in segments.values() for id_ in found.talk)
    is_whole = is_whole and not any(each.has_unknown for each in segments.values())
    return LoggedIds(every, talk, branches, is_whole, damaged)


async def logged_texts(store: LogStore, key: Key, texts: Collection[str]) -> frozenset[str]:
    """Return those of the texts that messages in a log have, on any branch, or in the logs of its sub-agents.

    Raises:
        DamagedLog: its branches cannot be read.
        StoreError: the store cannot be used.
    """
    log = await store.load(key)
    found, children = set[str](), set[Key]()
    for number, segment in log.tree.segments.items() if log is not None else ():
        for start in range(segment.base, segment.end, _PAGE):
            for node in await store.read(key, number, start, min(start + _PAGE, segment.end)):
                with suppress(UnreadableState):
                    state = decode(node.envelope)
                    found |= texts_in(row_of(state), texts)
                    if isinstance(state, AgentCallState):
                        request = state.correlation_id.partition("/")[0]
                        children.add(Key(f"{key.conversation_id}/{request}", state.agent_id))
    for child in children:
        found |= await logged_texts(store, child, texts)
    return frozenset(found)


def texts_in(row: Any, texts: Collection[str]) -> frozenset[str]:
    """Return those of the texts, which have only characters that JSON does not escape, that are in a row."""
    written = json.dumps(row, ensure_ascii=False)
    return frozenset(each for each in texts if each in written)


@dataclass(slots=True)
class _Segment:
    """The message ids in a segment by state index, those of talk, and its unreadable and unknown states."""

    ids: dict[int, tuple[str, ...]] = field(default_factory=dict)
    talk: set[str] = field(default_factory=set)
    by_agents: set[str] = field(default_factory=set)  # read by sub-agents
    damaged: list[int] = field(default_factory=list)
    has_unknown: bool = False


async def _read_segment(store: LogStore, key: Key, segment: int, base: int, end: int) -> _Segment:
    found = _Segment()
    for start in range(base, end, _PAGE):
        stop = min(start + _PAGE, end)
        nodes = {node.index: node for node in await store.read(key, segment, start, stop)}
        for index in range(start, stop):
            try:
                state = decode(nodes[index].envelope)
                row = row_of(state)
            except (UnknownState, NewerState):
                found.has_unknown = True
            except (UnreadableState, KeyError):
                found.damaged.append(index)
            else:
                found.ids[index] = tuple(delivered_ids_in(row))
                if isinstance(state, AgentResultState):
                    found.by_agents.update(delivered_to_agent(state.result))
                found.talk.update(talk_ids_in(row))
    return found


@dataclass(slots=True)
class _ReadRange:
    """The states [start, stop) of a segment that were read, and the message ids in them."""

    start: int
    stop: int
    ids: set[str] = field(default_factory=set)
    # Requests to sub-agents: agent and request id; and the requests whose result lists the messages that were read.
    asked: set[tuple[str, str]] = field(default_factory=set)
    ended: set[str] = field(default_factory=set)

    def add(self, node: Node) -> None:
        with suppress(UnreadableState):
            match decode(node.envelope):
                case AgentCallState(agent_id, _, correlation_id):
                    self.asked.add((agent_id, correlation_id))
                case AgentResultState(_, {"status": "unknown"}):  # its process was lost; the request is made again
                    pass
                case AgentResultState(correlation_id, result):
                    self.ended.add(correlation_id)
                    self.ids.update(delivered_to_agent(result))
                case state:
                    self.ids.update(delivered_ids_in(row_of(state)))


class DeliveredIds:
    """Finds messages that are delivered: their ids are in a row of the log, on any branch.

    Reads a log backwards from its end until all ids are found. A search for absent ids, such as those of pending
    messages, reads the whole log once; later searches read only its new states.
    """

    def __init__(self, store: LogStore) -> None:
        self._store = store
        # By log and segment, which has a number and a time of creation.
        self._ranges: dict[Key, dict[tuple[int, float], _ReadRange]] = {}

    async def of(self, key: Key, ids: Collection[str]) -> frozenset[str]:
        """Return those of the message ids that are in the log.

        Raises:
            DamagedLog: its branches cannot be read.
            StoreError: the store cannot be used.
        """
        wanted = frozenset(ids)
        log = await self._store.load(key) if wanted else None
        if log is None:
            return frozenset()
        tree, missing, before = log.tree, wanted, self._ranges.pop(key, {})
        ranges: dict[tuple[int, float], _ReadRange] = {}
        for number in sorted(tree.segments, key=lambda each: (each != tree.current, -each)):  # the latest first
            segment = tree.segments[number]
            found = before.get((number, segment.created))
            # States are immutable, but a log can be deleted and recreated.
            if found is None or found.start < segment.base or segment.end < found.stop:
                found = _ReadRange(segment.end, segment.end)
            ranges[number, segment.created] = found
            missing = await self._search(key, number, segment, found, missing)
        self._ranges[key] = ranges
        if len(self._ranges) > _CACHED_LOGS:
            del self._ranges[next(iter(self._ranges))]
        return wanted - (await self._not_in_children(key, ranges.values(), missing) if missing else missing)

    async def _search(
        self, key: Key, number: int, segment: Segment, found: _ReadRange, missing: frozenset[str]
    ) -> frozenset[str]:
        """Read a segment backwards until it has all the ids, and return those that it does not have."""
        while missing := missing - found.ids:
            if found.stop < segment.end:
                start, stop = found.stop, min(found.stop + _PAGE, segment.end)
            elif segment.base < found.start:
                start, stop = max(found.start - _PAGE, segment.base), found.start
            else:
                break
            for node in await self._store.read(key, number, start, stop):
                if node.envelope["t"] in _WITH_IDS:
                    found.add(node)
            found.start, found.stop = min(start, found.start), max(stop, found.stop)
        return missing

    async def _not_in_children(
        self, key: Key, ranges: Collection[_ReadRange], missing: frozenset[str]
    ) -> frozenset[str]:
        """Return the ids that the logs of unfinished sub-agents do not have either."""
        ended = {each for found in ranges for each in found.ended}
        for agent_id, request in {each for found in ranges for each in found.asked}:
            if request not in ended and missing:
                child = Key(f"{key.conversation_id}/{request.partition('/')[0]}", agent_id)
                missing -= await self.of(child, missing)
        return missing


def delivered_to_agent(result: Any) -> tuple[str, ...]:
    """Return the ids of the messages of people that a sub-agent has read, by its logged result."""
    ids = result.get("delivered") if isinstance(result, dict) else None
    return tuple(each for each in ids if isinstance(each, str)) if isinstance(ids, list) else ()
