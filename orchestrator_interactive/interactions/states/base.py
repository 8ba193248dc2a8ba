"""What every state of a conversation has in common."""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cache
from typing import Any, ClassVar, Self

# What comes before the first state.
START = "the beginning"
# After these a conversation goes on.
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
    """A step of a conversation: a frozen value whose fields are what JSON knows.

    A subclass is a state of its own, under its class's name:

    - `follows` names the states after which it may come. A state without (`None`) stands beside the flow: it may come
      anywhere before the end, and what may follow stays as it was.
    - `message()`, where it has one, is the message that it is for a model, or `None`; see `render_for_llm`. `note()`,
      where it has one, is the line that people read of it.
    - `__version__` grows when the fields change; `migrate` then makes today's fields of those of an older version.
    """

    __version__: ClassVar[int] = 1
    follows: ClassVar[frozenset[str] | None] = None

    def __init_subclass__(cls) -> None:
        known = _TYPES.get(cls.__name__)
        # In the same module it may be the same one: `slots=True` makes a class anew.
        if known is not None and known.__module__ != cls.__module__:
            raise TypeError(
                f"There is a state called {cls.__name__} already, in {known.__module__}: give this one another name."
            )
        _TYPES[cls.__name__] = cls

    def data(self) -> dict[str, Any]:
        """The fields, by name; those that have their default are left out."""
        known = _fields(type(self))  # type: ignore[arg-type] # a class is hashable, whatever its instances are
        return {name: value for name, default in known if (value := getattr(self, name)) != default}

    @classmethod
    def from_data(cls, data: dict[str, Any]) -> Self:
        """The state with these fields.

        Raises:
            TypeError: a field is missing or unknown.
            ValueError: a field has a value that it cannot have.
        """
        return cls(**data)

    @classmethod
    def migrate(cls, data: dict[str, Any], version: int) -> dict[str, Any]:
        """Today's fields, of those that an older `version` of this state wrote."""
        del version
        return data


@cache
def _fields(kind: type[BaseState]) -> tuple[tuple[str, Any], ...]:
    """Names and defaults."""
    return tuple((field.name, field.default) for field in fields(kind))


def state_type(name: str) -> type[BaseState] | None:
    """The class of the states of this name."""
    return _TYPES.get(name)


def may_follow(name: str) -> tuple[str, ...]:
    """The states that may come after one of this name, in alphabetical order; those beside the flow always may."""
    return tuple(sorted(each for each, kind in _TYPES.items() if kind.follows is not None and name in kind.follows))
