"""Scenarios for tools and hooks: call them with valid and invalid input, then check their results."""

from __future__ import annotations

import copy
import json
import math
import re
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from jsonschema import Draft202012Validator
from referencing.jsonschema import DRAFT202012, EMPTY_REGISTRY

from orchestrator_interactive.kernel.contracts import events
from orchestrator_interactive.kernel.contracts.messages import ChatResponse, TextBlock, Usage
from orchestrator_interactive.kernel.contracts.models import HookResult, ToolResult
from orchestrator_interactive.kernel.interop import to_local
from orchestrator_interactive.testing import MockContextManager
from orchestrator_interactive.validation.runner import NotCheckedError, ToleratedError, called, form_problems, kind

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from orchestrator_interactive.validation.runner import (
        CallResult,
        Mounted,
        Registration,
        Sandboxes,
        Validator,
        Verdict,
    )

_TOOL_NAME = re.compile(r"(?=.{1,64}$)[a-z][a-z0-9]*(_[a-z0-9]+)*")  # the providers' APIs allow 64 characters
_MOST_SINGLE_INPUTS = 20
_DEEPEST_SCHEMA = 12

# Values for generated inputs: each schema gets the first one that it allows.
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
_PLAIN_VALUES = ("text", 1, False, None, 0, 0.5, 10, 100, "1", "a", "A1", "abc", "ABC", "#", *_FORMATS.values())
# Distance of the first allowed whole number from each bound.
_BOUNDS = {"minimum": 0, "exclusiveMinimum": 1, "maximum": 0, "exclusiveMaximum": -1}
# A wrong value for each type of a schema.
_WRONG: Mapping[Any, Any] = {
    "string": ["not", "a", "text"],
    "integer": "not a number",
    "number": "not a number",
    "boolean": {"not": "a boolean"},
    "array": "not a list",
    "object": "not an object",
}


@dataclass(frozen=True, slots=True)
class Trial:
    """A call of a tool or handler, as a phrase, and how it ended. `valid`: whether its input was valid."""

    call: str
    valid: bool
    given: Mapping[str, Any]
    ending: CallResult

    @property
    def result(self) -> Any:
        return to_local(self.ending.value)


def _check_endings(validator: Validator, trials: list[Trial], result: type, in_time: str) -> None:
    """Check the rules for tools and handlers alike: they do not raise, end in time, and return a result."""
    ended = [(trial, f"{trial.call} {trial.ending.problem}.") for trial in trials if trial.ending.problem]
    validator.check("does_not_raise", [problem for trial, problem in ended if trial.ending.error])
    validator.check(in_time, [problem for trial, problem in ended if trial.ending.hung])
    returned = [trial for trial in trials if not trial.ending.problem and not isinstance(trial.result, result)]
    validator.check("returns_a_result", [f"{each.call} returns {kind(each.ending.value)}." for each in returned])


async def check_tool(validator: Validator, sandboxes: Sandboxes, given: Mapping[str, Any] | None) -> None:
    """Call every tool with invalid input and, if allowed, with valid input; then check the rules.

    `given` is a valid input; for several tools, a dict by tool name.
    """
    async with sandboxes.open() as sandbox:
        mounted = sandbox.all("tool")
        by_name = given if given is not None and len(mounted) > 1 else {each.name: given for each in mounted}
        tools = [TriedTool(each, by_name.get(each.name)) for each in mounted]
        for tool in tools:
            await tool.run(validator)
    trials = [trial for tool in tools for trial in tool.trials]
    results = [(trial.call, trial.result) for trial in trials if isinstance(trial.result, ToolResult)]
    validator.check("executes_valid_input", [each for tool in tools if (each := tool.refusal(several=len(tools) > 1))])
    names = [each.instance.name for each in mounted if not _TOOL_NAME.fullmatch(each.instance.name)]
    validator.check("name_in_snake_case", [f"A tool is called '{name}'." for name in names])
    without = [tool for tool in tools if tool.schema is None]
    validator.check("has_schema", [f"{tool.name} has neither get_schema() nor input_schema." for tool in without])
    no_schema = [NotCheckedError("No tool has a schema.", "Give them one.")] if len(without) == len(tools) else []
    wrong = [f"{tool.name}: {problem}." for tool in tools for problem in tool.schema_problems(validator)]
    validator.check("schema_is_an_object", [*no_schema, *wrong])
    _check_endings(validator, trials, ToolResult, "ends_in_time")
    validator.check("missing_input_fails", _accepted_without_required(tools))
    failed = [(call, result) for call, result in results if not result.success]
    silent = [call for call, result in failed if not (result.error or {}).get("message") and not result.output]
    reason = "fails, and neither its error['message'] nor its output says why"
    validator.check("failures_have_message", [f"{call} {reason}." for call in silent])
    unsendable: list[Verdict] = [
        f"{call} gives an output that cannot be written as JSON: {problem}."
        for call, result in results
        if (problem := _not_json(result.output))
    ]
    if len(failed) == len(results):
        unsendable.append(NotCheckedError("No call succeeded.", "Pass a valid input with --input."))
    validator.check("output_is_plain", unsendable)


class TriedTool:
    """A tool, its schema and its trials. `schema` is `None` if it has none, the error if reading it raises."""

    def __init__(self, mounted: Mounted, given: Any) -> None:
        self.name, self._tool, self._given = mounted.name, mounted.instance, given
        self.trials: list[Trial] = []
        self._untried: NotCheckedError | None = None
        try:
            has_method = callable(getattr(self._tool, "get_schema", None))
            self.schema: Any = self._tool.get_schema() if has_method else getattr(self._tool, "input_schema", None)
        except Exception as e:  # noqa: BLE001 - third-party code: reported, not handled
            self.schema = e
        self._dict: dict[str, Any] = self.schema if isinstance(self.schema, dict) else {}
        required = self._dict.get("required")
        self.required = [name for name in required if isinstance(name, str)] if isinstance(required, list) else []

    async def run(self, validator: Validator) -> None:
        inputs = [(words, each, False) for words, each in self._invalid_inputs()]
        try:
            inputs += [(words, each, True) for words, each in self._valid_inputs()]
        except NotCheckedError as e:
            self._untried = e
        for words, each, valid in inputs:
            call = f"{self.name}: execute() with {words}"
            ending = await validator.perform(call, called(partial(self._tool.execute, copy.deepcopy(dict(each)))))
            self.trials.append(Trial(call, valid, each, ending))

    def _invalid_inputs(self) -> Iterator[tuple[str, Mapping[str, Any]]]:
        """Yield invalid inputs with a description: nothing, wrong types, and numbers."""
        yield "{}", {}
        properties = self._dict.get("properties")
        if not isinstance(properties, dict) or not properties:
            yield "an input with unknown properties", {"unexpected": ["something", {"nested": None}]}
            return
        types = {name: about.get("type") if isinstance(about, dict) else None for name, about in properties.items()}
        wrong = {name: _WRONG.get(str(each), {"not": ["meant"]}) for name, each in types.items()}
        yield "values of the wrong types", wrong
        others = [name for name, about in properties.items() if not self._allows_numbers(about)]
        if len(others) > 1:
            yield "numbers only", dict.fromkeys(others, 5)
        for name in others[:_MOST_SINGLE_INPUTS]:
            yield json.dumps({name: 5}), {name: 5}

    def _allows_numbers(self, schema: Any) -> bool:
        try:
            return bool(Draft202012Validator(self.schema).evolve(schema=schema).is_valid(5))
        except Exception:  # noqa: BLE001 - an invalid schema: another rule reports it
            return True

    def _valid_inputs(self) -> Iterator[tuple[str, Mapping[str, Any]]]:
        """Yield the given input, else generated ones: the required properties only, and a value for every property.

        Raises:
            NotCheckedError: the tool may have side effects, or no input can be generated.
        """
        if isinstance(self._given, dict):
            yield "the input that was given", self._given
            return
        if getattr(self._tool, "side_effect_free", False) is not True:
            raise NotCheckedError("The tool may have side effects.")
        if not isinstance(self.schema, dict):
            raise NotCheckedError("It has no schema to generate an input from.")
        try:
            least = InputGenerator(self.schema, every_property=False).generate(self.schema)
            most = InputGenerator(self.schema, every_property=True).generate(self.schema)
        except NotCheckedError:
            raise
        except Exception as e:
            raise NotCheckedError(f"Its schema is invalid: {type(e).__name__}: {e}.") from e
        if not isinstance(least, dict):
            raise NotCheckedError("Its schema does not ask for an object.")
        yield "the required properties only", least
        if most != least:
            yield "a value for every property", most

    def refusal(self, *, several: bool) -> NotCheckedError | None:
        """Return why no valid input was executed. That is no violation: a tool may have reasons to refuse an input."""
        if self._untried:
            return NotCheckedError(f"{self.name}: {self._untried}" if several else str(self._untried))
        valid = [trial for trial in self.trials if trial.valid]
        refused = [each for each in valid if isinstance(each.result, ToolResult) and not each.result.success]
        if not valid or len(refused) < len(valid):
            return None
        return NotCheckedError(f"{refused[-1].call} fails: {refused[-1].result.get_serialized_output()}")

    def schema_problems(self, validator: Validator) -> Iterator[str]:
        schema = self.schema
        if isinstance(schema, Exception):
            yield f"reading it raises {validator.error_text(schema)}"
        elif schema is not None and not isinstance(schema, dict):
            yield f"it is {kind(schema)}, not a dictionary"
        elif problem := _not_json(schema):
            yield f"it cannot be written as JSON: {problem}"
        elif schema is not None:
            invalid = list(Draft202012Validator(Draft202012Validator.META_SCHEMA).iter_errors(schema))
            for error in invalid:
                yield f"its {error.json_path.removeprefix('$.')} is wrong: {error.message}"
            if not invalid and schema.get("type") != "object":
                yield f"its 'type' is {schema.get('type')!r}, not 'object'"
            for name in () if invalid else self.required:
                if name not in schema.get("properties", {}):
                    yield f"it requires {name!r}, which is not among its properties"


def _accepted_without_required(tools: list[TriedTool]) -> Iterator[Verdict]:
    empty = [(tool, trial) for tool in tools for trial in tool.trials if tool.required and not trial.given]
    returned = [(tool, trial) for tool, trial in empty if isinstance(trial.result, ToolResult)]
    if not returned:
        yield NotCheckedError("No tool requires anything by its schema.", "List mandatory properties in 'required'.")
    for tool, trial in returned:
        if trial.result.success:
            yield f"{trial.call} succeeds, though its schema requires {', '.join(tool.required)}."


def _not_json(value: Any) -> str:
    try:
        json.dumps(value)
    except (TypeError, ValueError) as e:
        return str(e)
    return ""


class InputGenerator:
    """Generate a valid value for a JSON schema: the first one that it allows, of its own values and plain ones."""

    def __init__(self, root: Mapping[str, Any], *, every_property: bool) -> None:
        self._validator = Draft202012Validator(root)
        self._resolver = EMPTY_REGISTRY.with_resource("", DRAFT202012.create_resource(root)).resolver()
        self._every_property = every_property

    def generate(self, schema: Any, depth: int = 0) -> Any:
        """Return a value.

        Raises:
            NotCheckedError: none of the values is valid.
        """
        check = self._validator.evolve(schema=schema)
        for value in self._values(self._merged(schema, depth), depth + 1):
            if check.is_valid(value):
                return value
        raise NotCheckedError(f"No input could be generated for the schema {json.dumps(schema)}.")

    def _values(self, about: dict[str, Any], depth: int) -> Iterator[Any]:
        default = about.get("default")
        yield from [about["const"]] if "const" in about else []
        yield from [*about.get("examples", ()), *([] if default is None else [default]), *about.get("enum", ())]
        rest = {name: value for name, value in about.items() if name not in ("anyOf", "oneOf")}
        for choice in (*about.get("anyOf", ()), *about.get("oneOf", ())):
            yield self.generate({"allOf": [rest, choice]}, depth)
        named = about.get("type")
        types = named if isinstance(named, list) else [named]
        if "object" in types or (named is None and "properties" in about):
            properties = about.get("properties", {})
            names = dict.fromkeys([*about.get("required", ()), *(properties if self._every_property else ())])
            yield {name: self.generate(properties.get(name, True), depth) for name in names}
        if "array" in types or (named is None and "items" in about):
            count = min(about.get("minItems", int(self._every_property)), about.get("maxItems", math.inf))
            yield [self.generate(about.get("items", True), depth) for _ in range(count)]
        text = _FORMATS.get(str(about.get("format")), "text")
        yield text.ljust(about.get("minLength", 0), "x")[: about.get("maxLength")]
        step = about.get("multipleOf", 1)
        bounds = [about[name] + apart for name, apart in _BOUNDS.items() if name in about]
        for bound in (1, *bounds, sum(bounds) / 2):
            yield from (math.ceil(bound / step) * step, math.floor(bound / step) * step, bound)
        yield from _PLAIN_VALUES

    def _merged(self, schema: Any, depth: int) -> dict[str, Any]:
        """Return a schema with those of its `$ref` and `allOf`."""
        if depth > _DEEPEST_SCHEMA:
            raise NotCheckedError("Its schema is recursive without an end.")
        if not isinstance(schema, dict):
            return {}
        referred = [self._resolver.lookup(schema["$ref"]).contents] if "$ref" in schema else []
        others = [*schema.get("allOf", ()), *referred]
        own = {name: value for name, value in schema.items() if name not in ("$ref", "allOf")}
        merged: dict[str, Any] = {}
        for part in (*(self._merged(other, depth + 1) for other in others), own):
            properties = {**merged.get("properties", {}), **part.get("properties", {})}
            required = [*merged.get("required", ()), *part.get("required", ())]
            merged |= part | ({"properties": properties} if properties else {})
            merged |= {"required": required} if required else {}
        return merged


async def check_hook(validator: Validator, sandboxes: Sandboxes) -> None:
    """Call every handler with valid and invalid data of its event, then check the rules."""
    async with sandboxes.open() as sandbox:
        if sandbox.get("context") is None:
            sandbox.mount("context", MockContextManager())
        handlers = sandbox.recorded.registrations[:]
        trials = [trial for handler in handlers for trial in await _tried(validator, handler)]
        forms = [form_problems(f"{each.name}: it", each.handler, "event, data") for each in handlers]
        validator.check("handlers_are_async", [problem for problems in forms for problem in problems])
        _check_endings(validator, trials, HookResult, "answers_in_time")
        results = [(trial.call, trial.result) for trial in trials if isinstance(trial.result, HookResult)]
        validator.check("results_are_complete", [each for call, result in results for each in _doubts(call, result)])
        ended = await validator.perform("its clean-up", _left_handlers(sandboxes))
        validator.check("cleans_up", [*ended.problems, *(ended.value or ())])
        outside = [each for each in handlers if not 10 <= each.priority <= 90]
        listens = "{0.name} listens to {0.event}".format
        validator.check("has_a_usual_priority", [f"{listens(e)} with priority {e.priority}." for e in outside])
        # The loop, which is not mounted here, contributes the last one.
        known = {*events.ALL_EVENTS, *await sandbox.contributed_events(), "injection:applied"}
        unknown = "which is no event of the kernel and not contributed"
        others = [each for each in handlers if each.event not in known]
        validator.check("knows_its_events", [f"{listens(each)}, {unknown}." for each in others])


async def _left_handlers(sandboxes: Sandboxes) -> list[str]:
    async with sandboxes.open() as sandbox:
        if not sandbox.cleanups():
            return ["mount() returns no clean-up, and registers none."]
        await sandbox.clean_up()
        left = {event: names for event, names in sandbox.recorded.list_handlers().items() if names}
    return [f"After the clean-up {', '.join(names)} still listens to {event}." for event, names in left.items()]


async def _tried(validator: Validator, registration: Registration) -> list[Trial]:
    event, trials = registration.event, list[Trial]()
    for words, data in _payloads(event):
        call = f"{registration.name} at {event}, given {words},"
        ending = await validator.perform(call.rstrip(","), called(partial(registration.handler, event, data)))
        trials.append(Trial(call, valid=not trials, given=data, ending=ending))
        if ending.hung:
            break  # further calls would probably hang too
    return trials


def _doubts(call: str, result: HookResult) -> Iterator[Verdict]:
    """Yield a violation if the result lacks the field of its action, or a doubt if it is probably unintended."""
    options = result.approval_options
    match result.action:
        case "modify" if result.data is None:
            yield f"{call} wants to modify and gives no data."
        case "inject_context" if not result.injections():
            yield f"{call} wants to inject_context and gives no context_injection."
        case "ask_user" if not result.approval_prompt:
            yield f"{call} wants to ask_user and gives no approval_prompt."
        case "ask_user" if options and not any(each.lower().startswith("allow") for each in options):
            all_deny = "none of which begins with 'Allow': every choice denies"
            yield ToleratedError(f"{call} asks with the options {options}, {all_deny}.")
        case "deny" if not result.reason:
            yield ToleratedError(f"{call} denies and gives no reason, which the model would read.")


def _payloads(event: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield data of an event with a description: first the contract's, then invalid ones."""
    payload = {"session_id": "session-1", "parent_id": None, **_DATA.get(event, {})}
    yield "the contract's data", copy.deepcopy(payload)
    yield "{}", {}
    yield "nothing but None", dict.fromkeys(payload)
    yield "values of the wrong types", {name: [value] for name, value in payload.items()}
    yield "texts for everything", dict.fromkeys(payload, "text")
    objects = (ToolResult, ChatResponse, Usage)
    if any(isinstance(value, objects) for value in payload.values()):  # amplifier_core sends every event through JSON
        plain = {name: value.model_dump() if isinstance(value, objects) else value for name, value in payload.items()}
        yield "results as dictionaries", plain


_CONFIG = {"session": {"orchestrator": "loop", "context": "context"}}
_USAGE = Usage(input_tokens=3, output_tokens=2, total_tokens=5)
_FAILED = ToolResult(success=False, error={"message": "It failed.", "type": "OSError"})
_CALL = {"tool_name": "write_file", "tool_input": {"path": "notes.md", "text": "Hello"}, "tool_call_id": "call_1"}
_MODEL_CALL = {"provider": "mock", "messages": [{"role": "user", "content": "Hello"}], "model": "mock-1"}
_RESPONSE = ChatResponse(content=[TextBlock(text="Hello")], usage=_USAGE)
# Data of the canonical events in the kernel's types, without the session ids.
_DATA: Mapping[str, dict[str, Any]] = {
    events.SESSION_START: {"config": _CONFIG},
    events.SESSION_RESUME: {"config": _CONFIG},
    events.SESSION_FORK: {"config": {"session": {}}, "parent": "session-0"},
    events.SESSION_END: {"status": "completed", "stats": {"prompts": 1, "duration_s": 1.5}},
    events.PROMPT_SUBMIT: {"prompt": "Hello"},
    events.PROMPT_COMPLETE: {"prompt": "Hello", "response": "Hello"},
    events.EXECUTION_START: {"prompt": "Hello"},
    events.EXECUTION_END: {"response": "Hello", "status": "completed"},
    events.ORCHESTRATOR_COMPLETE: {"orchestrator": "loop", "turn_count": 1, "status": "success"},
    events.PROVIDER_REQUEST: _MODEL_CALL,
    events.PROVIDER_RESPONSE: {"provider": "mock", "response": _RESPONSE, "usage": _USAGE},
    events.PROVIDER_ERROR: {"provider": "mock", "error": {"type": "OSError", "msg": "The network is down."}},
    events.TOOL_PRE: _CALL,
    events.TOOL_POST: {**_CALL, "tool_result": ToolResult(output="Done"), "error": None},
    events.TOOL_ERROR: {**_CALL, "tool_result": _FAILED, "error": _FAILED.error},
    events.CONTEXT_PRE_COMPACT: {"message_count": 90, "token_count": 90_000},
    events.CONTEXT_POST_COMPACT: {"message_count": 9, "token_count": 9_000},
    events.CANCEL_REQUESTED: {"immediate": False},
    events.CANCEL_COMPLETED: {"was_immediate": False},
    events.USER_NOTIFICATION: {"message": "Hello", "level": "info"},
}
