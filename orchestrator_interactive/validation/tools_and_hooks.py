"""Scenarios for tools and hooks: call them with valid and invalid input, then check their results."""

from __future__ import annotations

import copy
import inspect
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
from orchestrator_interactive.validation.runner import NotCheckedError, ToleratedError, called, kind, summarize

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from orchestrator_interactive.validation.runner import CallResult, Validator
    from orchestrator_interactive.validation.sandbox import Registration, Sandboxes

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
# A wrong value for each type of a schema.
_WRONG: Mapping[str, Any] = {
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

    of: str
    call: str
    valid: bool
    given: Mapping[str, Any]
    ending: CallResult

    @property
    def result(self) -> Any:
        return to_local(self.ending.value)


def _errors(trials: list[Trial]) -> list[str]:
    return [f"{trial.call} {trial.ending.problem}." for trial in trials if trial.ending.error]


def _hung(trials: list[Trial]) -> list[str]:
    return [f"{trial.call} {trial.ending.problem}." for trial in trials if trial.ending.hung]


def _other_results(trials: list[Trial], expected: type) -> list[str]:
    return [
        f"{trial.call} returns {kind(trial.ending.value)}."
        for trial in trials
        if not trial.ending.problem and not isinstance(trial.result, expected)
    ]


async def check_tool(validator: Validator, sandboxes: Sandboxes, given: Mapping[str, Any] | None) -> None:
    """Call every tool with invalid input and, if allowed, with valid input; then check the rules.

    `given` is a valid input; for several tools, a dict by tool name.
    """
    async with sandboxes.open() as sandbox:
        tools = {mounted.name: mounted.instance for mounted in sandbox.all("tool")}
        schemas = {name: _schema_of(tool) for name, tool in tools.items()}
        trials, untried = [], {}
        for name, tool in tools.items():
            valid_input = given if given is None or len(tools) == 1 else given.get(name)
            wanted = [(words, each, False) for words, each in _invalid_inputs(schemas[name])]
            try:
                wanted += [(words, each, True) for words, each in _valid_inputs(tool, schemas[name], valid_input)]
            except NotCheckedError as e:
                untried[name] = str(e)
            for words, each, valid in wanted:
                call = f"{name}: execute() with {words}"
                ending = await validator.perform(call, called(partial(tool.execute, copy.deepcopy(dict(each)))))
                trials.append(Trial(name, call, valid, each, ending))
        form = "by name, {name: {…}}" if len(tools) > 1 else "as YAML"
        validator.check("executes_valid_input", _refused_inputs(trials, untried, len(tools)), form=form)
        names = [tool.name for tool in tools.values() if not _TOOL_NAME.fullmatch(tool.name)]
        validator.check("name_in_snake_case", [f"A tool is called '{name}'." for name in names])
        missing = [name for name, schema in schemas.items() if schema is None]
        validator.check("has_schema", [f"{name} has neither get_schema() nor input_schema." for name in missing])
        validator.check("schema_is_an_object", _schemas_problems(schemas, validator))
        validator.check("does_not_raise", _errors(trials))
        validator.check("ends_in_time", _hung(trials))
        validator.check("returns_a_result", _other_results(trials, ToolResult))
        required = {name: _required(schema) for name, schema in schemas.items()}
        validator.check("missing_input_fails", _accepted_without_required(trials, required))
        failed = [trial for trial in trials if _is_result(trial) and not trial.result.success]
        silent = [t.call for t in failed if not (t.result.error or {}).get("message") and not t.result.output]
        reason = "fails, and neither its error['message'] nor its output says why"
        validator.check("failures_have_message", [f"{call} {reason}." for call in silent])
        validator.check("output_is_plain", _unsendable_outputs(trials))


def _schema_of(tool: Any) -> Any:
    """Return the input schema of a tool; `None` if it has none, the error if reading it raises."""
    try:
        return tool.get_schema() if callable(getattr(tool, "get_schema", None)) else getattr(tool, "input_schema", None)
    except Exception as e:  # noqa: BLE001 - third-party code: reported, not handled
        return e


def _required(schema: Any) -> list[str]:
    required = schema.get("required") if isinstance(schema, dict) else None
    return [name for name in required if isinstance(name, str)] if isinstance(required, list) else []


def _invalid_inputs(schema: Any) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield invalid inputs with a description: nothing, wrong types, and numbers."""
    yield "{}", {}
    properties = schema.get("properties") if isinstance(schema, dict) else None
    if not isinstance(properties, dict) or not properties:
        yield "an input with unknown properties", {"unexpected": ["something", {"nested": None}]}
        return
    types = {name: about.get("type") if isinstance(about, dict) else None for name, about in properties.items()}
    known = {name: each if isinstance(each, str) else "" for name, each in types.items()}
    yield "values of the wrong types", {name: _WRONG.get(each, {"not": ["meant"]}) for name, each in known.items()}
    others = [name for name, about in properties.items() if not _is_valid(5, about, schema)]
    if len(others) > 1:
        yield "numbers only", dict.fromkeys(others, 5)
    for name in others[:_MOST_SINGLE_INPUTS]:
        yield json.dumps({name: 5}), {name: 5}


def _is_valid(value: Any, schema: Any, root: Any) -> bool:
    try:
        return bool(Draft202012Validator(root).evolve(schema=schema).is_valid(value))
    except Exception:  # noqa: BLE001 - an invalid schema: another rule reports it
        return True


def _valid_inputs(tool: Any, schema: Any, given: Any) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the given input, else generated ones: the required properties only, and a value for every property.

    Raises:
        NotCheckedError: the tool may have side effects, or no input can be generated.
    """
    if isinstance(given, dict):
        yield "the input that was given", given
        return
    if getattr(tool, "side_effect_free", False) is not True:
        raise NotCheckedError("The tool may have side effects.")
    if not isinstance(schema, dict):
        raise NotCheckedError("It has no schema to generate an input from.")
    try:
        least = InputGenerator(schema, every_property=False).generate(schema)
        if not isinstance(least, dict):
            raise NotCheckedError("Its schema does not ask for an object.")  # noqa: TRY301 - as for other schemas
        yield "the required properties only", least
        most = InputGenerator(schema, every_property=True).generate(schema)
    except NotCheckedError:
        raise
    except Exception as e:
        raise NotCheckedError(f"Its schema is invalid: {type(e).__name__}: {e}.") from e
    if most != least:
        yield "a value for every property", most


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
        if depth > _DEEPEST_SCHEMA:
            raise NotCheckedError("Its schema is recursive without an end.")
        check = self._validator.evolve(schema=schema)
        for value in self._values(schema, depth):
            if check.is_valid(value):
                return value
        raise NotCheckedError(f"No input could be generated for the schema {json.dumps(schema)}.")

    def _values(self, schema: Any, depth: int) -> Iterator[Any]:
        about = self._merged(schema, depth)
        yield from [about[name] for name in ("const",) if name in about]
        yield from about.get("examples", ())
        yield from [about["default"]] if about.get("default") is not None else []  # null marks optional properties
        yield from about.get("enum", ())
        rest = {name: value for name, value in about.items() if name not in ("anyOf", "oneOf")}
        for choice in (*about.get("anyOf", ()), *about.get("oneOf", ())):
            yield self.generate({"allOf": [rest, choice]}, depth + 1)
        if "object" in _listed(about.get("type", "object" if "properties" in about else "")):
            properties = about.get("properties", {})
            names = dict.fromkeys([*about.get("required", ()), *(properties if self._every_property else ())])
            yield {name: self.generate(properties.get(name, True), depth + 1) for name in names}
        if "array" in _listed(about.get("type", "array" if "items" in about else "")):
            count = min(about.get("minItems", int(self._every_property)), about.get("maxItems", math.inf))
            yield [self.generate(about.get("items", True), depth + 1) for _ in range(count)]
        text = _FORMATS.get(str(about.get("format")), "text")
        yield text.ljust(about.get("minLength", 0), "x")[: about.get("maxLength")]
        yield from _numbers(about)
        yield from _PLAIN_VALUES

    def _merged(self, schema: Any, depth: int) -> dict[str, Any]:
        """Return a schema with those of its `$ref` and `allOf`."""
        if not isinstance(schema, dict):
            return {}
        if depth > _DEEPEST_SCHEMA:
            raise NotCheckedError("Its schema is recursive without an end.")
        parts = [schema, *schema.get("allOf", ())]
        parts += [self._resolver.lookup(schema["$ref"]).contents] if "$ref" in schema else []
        others = [self._merged(part, depth + 1) for part in parts[1:]]
        merged: dict[str, Any] = {}
        for part in [*others, {name: value for name, value in schema.items() if name not in ("$ref", "allOf")}]:
            properties = {**merged.get("properties", {}), **part.get("properties", {})}
            required = [*merged.get("required", ()), *part.get("required", ())]
            merged |= part | ({"properties": properties} if properties else {})
            merged |= {"required": required} if required else {}
        return merged


def _listed(types: Any) -> list[Any]:
    return types if isinstance(types, list) else [types]


def _numbers(about: Mapping[str, Any]) -> Iterator[float]:
    step = about.get("multipleOf", 1)
    bounds = [about[name] + apart for name, apart in _BOUNDS if name in about]
    for bound in (1, *bounds, sum(bounds) / 2):
        yield from (math.ceil(bound / step) * step, math.floor(bound / step) * step, bound)


_BOUNDS = (("minimum", 0), ("exclusiveMinimum", 1), ("maximum", 0), ("exclusiveMaximum", -1))


def _refused_inputs(trials: list[Trial], untried: Mapping[str, str], tools: int) -> Iterator[str]:
    """Raise if no valid input was executed. That is no violation: a tool may have reasons to refuse an input."""
    reasons = [f"{name}: {why}" if tools > 1 else why for name, why in untried.items()]
    for name in dict.fromkeys(trial.of for trial in trials):
        valid = [trial for trial in trials if trial.of == name and trial.valid]
        refused = [trial for trial in valid if isinstance(trial.result, ToolResult) and not trial.result.success]
        if valid and len(refused) == len(valid):
            reasons.append(f"{refused[-1].call} fails: {refused[-1].result.get_serialized_output()}")
    if reasons:
        raise NotCheckedError(summarize(reasons))
    yield from ()


def _schema_problems(schema: Any, validator: Validator) -> Iterator[str]:
    if isinstance(schema, Exception):
        yield f"reading it raises {validator.error_text(schema)}"
    elif not isinstance(schema, dict):
        yield f"it is {kind(schema)}, not a dictionary"
    elif problem := _not_json(schema):
        yield f"it cannot be written as JSON: {problem}"
    elif invalid := list(Draft202012Validator(Draft202012Validator.META_SCHEMA).iter_errors(schema)):
        yield from dict.fromkeys(
            f"its {error.json_path.removeprefix('$.')} is wrong: {error.message}" for error in invalid
        )
    elif schema.get("type") != "object":
        yield f"its 'type' is {schema.get('type')!r}, not 'object'"
    else:
        unknown = [name for name in _required(schema) if name not in schema.get("properties", {})]
        yield from (f"it requires {name!r}, which is not among its properties" for name in unknown)


def _schemas_problems(schemas: Mapping[str, Any], validator: Validator) -> Iterator[str]:
    given = {name: schema for name, schema in schemas.items() if schema is not None}
    if not given:
        raise NotCheckedError("No tool has a schema.", "Give them one.")
    for name, schema in given.items():
        yield from (f"{name}: {problem}." for problem in _schema_problems(schema, validator))


def _accepted_without_required(trials: list[Trial], required: Mapping[str, list[str]]) -> Iterator[str]:
    empty = [trial for trial in trials if not trial.given and required[trial.of] and _is_result(trial)]
    if not empty:
        raise NotCheckedError("No tool requires anything by its schema.", "List mandatory properties in 'required'.")
    for trial in empty:
        if trial.result.success:
            yield f"{trial.call} succeeds, though its schema requires {', '.join(required[trial.of])}."


def _unsendable_outputs(trials: list[Trial]) -> Iterator[str]:
    results = [(trial.call, trial.result) for trial in trials if _is_result(trial)]
    unsendable = [(call, problem) for call, result in results if (problem := _not_json(result.output))]
    if not unsendable and not any(result.success for _, result in results):
        raise NotCheckedError("No call succeeded.", "Pass a valid input with --input.")
    for call, problem in unsendable:
        yield f"{call} gives an output that cannot be written as JSON: {problem}."


def _is_result(trial: Trial) -> bool:
    return isinstance(trial.result, ToolResult)


def _not_json(value: Any) -> str:
    try:
        json.dumps(value)
    except (TypeError, ValueError) as e:
        return str(e)
    return ""


async def check_hook(validator: Validator, sandboxes: Sandboxes) -> None:
    """Call every handler with valid and invalid data of its event, then check the rules."""
    async with sandboxes.open() as sandbox:
        if sandbox.coordinator.get("context") is None:
            sandbox.coordinator.mount("context", MockContextManager())
        handlers = sandbox.hooks.registrations[:]
        trials = [trial for handler in handlers for trial in await _tried(validator, handler)]
        forms = [(each.name, problem) for each in handlers for problem in _form_problems(each.handler)]
        validator.check("handlers_are_async", [f"{name}: {problem}" for name, problem in forms])
        validator.check("accepts_contract_data", _errors([trial for trial in trials if trial.valid]))
        validator.check("does_not_raise", _errors([trial for trial in trials if not trial.valid]))
        validator.check("returns_a_result", _other_results(trials, HookResult))
        validator.check("results_are_complete", _incomplete_results(trials))
        validator.check("answers_in_time", _hung(trials))
        await validator.scenario("cleans_up", _left_handlers(sandboxes))
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
        for clean_up in sandbox.cleanups():
            await called(clean_up)
        left = {event: names for event, names in sandbox.hooks.list_handlers().items() if names}
    return [f"After the clean-up {', '.join(names)} still listens to {event}." for event, names in left.items()]


async def _tried(validator: Validator, registration: Registration) -> list[Trial]:
    event, trials = registration.event, list[Trial]()
    for number, (words, data) in enumerate(_payloads(event)):
        call = f"{registration.name} at {event}, given {words},"
        ending = await validator.perform(call.rstrip(","), called(partial(registration.handler, event, data)))
        trials.append(Trial(registration.name, call, number == 0, data, ending))
        if ending.hung:
            break  # further calls would probably hang too
    return trials


def _form_problems(handler: Any) -> Iterator[str]:
    if not any(map(inspect.iscoroutinefunction, (handler, type(handler).__call__))):
        yield "it is a plain function."
        return
    try:
        inspect.signature(handler).bind("event", "data")
    except TypeError as e:
        yield f"it cannot be called with (event, data): {e}."


def _incomplete_results(trials: list[Trial]) -> Iterator[str]:
    results = [(trial.call, trial.result) for trial in trials if isinstance(trial.result, HookResult)]
    missing = [(call, result.action, name) for call, result in results if (name := _missing_field(result))]
    doubts = [f"{call} {doubt}." for call, result in results if (doubt := _doubt(result))]
    if doubts and not missing:
        raise ToleratedError(summarize(doubts))
    yield from (f"{call} wants to {action} and gives no {name}." for call, action, name in missing)


def _missing_field(result: HookResult) -> str:
    match result.action:
        case "modify" if result.data is None:
            return "data"
        case "inject_context" if not result.injections():
            return "context_injection"
        case "ask_user" if not result.approval_prompt:
            return "approval_prompt"
    return ""


def _doubt(result: HookResult) -> str:
    """Return the problem of a result that is valid but probably unintended."""
    if result.action == "deny" and not result.reason:
        return "denies and gives no reason, which the model would read"
    options = result.approval_options
    if result.action == "ask_user" and options and not any(each.lower().startswith("allow") for each in options):
        return f"asks with the options {options}, none of which begins with 'Allow': every choice denies"
    return ""


def _payloads(event: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield data of an event with a description: first the contract's, then invalid ones."""
    payload = _contract_payload(event)
    yield "the contract's data", payload
    yield "{}", {}
    yield "nothing but None", dict.fromkeys(payload)
    yield "values of the wrong types", {name: [value] for name, value in payload.items()}
    yield "texts for everything", dict.fromkeys(payload, "text")
    objects = (ToolResult, ChatResponse, Usage)
    if any(isinstance(value, objects) for value in payload.values()):  # amplifier_core sends every event through JSON
        plain = {name: value.model_dump() if isinstance(value, objects) else value for name, value in payload.items()}
        yield "results as dictionaries", plain


def _contract_payload(event: str) -> dict[str, Any]:
    """Return the data of an event in the kernel's types; for a non-canonical event, the session ids only."""
    usage = Usage(input_tokens=3, output_tokens=2, total_tokens=5)
    response = ChatResponse(content=[TextBlock(text="Hello")], usage=usage)
    failed = ToolResult(success=False, error={"message": "It failed.", "type": "OSError"})
    call = {"tool_name": "write_file", "tool_input": {"path": "notes.md", "text": "Hello"}, "tool_call_id": "call_1"}
    config = {"session": {"orchestrator": "loop", "context": "context"}}
    messages = [{"role": "user", "content": "Hello"}]
    known: dict[str, dict[str, Any]] = {
        events.SESSION_START: {"config": config},
        events.SESSION_RESUME: {"config": config},
        events.SESSION_FORK: {"config": {"session": {}}, "parent": "session-0"},
        events.SESSION_END: {"status": "completed", "stats": {"prompts": 1, "duration_s": 1.5}},
        events.PROMPT_SUBMIT: {"prompt": "Hello"},
        events.PROMPT_COMPLETE: {"prompt": "Hello", "response": "Hello"},
        events.EXECUTION_START: {"prompt": "Hello"},
        events.EXECUTION_END: {"response": "Hello", "status": "completed"},
        events.ORCHESTRATOR_COMPLETE: {"orchestrator": "loop", "turn_count": 1, "status": "success"},
        events.PROVIDER_REQUEST: {"provider": "mock", "messages": messages, "model": "mock-1"},
        events.PROVIDER_RESPONSE: {"provider": "mock", "response": response, "usage": usage},
        events.PROVIDER_ERROR: {"provider": "mock", "error": OSError("The network is down.")},
        events.TOOL_PRE: call,
        events.TOOL_POST: {**call, "tool_result": ToolResult(output="Done"), "error": None},
        events.TOOL_ERROR: {**call, "tool_result": failed, "error": failed.error},
        events.CONTEXT_PRE_COMPACT: {"message_count": 90, "token_count": 90_000},
        events.CONTEXT_POST_COMPACT: {"message_count": 9, "token_count": 9_000},
        events.CANCEL_REQUESTED: {"immediate": False},
        events.CANCEL_COMPLETED: {"was_immediate": False},
        events.USER_NOTIFICATION: {"message": "Hello", "level": "info"},
    }
    return {"session_id": "session-1", "parent_id": None, **known.get(event, {})}
