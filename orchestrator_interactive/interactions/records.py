"""Values that stores persist; they do not depend on the meaning of the states."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Any, NamedTuple, TypedDict
from urllib.parse import quote, unquote

from orchestrator_interactive.interactions.states import START

as_json = json.JSONEncoder(separators=(",", ":")).encode

# Type of a state that cannot be read.
DAMAGED = "(damaged)"
# A state type that any state may follow.
_AFTER_DAMAGE = "WaitingState"

# The fields next to an envelope: episode, last state, states to replay, open calls, parents.
_FIELDS = {"e": int, "l": str, "b": int, "o": list, "p": list}


class StateEnvelope(TypedDict):
    """A serialized state: version, type, time (seconds since the epoch) and data.

    The data are JSON, compressed with zstandard above a size limit: bytes in a store, base64 elsewhere.
    """

    v: int
    t: str
    ts: float
    data: str | bytes
    compressed: bool


@dataclass(frozen=True)
class Key:
    """Identify a log: one per conversation and agent.

    Raises:
        ValueError: an id is blank or contains a lone surrogate.
    """

    conversation_id: str
    agent_id: str

    def __post_init__(self) -> None:
        if not self.conversation_id or not self.agent_id:
            raise ValueError("The ids of a conversation and its agent must not be blank.")
        try:
            f"{self.conversation_id}{self.agent_id}".encode()
        except UnicodeEncodeError as e:
            names = f"{self.conversation_id!r} of {self.agent_id!r}"
            raise ValueError(f"{names} contains half of a character (a lone surrogate): choose other ids.") from e

    @cached_property
    def path(self) -> str:
        """Both ids as one reversible path."""
        return f"{quote(self.conversation_id, safe=':')}/{quote(self.agent_id, safe=':')}"

    @classmethod
    def of_path(cls, path: str) -> Key:
        conversation_id, _, agent_id = path.partition("/")
        return cls(unquote(conversation_id), unquote(agent_id))


class OpenCall(NamedTuple):
    """A call that has no result yet.

    Args:
        id: id that its result refers to.
        place: position of the call, `segment/index`; the end of its ref.
        kind: "declared" in an assistant message, "tool" or "agent".
    """

    id: str
    place: str
    kind: str


class Flow(NamedTuple):
    """The last state's type and the open calls; they determine which states may follow."""

    last: str = START
    open: tuple[OpenCall, ...] = ()


@dataclass(frozen=True, slots=True)
class Node:
    """An immutable state in a log.

    Args:
        segment, index: position; the index counts from the beginning of the conversation.
        episode: number of the task that it belongs to, from 1; 0 before the first task.
        flow: the flow after this state.
        parents: refs of the artifacts that caused it: the call of a result, or another agent's request.
        replayed: number of states to go back to the last stored flow. With many open calls the flow is not stored with
            each state, because its size grows with their number; it is replayed from that state.
    """

    segment: int
    index: int
    envelope: StateEnvelope
    episode: int
    flow: Flow
    parents: tuple[str, ...] = ()
    replayed: int = 0

    def ref(self, key: Key) -> str:
        return f"{key.path}/{self.segment}/{self.index}"


def place_of(ref: str) -> tuple[Key, int, int]:
    """Split an artifact's ref into key, segment and index.

    Raises:
        ValueError: it is not a ref.
    """
    path, segment, index = ref.rsplit("/", 2)
    return Key.of_path(path), int(segment), int(index)


def fields_of(node: Node) -> str:
    """Return the fields that are stored next to the envelope, as JSON; defaults are left out."""
    stored: dict[str, Any] = {"e": node.episode}
    if node.flow.last != node.envelope["t"]:
        stored["l"] = node.flow.last
    if node.replayed:
        stored["b"] = node.replayed
    elif node.flow.open:
        stored["o"] = node.flow.open
    if node.parents:
        stored["p"] = node.parents
    return as_json(stored)


def node_of(segment: int, index: int, envelope: StateEnvelope, fields: str | bytes) -> Node:
    """Rebuild a node from its envelope and the result of `fields_of`; a damaged one if either is invalid."""
    try:
        stored = json.loads(fields)
        calls, parents, replayed = stored.get("o", ()), stored.get("p", ()), stored.get("b", 0)
        is_valid = (
            all(type(value) is _FIELDS[name] for name, value in stored.items())
            and type(envelope["v"]) is int
            and isinstance(envelope["ts"], float | int)
            and isinstance(envelope["data"], str | bytes)
            and all(type(call) is list for call in calls)
            and all(isinstance(text, str) for text in (envelope["t"], *parents, *chain.from_iterable(calls)))
            and 0 <= replayed <= index
        )
        if is_valid:
            flow = Flow(stored.get("l", envelope["t"]), tuple(OpenCall(*call) for call in calls))
            return Node(segment, index, envelope, stored["e"], flow, tuple(parents), replayed)
    except (TypeError, ValueError, LookupError, AttributeError, RecursionError):
        pass
    return damaged(segment, index)


def damaged(segment: int, index: int) -> Node:
    """Return a placeholder for a missing or unreadable node; any state may follow it."""
    envelope: StateEnvelope = {"v": 1, "t": DAMAGED, "ts": 0.0, "data": "", "compressed": False}
    return Node(segment, index, envelope, 0, Flow(_AFTER_DAMAGE))
