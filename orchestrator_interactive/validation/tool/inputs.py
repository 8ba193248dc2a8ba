"""What tools are called with, and what came of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from orchestrator_interactive.kernel.contracts.models import ToolResult
from orchestrator_interactive.kernel.interop import to_local
from orchestrator_interactive.validation.runner import Returned, told
from orchestrator_interactive.validation.tool.input_generation import Unfit, fitting

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from orchestrator_interactive.kernel.loading.location import ModuleLocation
    from orchestrator_interactive.validation.runner import Ending

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
class ToolInput:
    """An input, what it is in words, and whether it is one that the tool ought to take."""

    words: str
    given: Mapping[str, Any]
    fits: bool = False


@dataclass(frozen=True, slots=True)
class Inputs:
    """What a tool is going to be called with. Where none of it fits, `lacking` says why."""

    all: tuple[ToolInput, ...]
    lacking: str = ""


@dataclass(frozen=True, slots=True)
class ToolTrial:
    """One call of a tool: what it was given, and what became of it."""

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
        """What the tool says that is wrong with the input; `None` where it fails in no orderly way, or succeeds."""
        result = self.result
        return result.get_serialized_output() if result is not None and not result.success else None

    def __str__(self) -> str:
        return f"{self.tool}: execute() with {self.input.words}"


@dataclass(frozen=True, slots=True)
class Tried:
    """The tools of a module, their schemas, and how they took being called; by tool, why nothing fitting was tried."""

    location: ModuleLocation
    tools: Mapping[str, Any]
    schemas: Mapping[str, Any]
    executions: tuple[ToolTrial, ...]
    lacking: Mapping[str, str]


def inputs(tool: Any, schema: Any, given: Mapping[str, Any] | None, location: ModuleLocation) -> Inputs:
    """What to call a tool with; `given` is the input that the caller of the validation knows to be right for it."""
    unfit = tuple(_unfit(schema))
    if given is not None:
        return Inputs((*unfit, ToolInput("the input that was given", given, fits=True)))
    try:
        made = _fitting(tool, schema)
    except Unfit as e:
        return Inputs(unfit, str(e))
    except Exception as e:  # noqa: BLE001 - a schema may say whatever it likes
        return Inputs(unfit, f"Its schema makes no sense: {told(e, location)}.")
    return Inputs((*unfit, *made))


def _unfit(schema: Any) -> Iterator[ToolInput]:
    yield ToolInput("{}", {})
    properties = schema.get("properties") if isinstance(schema, dict) else None
    if isinstance(properties, dict) and properties:
        wrong = {name: _wrong_value(about) for name, about in properties.items()}
        yield ToolInput("values of the wrong types", wrong)
    else:
        yield ToolInput("an input that it does not know", _NO_SCHEMA)


def _fitting(tool: Any, schema: Any) -> tuple[ToolInput, ...]:
    if getattr(tool, "side_effect_free", False) is not True:
        raise Unfit("The tool may have side effects.")
    if not isinstance(schema, dict):
        raise Unfit("It has no schema to make one from.")
    return tuple(ToolInput(words, given, fits=True) for words, given in fitting(schema))


def _wrong_value(about: Any) -> Any:
    wanted = about.get("type") if isinstance(about, dict) else None
    return _WRONG.get(wanted, {"not": ["what", "was", "meant"]}) if isinstance(wanted, str) else {"not": ["meant"]}
