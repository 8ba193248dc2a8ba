"""What tools are called with, and what came of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from orchestrator_interactive.kernel.interop import own
from orchestrator_interactive.kernel.models import ToolResult
from orchestrator_interactive.kernel.validation.running import Returned

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from orchestrator_interactive.kernel.location import ModuleLocation
    from orchestrator_interactive.kernel.validation.running import Ending

# By the type that a schema asks for, what is none of it. A number where JSON has one passes for a text in many tools.
_WRONG: Mapping[str, Any] = {
    "string": ["not", "a", "text"],
    "integer": "not a number",
    "number": "not a number",
    "boolean": {"not": "a boolean"},
    "array": "not a list",
    "object": "not an object",
}
_NO_SCHEMA: Mapping[str, Any] = {"unexpected": ["something", {"nested": None}]}


@dataclass(frozen=True, slots=True)
class Execution:
    """One call of a tool: what it was given, what that is in words, and what became of it."""

    tool: str
    given: dict[str, Any]
    words: str
    ended: Ending

    @property
    def result(self) -> ToolResult | None:
        result = own(self.ended.value) if isinstance(self.ended, Returned) else None
        return result if isinstance(result, ToolResult) else None

    def __str__(self) -> str:
        return f"{self.tool}: execute() with {self.words}"


@dataclass(frozen=True, slots=True)
class Tried:
    """The tools of a module, their schemas, and how they took being called."""

    location: ModuleLocation
    tools: Mapping[str, Any]
    schemas: Mapping[str, Any]
    executions: tuple[Execution, ...]


def inputs(schema: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    yield "{}", {}
    properties = schema.get("properties") if isinstance(schema, dict) else None
    if isinstance(properties, dict) and properties:
        yield "values of the wrong types", {name: _wrong_value(about) for name, about in properties.items()}
    else:
        yield "an input that it does not know", dict(_NO_SCHEMA)


def _wrong_value(about: Any) -> Any:
    wanted = about.get("type") if isinstance(about, dict) else None
    return _WRONG.get(wanted, {"not": ["what", "was", "meant"]}) if isinstance(wanted, str) else {"not": ["meant"]}
