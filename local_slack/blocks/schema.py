"""Schemas for JSON; problems have Slack's wording and a JSON pointer."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


@dataclass(frozen=True, slots=True)
class Text:
    longest: int
    least: int = 1


@dataclass(frozen=True, slots=True)
class Flag:
    pass


@dataclass(frozen=True, slots=True)
class Whole:
    pass


@dataclass(frozen=True, slots=True)
class Choice:
    """One of the given strings."""

    words: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Many:
    """A list whose items all have one schema."""

    item: Schema
    most: int
    least: int = 1


@dataclass(frozen=True, slots=True)
class Shape:
    """An object with these fields and no others, and at least one field of each pair in ``either``."""

    required: Mapping[str, Schema] = field(default_factory=dict)
    optional: Mapping[str, Schema] = field(default_factory=dict)
    either: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class ByType:
    """An object whose ``type`` selects its schema."""

    shapes: Mapping[str, Schema]


@dataclass(frozen=True, slots=True)
class Unchecked:
    """Any value."""


Schema = Text | Flag | Whole | Choice | Many | Shape | ByType | Unchecked


def problems(value: Any, schema: Schema, pointer: str) -> Iterator[str]:  # noqa: PLR0911 - one per kind of schema
    """Return all problems of ``value``."""
    match schema:
        case Text():
            return _text_problems(value, schema, pointer)
        case Flag():
            return _unless(isinstance(value, bool), "must provide a boolean", pointer)
        case Whole():
            return _unless(isinstance(value, int) and not isinstance(value, bool), "must provide an integer", pointer)
        case Choice(words):
            return _unless(value in words, "must be a valid enum value", pointer)
        case Many():
            return _list_problems(value, schema, pointer)
        case Shape():
            return _object_problems(value, schema, pointer)
        case ByType(shapes):
            return _typed_problems(value, shapes, pointer)
        case Unchecked():
            return iter(())


def at(what: str, pointer: str) -> str:
    return f"{what} [json-pointer:{pointer}]"


def _unless(right: bool, what: str, pointer: str) -> Iterator[str]:
    return iter(() if right else (at(what, pointer),))


def _text_problems(value: Any, schema: Text, pointer: str) -> Iterator[str]:
    if not isinstance(value, str):
        yield at("must provide a string", pointer)
    elif len(value) < schema.least:
        yield at(f"must be more than {schema.least - 1} characters", pointer)
    elif len(value) > schema.longest:
        yield at(f"must be less than {schema.longest + 1} characters", pointer)


def _list_problems(value: Any, schema: Many, pointer: str) -> Iterator[str]:
    if not isinstance(value, list | tuple):
        yield at("must provide an array", pointer)
        return
    if len(value) > schema.most:
        yield at(f"no more than {schema.most} items allowed", pointer)
    if len(value) < schema.least:
        yield at(f"no less than {schema.least} items allowed", pointer)
    for number, item in enumerate(value):
        yield from problems(item, schema.item, f"{pointer}/{number}")


def _object_problems(value: Any, schema: Shape, pointer: str) -> Iterator[str]:
    if not isinstance(value, dict):
        yield at("must provide an object", pointer)
        return
    given = {name: item for name, item in value.items() if item is not None}
    for name in schema.required:
        if name not in given:
            yield at(f"missing required field: {name}", pointer)
    for one, other in schema.either:
        if one not in given and other not in given:
            yield at(f"must define either `{one}` or `{other}`", pointer)
    for name, item in given.items():
        known = schema.required.get(name) or schema.optional.get(name)
        if known:
            yield from problems(item, known, f"{pointer}/{name}")
        else:
            yield at(f"invalid additional property: {name}", pointer)


def _typed_problems(value: Any, shapes: Mapping[str, Schema], pointer: str) -> Iterator[str]:
    if not isinstance(value, dict):
        yield at("must provide an object", pointer)
    elif value.get("type") is None:
        yield at("missing required field: type", pointer)
    elif not isinstance(value["type"], str) or value["type"] not in shapes:
        yield at(f"unsupported type: {value['type']}", f"{pointer}/type")
    else:
        rest = {name: item for name, item in value.items() if name != "type"}
        yield from problems(rest, shapes[value["type"]], pointer)
