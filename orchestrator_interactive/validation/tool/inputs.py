"""Inputs for tool calls, and the outcomes of the calls."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from orchestrator_interactive.kernel.contracts.models import ToolResult
from orchestrator_interactive.kernel.interop import to_local
from orchestrator_interactive.validation.runner import Returned, error_text
from orchestrator_interactive.validation.tool.input_generation import Unfit, fitting

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from orchestrator_interactive.kernel.loading.location import ModuleLocation
    from orchestrator_interactive.validation.runner import Ending

# A wrong value for each schema type. Not a number for "string": many tools accept numbers as text.
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
class ToolInput:
    """An input, its description, and whether the tool should accept it."""

    words: str
    given: Mapping[str, Any]
    fits: bool = False


@dataclass(frozen=True, slots=True)
class Inputs:
    """Inputs for the calls of a tool. If none is valid, `lacking` is the reason."""

    all: tuple[ToolInput, ...]
    lacking: str = ""


@dataclass(frozen=True, slots=True)
class ToolTrial:
    """One call of a tool: its input and outcome."""

    tool: str
    input: ToolInput
    ended: Ending

    @property
    def given(self) -> Mapping[str, Any]:
        return self.input.given

    @property
    def result(self) -> ToolResult | None:
        result = to_local(self.ended.value) if isinstance(self.ended, Returned) else None
        return result if isinstance(result, ToolResult) else None

    @property
    def refusal(self) -> str | None:
        """Output of a failed result; `None` if the call succeeded or returned no result."""
        result = self.result
        return result.get_serialized_output() if result is not None and not result.success else None

    def __str__(self) -> str:
        return f"{self.tool}: execute() with {self.input.words}"


@dataclass(frozen=True, slots=True)
class Tried:
    """Tools of a module, their schemas and calls; `lacking` is the reason, by tool, if no valid input was tried."""

    location: ModuleLocation
    tools: Mapping[str, Any]
    schemas: Mapping[str, Any]
    executions: tuple[ToolTrial, ...]
    lacking: Mapping[str, str]


def inputs(tool: Any, schema: Any, given: Mapping[str, Any] | None, location: ModuleLocation) -> Inputs:
    """Return the inputs for a tool; `given` is a valid input from the caller of the validation."""
    unfit = tuple(_unfit(schema))
    if given is not None:
        return Inputs((*unfit, ToolInput("the input that was given", given, fits=True)))
    try:
        made = _fitting(tool, schema)
    except Unfit as e:
        return Inputs(unfit, str(e))
    except Exception as e:  # noqa: BLE001 - a schema may contain anything
        return Inputs(unfit, f"Its schema is invalid: {error_text(e, location)}.")
    return Inputs((*unfit, *made))


def _unfit(schema: Any) -> Iterator[ToolInput]:
    yield ToolInput("{}", {})
    properties = schema.get("properties") if isinstance(schema, dict) else None
    if isinstance(properties, dict) and properties:
        wrong = {name: _wrong_value(about) for name, about in properties.items()}
        yield ToolInput("values of the wrong types", wrong)
    else:
        yield ToolInput("an input with unknown properties", _NO_SCHEMA)


def _fitting(tool: Any, schema: Any) -> tuple[ToolInput, ...]:
    if getattr(tool, "side_effect_free", False) is not True:
        raise Unfit("The tool may have side effects.")
    if not isinstance(schema, dict):
        raise Unfit("It has no schema to generate an input from.")
    return tuple(ToolInput(words, given, fits=True) for words, given in fitting(schema))


def _wrong_value(about: Any) -> Any:
    wanted = about.get("type") if isinstance(about, dict) else None
    return _WRONG.get(wanted, {"not": ["the", "expected", "value"]}) if isinstance(wanted, str) else {"not": ["meant"]}
