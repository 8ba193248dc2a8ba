"""What stores keep of a conversation: frozen values that know nothing of what the states mean."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple, TypedDict
from urllib.parse import quote, unquote

from orchestrator_interactive.interactions.states.base import START

# The type of a state of which nothing is known.
DAMAGED = "(damaged)"
# Anything may come after this one.
_AFTER_DAMAGE = "WaitingState"

if TYPE_CHECKING:
    from collections.abc import Iterable


class StateEnvelope(TypedDict):
    """A state as it is written: its version, type, time (seconds since the epoch) and data.

    The data are JSON, or compressed with zstandard where that is worth it.
    """

    v: int
    t: str
    ts: float
    data: str | bytes
    compressed: bool


@dataclass(frozen=True)
class Key:
    """Whose log it is: a conversation can have one for each of several agents.

    Raises:
        ValueError: an id is blank, or holds half of a character.
    """

    conversation_id: str
    agent_id: str

    def __post_init__(self) -> None:
        if not self.conversation_id or not self.agent_id:
            raise ValueError("A conversation and its agent are named by ids that are not blank.")
        try:
            f"{self.conversation_id}{self.agent_id}".encode()
        except UnicodeEncodeError as e:
            names = f"{self.conversation_id!r} of {self.agent_id!r}"
            raise ValueError(f"{names} holds half of a character: no conversation can be called so.") from e

    @cached_property
    def path(self) -> str:
        """Both in one text from which they can be told again."""
        return f"{quote(self.conversation_id, safe=':')}/{quote(self.agent_id, safe=':')}"

    @classmethod
    def of_path(cls, path: str) -> Key:
        conversation_id, _, agent_id = path.partition("/")
        return cls(unquote(conversation_id), unquote(agent_id))


class OpenCall(NamedTuple):
    """A call without a result so far.

    Args:
        id: by which its result names it.
        place: of the call, `segment/index`: what its ref ends with.
        kind: "declared" in an assistant message, "tool" or "agent".
    """

    id: str
    place: str
    kind: str


class Flow(NamedTuple):
    """What decides about the next state: the state before it, and the calls that are open."""

    last: str = START
    open: tuple[OpenCall, ...] = ()


@dataclass(frozen=True, slots=True)
class Node:
    """A state in a log: added once, changed never.

    Args:
        segment, index: its place; the index counts from the beginning of the conversation.
        episode: the number of the task that it belongs to, from 1 on; 0 before the first.
        flow: what decides about the state after it.
        parents: the artifacts that it comes from: the call of a result, the request of another agent.
        replayed: with many open calls, the flow is not written with each state, whose size would grow with their
            number. It then comes from that of so many states before it, and the states since.
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
    """Key, segment and index of an artifact's ref.

    Raises:
        ValueError: it is none.
    """
    path, segment, index = ref.rsplit("/", 2)
    return Key.of_path(path), int(segment), int(index)


def about(node: Node) -> dict[str, Any]:
    """What is kept beside the envelope, as JSON knows it; blank where it goes without saying."""
    told: dict[str, Any] = {"e": node.episode}
    if node.flow.last != node.envelope["t"]:
        told["l"] = node.flow.last
    if node.replayed:
        told["b"] = node.replayed
    elif node.flow.open:
        told["o"] = [list(call) for call in node.flow.open]
    if node.parents:
        told["p"] = list(node.parents)
    return told


def node_of(segment: int, index: int, envelope: StateEnvelope, told: dict[str, Any]) -> Node:
    """The node of which `about` told."""
    flow = Flow(told.get("l", envelope["t"]), _open(told.get("o", ())))
    return Node(segment, index, envelope, told["e"], flow, tuple(told.get("p", ())), told.get("b", 0))


def _open(calls: Iterable[Any]) -> tuple[OpenCall, ...]:
    return tuple(OpenCall(*call) for call in calls)


def damaged(segment: int, index: int) -> Node:
    """A node in the place of one that is gone, or of which nothing can be read; the conversation can go on after it."""
    envelope: StateEnvelope = {"v": 1, "t": DAMAGED, "ts": 0.0, "data": "", "compressed": False}
    return Node(segment, index, envelope, 0, Flow(_AFTER_DAMAGE))
