"""The states of a conversation; custom states extend `BaseState`."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, fields
from functools import cache
from typing import Any, ClassVar, Literal, get_args
from uuid import uuid4

# The flow's value before the first state.
START = "the beginning"
# States after which a conversation continues.
UNDERWAY = frozenset(
    {
        "UserMessageState",
        "UserResponseState",
        "AssistantMessageState",
        "ToolCallState",
        "ToolResultState",
        "AgentCallState",
        "AgentResultState",
        "WaitingState",
    }
)
WaitKind = Literal["tool", "agent", "llm", "user_input"]
RunEnd = Literal["completed", "cancelled", "error", "unknown"]

_TYPES: dict[str, type[BaseState]] = {}
_REFLECTION = "reflection:"


@dataclass(slots=True, frozen=True)
class BaseState:
    """A step of a conversation: a frozen value whose fields are representable as JSON.

    A subclass is registered under its class name:

    - `follows` names the states after which it is allowed. With `None` the state is outside the flow: it is allowed
      anywhere before the end and does not change which states may follow.
    - `message()`, if defined, returns its message for a model, or `None`; see `render_for_llm`. `note()`, if defined,
      returns its line for people.
    - `__version__` increases when the fields change; `migrate` converts the fields of an older version.
    """

    __version__: ClassVar[int] = 1
    follows: ClassVar[frozenset[str] | None] = None

    def __init_subclass__(cls) -> None:
        known = _TYPES.get(cls.__name__)
        # The same module defines it twice: `slots=True` creates the class again.
        if known is not None and known.__module__ != cls.__module__:
            raise TypeError(f"A state called {cls.__name__} already exists in {known.__module__}: rename this one.")
        _TYPES[cls.__name__] = cls

    def data(self) -> dict[str, Any]:
        """Return the fields by name, without those that have their default."""
        known = _fields(type(self))  # type: ignore[arg-type] # a class is hashable even if its instances are not
        return {name: value for name, default in known if (value := getattr(self, name)) != default}

    @classmethod
    def migrate(cls, data: dict[str, Any], version: int) -> dict[str, Any]:
        """Convert the fields of an older `version` to the current ones."""
        del version
        return data


@cache
def _fields(kind: type[BaseState]) -> tuple[tuple[str, Any], ...]:
    """Return the names and defaults of the fields."""
    return tuple((field.name, field.default) for field in fields(kind))


def state_type(name: str) -> type[BaseState] | None:
    """Return the state class of this name."""
    return _TYPES.get(name)


def may_follow(name: str) -> tuple[str, ...]:
    """Return the states that may follow this one, in alphabetical order, without those outside the flow."""
    return tuple(sorted(each for each, kind in _TYPES.items() if kind.follows is not None and name in kind.follows))


@dataclass(slots=True, frozen=True)
class UserMessageState(BaseState):
    """A message from a person, allowed anywhere before the end.

    Args:
        text: text, or content blocks.
        meta: additional data.
        meanwhile: the agent was working when the message arrived; it belongs to the current task.
    """

    text: str | list[dict[str, Any]]
    meta: Any = None
    meanwhile: bool = False

    follows: ClassVar[frozenset[str] | None] = UNDERWAY | {START}


@dataclass(slots=True, frozen=True)
class UserResponseState(BaseState):
    """The answer of a person to a question of the agent."""

    text: str
    meta: Any = None

    follows: ClassVar[frozenset[str] | None] = UNDERWAY - {"ToolResultState", "AgentResultState"}


@dataclass(slots=True, frozen=True)
class AssistantMessageState(BaseState):
    """An answer of the model. It is not allowed while a tool or another agent still owes a result.

    Args:
        content: text, or content blocks in the model's order, including thinking blocks with their signatures.
        tool_calls: requested calls in OpenAI's format; each has an `id`.
        meta: additional data, such as "reflection:get_weather".
    """

    content: str | list[dict[str, Any]] | None = None
    tool_calls: list[dict[str, Any]] | None = None
    meta: Any = None

    follows: ClassVar[frozenset[str] | None] = UNDERWAY - {"ToolCallState", "AgentCallState"}

    @property
    def is_reflection(self) -> bool:
        """Whether it evaluates the conversation instead of being part of it."""
        return isinstance(self.meta, str) and self.meta.startswith(_REFLECTION) and not self.tool_calls


@dataclass(slots=True, frozen=True)
class ToolCallState(BaseState):
    """An open tool call; a `ToolResultState` with this `id` closes it."""

    id: str
    function_name: str
    arguments: dict[str, Any] = field(default_factory=dict)

    follows: ClassVar[frozenset[str] | None] = UNDERWAY


@dataclass(slots=True, frozen=True)
class ToolResultState(BaseState):
    """The result of an open call; `reward` is its rating, if it was rated, and `meta` has additional data."""

    tool_call_id: str
    tool_name: str | None
    result: Any
    reward: float | None = None
    meta: Any = None

    follows: ClassVar[frozenset[str] | None] = UNDERWAY


@dataclass(slots=True, frozen=True)
class AgentCallState(BaseState):
    """An open request to another agent; an `AgentResultState` with its `correlation_id` closes it."""

    agent_id: str
    message: str
    correlation_id: str = field(default_factory=lambda: uuid4().hex)

    follows: ClassVar[frozenset[str] | None] = UNDERWAY


@dataclass(slots=True, frozen=True)
class AgentResultState(BaseState):
    """The answer to an open request of an agent; `score` is its rating, if it was rated."""

    correlation_id: str
    result: Any
    score: float | None = None

    follows: ClassVar[frozenset[str] | None] = UNDERWAY


@dataclass(slots=True, frozen=True)
class WaitingState(BaseState):
    """The conversation waits.

    Args:
        kind: the awaited thing.
        deadline: in seconds since the epoch; `None` for no deadline.
        correlation_id: id of the call or request that it waits for.
    """

    kind: WaitKind
    deadline: float | None = None
    correlation_id: str | None = None

    follows: ClassVar[frozenset[str] | None] = UNDERWAY

    def __post_init__(self) -> None:
        if self.kind not in get_args(WaitKind):
            raise ValueError(f"A conversation waits for one of {', '.join(get_args(WaitKind))}; not for {self.kind!r}.")

    def is_over(self, now_s: float | None = None) -> bool:
        """Return whether the deadline has passed; `now_s` in seconds since the epoch."""
        return self.deadline is not None and (time.time() if now_s is None else now_s) >= self.deadline


@dataclass(slots=True, frozen=True)
class FinishedState(BaseState):
    """The conversation is complete: this branch accepts no more states."""

    follows: ClassVar[frozenset[str] | None] = UNDERWAY


@dataclass(slots=True, frozen=True)
class RunFinishedState(FinishedState):
    """A run is complete, and the conversation continues with the next message; no model reads this state.

    Args:
        status: as in `execution:end`, or "unknown" if the end was not recorded before the next run.
    """

    status: RunEnd = "completed"

    follows: ClassVar[frozenset[str] | None] = None

    def __post_init__(self) -> None:
        if self.status not in get_args(RunEnd):
            raise ValueError(f"A run ends with one of {', '.join(get_args(RunEnd))}; not with {self.status!r}.")
