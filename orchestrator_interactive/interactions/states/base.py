"""The base class of states and their registry."""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cache
from typing import Any, ClassVar, Self

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

_TYPES: dict[str, type[BaseState]] = {}


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
    def from_data(cls, data: dict[str, Any]) -> Self:
        """Build the state from its fields.

        Raises:
            TypeError: a field is missing or unknown.
            ValueError: a field has an invalid value.
        """
        return cls(**data)

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
