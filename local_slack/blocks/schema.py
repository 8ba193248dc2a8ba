"""Schemas for JSON; problems have Slack's wording and a JSON pointer."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


class Schema(Protocol):
    def problems(self, value: Any, pointer: str) -> Iterator[str]:
        """Return all problems of ``value``."""


def at(what: str, pointer: str) -> str:
    return f"{what} [json-pointer:{pointer}]"


class _Anything:
    def problems(self, value: Any, pointer: str) -> Iterator[str]:  # noqa: ARG002 - any value is valid
        return iter(())


@dataclass(frozen=True, slots=True)
class _Type:
    type: type
    name: str

    def problems(self, value: Any, pointer: str) -> Iterator[str]:
        if type(value) is not self.type:
            yield at(f"must provide {self.name}", pointer)


ANYTHING = _Anything()
FLAG = _Type(bool, "a boolean")
WHOLE = _Type(int, "an integer")


@dataclass(frozen=True, slots=True)
class Text:
    longest: int
    least: int = 1

    def problems(self, value: Any, pointer: str) -> Iterator[str]:
        if not isinstance(value, str):
            yield at("must provide a string", pointer)
        elif len(value) < self.least:
            yield at(f"must be more than {self.least - 1} characters", pointer)
        elif len(value) > self.longest:
            yield at(f"must be less than {self.longest + 1} characters", pointer)


class Choice:
    """One of the given strings."""

    def __init__(self, *words: str) -> None:
        self._words = words

    def problems(self, value: Any, pointer: str) -> Iterator[str]:
        if value not in self._words:
            yield at("must be a valid enum value", pointer)


@dataclass(frozen=True, slots=True)
class Many:
    """A list whose items all have one schema."""

    item: Schema
    most: int
    least: int = 1

    def problems(self, value: Any, pointer: str) -> Iterator[str]:
        if not isinstance(value, list | tuple):
            yield at("must provide an array", pointer)
            return
        if len(value) > self.most:
            yield at(f"no more than {self.most} items allowed", pointer)
        if len(value) < self.least:
            yield at(f"no less than {self.least} items allowed", pointer)
        for number, item in enumerate(value):
            yield from self.item.problems(item, f"{pointer}/{number}")


@dataclass(frozen=True, slots=True)
class Shape:
    """An object with these fields and no others, and at least one field of the pair in ``either``."""

    required: Mapping[str, Schema] = field(default_factory=dict)
    optional: Mapping[str, Schema] = field(default_factory=dict)
    either: tuple[str, str] | None = None

    def problems(self, value: Any, pointer: str) -> Iterator[str]:
        if not isinstance(value, dict):
            yield at("must provide an object", pointer)
            return
        given = {name: item for name, item in value.items() if item is not None}
        for name in self.required:
            if name not in given:
                yield at(f"missing required field: {name}", pointer)
        if self.either and not given.keys() & set(self.either):
            yield at("must define either `{}` or `{}`".format(*self.either), pointer)
        for name, item in given.items():
            known = self.required.get(name) or self.optional.get(name)
            if known:
                yield from known.problems(item, f"{pointer}/{name}")
            else:
                yield at(f"invalid additional property: {name}", pointer)


@dataclass(frozen=True, slots=True)
class ByType:
    """An object whose ``type`` selects its schema."""

    shapes: Mapping[str, Schema]

    def problems(self, value: Any, pointer: str) -> Iterator[str]:
        if not isinstance(value, dict):
            yield at("must provide an object", pointer)
        elif value.get("type") is None:
            yield at("missing required field: type", pointer)
        elif not isinstance(value["type"], str) or value["type"] not in self.shapes:
            yield at(f"unsupported type: {value['type']}", f"{pointer}/type")
        else:
            rest = {name: item for name, item in value.items() if name != "type"}
            yield from self.shapes[value["type"]].problems(rest, pointer)
