"""Rules for the input schemas of tools."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from orchestrator_interactive.validation.report import Check
from orchestrator_interactive.validation.runner import NotChecked, error_text, kind, rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from orchestrator_interactive.kernel.loading.location import ModuleLocation
    from orchestrator_interactive.validation.runner import Problems, ValidationRule
    from orchestrator_interactive.validation.tool.inputs import Tried


def schema_of(tool: Any) -> Any:
    """Return `get_schema()` or `input_schema` of a tool; `None` if it has neither, the error if reading it raises."""
    try:
        if callable(getattr(tool, "get_schema", None)):
            return tool.get_schema()
        return getattr(tool, "input_schema", None)
    except Exception as e:  # noqa: BLE001 - third-party code: reported, not handled
        return e


def required_by(schema: Any) -> list[str]:
    required = schema.get("required") if isinstance(schema, dict) else None
    return [name for name in required if isinstance(name, str)] if isinstance(required, list) else []


@rule(
    Check(
        rule="the input has a schema",
        section="Tool Schema",
        fix="Return the JSON schema of the input from get_schema(): `{'type': 'object', 'properties': {…}}`.",
        required=False,
    )
)
def has_schema(tried: Tried) -> Problems:
    return [
        f"{name} has neither get_schema() nor input_schema." for name, schema in tried.schemas.items() if schema is None
    ]


@rule(
    Check(
        rule="the schema is the JSON schema of an object",
        section="Tool Schema",
        fix="Use a dictionary with 'type': 'object', 'properties' by name, and a list 'required' of property names.",
    )
)
def schema_is_an_object(tried: Tried) -> Problems:
    given = {name: schema for name, schema in tried.schemas.items() if schema is not None}
    if not given:
        raise NotChecked("No tool has a schema.", "Give them one.")
    return [
        f"{name}: {problem}"
        for name, schema in given.items()
        for problem in _problems_of_schema(schema, tried.location)
    ]


def _problems_of_schema(schema: Any, location: ModuleLocation) -> Iterator[str]:
    if isinstance(schema, Exception):
        yield f"reading it raises {error_text(schema, location)}."
        return
    if not isinstance(schema, dict):
        yield f"it is {kind(schema)}, not a dictionary."
        return
    try:
        json.dumps(schema)
    except (TypeError, ValueError) as e:
        yield f"it cannot be written as JSON: {e}."
    if schema.get("type") != "object":
        yield f"its 'type' is {schema.get('type')!r}, not 'object'."
    properties = schema.get("properties", {})
    if not isinstance(properties, dict):
        yield f"its 'properties' are {kind(properties)}, not a dictionary."
        return
    yield from (
        f"its property '{name}' is {kind(about)}." for name, about in properties.items() if not _is_schema(about)
    )
    required = schema.get("required", [])
    if not isinstance(required, list):
        yield f"its 'required' is {kind(required)}, not a list."
        return
    yield from (
        f"it requires {name!r}, which is not among its properties." for name in required if name not in properties
    )


def _is_schema(about: Any) -> bool:
    return isinstance(about, dict | bool)


SCHEMA_RULES: tuple[ValidationRule[Tried], ...] = (has_schema, schema_is_an_object)
