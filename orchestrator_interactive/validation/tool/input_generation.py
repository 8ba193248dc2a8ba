"""Generate valid inputs from a JSON schema."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

_DEEPEST = 12
_FORMATS: Mapping[str, str] = {
    "date": "2026-01-15",
    "date-time": "2026-01-15T12:00:00Z",
    "time": "12:00:00Z",
    "duration": "PT1H",
    "email": "user@example.com",
    "hostname": "example.com",
    "ipv4": "192.0.2.1",
    "ipv6": "2001:db8::1",
    "uri": "https://example.com/",
    "uuid": "12345678-1234-4234-8234-123456789abc",
}


class Unfit(Exception):  # noqa: N818 - a remark on the schema
    """No valid input can be generated. The message is the reason."""


def fitting(schema: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield valid inputs with a description: the required properties only, and a value for every property.

    Raises:
        Unfit: no value can be generated, for example for a pattern.
    """
    least = _Maker(schema, everything=False).made(schema)
    yield "the required properties only", _object(least)
    most = _Maker(schema, everything=True).made(schema)
    if most != least:
        yield "a value for every property", _object(most)


def _object(made: Any) -> dict[str, Any]:
    if not isinstance(made, dict):
        raise Unfit("Its schema does not ask for an object.")
    return made


class _Maker:
    """Generate a value for a schema: one that the schema contains, else a simple one of its type."""

    def __init__(self, root: Mapping[str, Any], *, everything: bool) -> None:
        self._root = root
        self._everything = everything

    def made(self, schema: Any, depth: int = 0) -> Any:
        if depth > _DEEPEST:
            raise Unfit("Its schema is recursive without an end.")
        if not isinstance(schema, dict):
            return "text"  # `true`: anything fits
        schema = self._followed(schema)
        for named in _named(schema):
            return named
        for choice in (schema.get("anyOf"), schema.get("oneOf")):
            if isinstance(choice, list) and choice:
                beside = {name: value for name, value in schema.items() if name not in ("anyOf", "oneOf")}
                first = choice[0] if isinstance(choice[0], dict) else {}
                return self.made({**beside, **first}, depth + 1)
        return self._of_type(schema, depth)

    def _followed(self, schema: dict[str, Any]) -> dict[str, Any]:
        """Return the schema merged with the schemas of its `$ref` and `allOf`."""
        parts = [schema]
        for part in parts:
            if len(parts) > _DEEPEST:
                raise Unfit("Its schema is recursive without an end.")
            if isinstance(reference := part.get("$ref"), str):
                parts.append(self._at(reference))
            parts += [each for each in part.get("allOf") or () if isinstance(each, dict)]
        merged: dict[str, Any] = {}
        for part in reversed(parts):
            properties = {**merged.get("properties", {}), **part.get("properties", {})}
            required = [*merged.get("required", ()), *part.get("required", ())]
            merged |= {**part, "properties": properties, "required": list(dict.fromkeys(required))}
        return {name: value for name, value in merged.items() if name not in ("$ref", "allOf")}

    def _at(self, reference: str) -> dict[str, Any]:
        found: Any = self._root
        for step in reference.removeprefix("#").strip("/").split("/") if reference != "#" else ():
            found = found.get(step.replace("~1", "/").replace("~0", "~")) if isinstance(found, dict) else None
        if not isinstance(found, dict):
            raise Unfit(f"Its schema refers to {reference}, which is not in it.")
        return found

    def _of_type(self, schema: dict[str, Any], depth: int) -> Any:
        wanted = schema.get("type")
        wanted = wanted[0] if isinstance(wanted, list) and wanted else wanted
        if wanted is None:
            wanted = "object" if schema["properties"] else "array" if "items" in schema else "string"
        makers: dict[str, Callable[[], Any]] = {
            "object": lambda: self._properties(schema, depth),
            "array": lambda: self._items(schema, depth),
            "string": lambda: _text(schema),
            "integer": lambda: _whole(schema),
            "number": lambda: _number(schema),
            "boolean": lambda: False,
            "null": lambda: None,
        }
        if wanted not in makers:
            raise Unfit(f"Its schema has the type {wanted!r}.")
        return makers[wanted]()

    def _properties(self, schema: dict[str, Any], depth: int) -> dict[str, Any]:
        properties, required = schema["properties"], schema["required"]
        names = dict.fromkeys([*required, *(properties if self._everything else ())])
        return {name: self.made(properties.get(name), depth + 1) for name in names}

    def _items(self, schema: dict[str, Any], depth: int) -> list[Any]:
        least = schema.get("minItems", 1 if self._everything else 0)
        return [self.made(schema.get("items"), depth + 1) for _ in range(min(least, schema.get("maxItems", least)))]


def _named(schema: dict[str, Any]) -> Iterator[Any]:
    """Yield the values in a schema, strictest first. A default of `null` is skipped: it marks optional values."""
    if "const" in schema:
        yield schema["const"]
    examples, default = schema.get("examples"), schema.get("default")
    if isinstance(examples, list):
        yield from examples[:1]
    if default is not None:
        yield default
    if isinstance(schema.get("enum"), list):
        yield from schema["enum"][:1]


def _text(schema: dict[str, Any]) -> str:
    made = _FORMATS.get(schema.get("format", ""), "text")
    made = made.ljust(schema.get("minLength", 0), "x")[: schema.get("maxLength")]
    if "pattern" in schema and not re.search(schema["pattern"], made):
        raise Unfit(f"It asks for a text of the pattern {schema['pattern']}.")
    return made


def _whole(schema: dict[str, Any]) -> int:
    least, most = _bounds(schema, 1)
    step = schema.get("multipleOf", 1)
    start = 1 if least <= 1 <= most else least if least > -math.inf else most
    made = math.ceil(start / step) * step
    return int(made if made <= most else math.floor(most / step) * step)


def _number(schema: dict[str, Any]) -> float:
    if "multipleOf" in schema:
        return _whole(schema) if schema["multipleOf"] >= 1 else schema["multipleOf"]
    least, most = _bounds(schema, 0)
    if least < 1 < most:
        return 1
    if math.isinf(least) or math.isinf(most):
        return least + 1 if math.isinf(most) else most - 1
    return (least + most) / 2


def _bounds(schema: dict[str, Any], apart: int) -> tuple[float, float]:
    """Return the inclusive bounds; `apart` is the distance from an excluded bound to the next number."""
    least = max(schema.get("minimum", -math.inf), schema.get("exclusiveMinimum", -math.inf) + apart)
    most = min(schema.get("maximum", math.inf), schema.get("exclusiveMaximum", math.inf) - apart)
    return least, most
