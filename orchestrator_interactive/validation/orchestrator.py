"""Scenarios for orchestrators: runs with scripted models, tools and hooks, and the rules for their recordings."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from orchestrator_interactive.kernel.contracts import events
from orchestrator_interactive.kernel.contracts.errors import LLMError, ProviderUnavailableError
from orchestrator_interactive.kernel.contracts.messages import (
    ChatRequest,
    ChatResponse,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
    Usage,
)
from orchestrator_interactive.kernel.contracts.models import HookResult, ToolResult
from orchestrator_interactive.kernel.contracts.tool_calls import calls_of
from orchestrator_interactive.kernel.interop import accepts_both, to_local_error
from orchestrator_interactive.testing import MockApprovalSystem, MockContextManager, MockProvider, MockTool
from orchestrator_interactive.validation.report import RULES
from orchestrator_interactive.validation.runner import (
    CallResult,
    NotCheckedError,
    called,
    cancel_in_time,
    kind,
    pair_problems,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from orchestrator_interactive.validation.runner import RecordingHooks, Sandboxes, Validator, Verdict

PROMPT = "What is in the files?"
ANSWER = "There are apples."
SIGNATURE = "c2lnbmF0dXJl"
INJECTED = "Mind the pears, says the hook."
REPLACED_INPUT = {"path": "replaced.txt"}
REPLACED_RESULT = "The replaced result."
VIEW = "This row is in the view of the context only."
# After this many model calls an orchestrator is considered endless.
_MOST_CALLS = 300
# Additional time for mounting and for the end of a cancelled run.
_OVERHEAD_S = 5.0
# After this many runs that did not end, the others are skipped.
_MOST_HUNG = 2

_PAYLOADS: Mapping[str, tuple[str, ...]] = {
    events.PROVIDER_REQUEST: ("provider", "messages", "model"),
    events.PROVIDER_RESPONSE: ("provider", "response", "usage"),
    events.TOOL_PRE: ("tool_name", "tool_input"),
    events.TOOL_POST: ("tool_name", "tool_input", "tool_result"),
    events.TOOL_ERROR: ("tool_name", "error"),
}


@dataclass(frozen=True, slots=True)
class Scenario:
    """One run.

    Args:
        rules: keys of the rules that cannot be checked without this run; others are checked in every run.
        answers: responses of the model in order; then `ANSWER`, or with `endless` the last one repeatedly. A tuple
            calls these tools: `echo`; `broken`, which raises; `held`, which waits until it is cancelled.
        hook: an event and the result of a hook at its first emission; `modify` changes the fields in its `data`.
        approval: answer of the approval system.
        providers: names under which the model is mounted.
        cancelled: whether the run is cancelled when it is held.
    """

    rules: str
    answers: tuple[tuple[str, ...] | str | Exception, ...] = ()
    hook: tuple[str, HookResult] | None = None
    approval: str = "Allow"
    providers: tuple[str, ...] = ("mock",)
    endless: bool = False
    cancelled: bool = False


HOLD = "Hold the model call until it is cancelled."
_FAILURE = ProviderUnavailableError("The model is overloaded.", provider="mock", status_code=503)
_ECHO = (("echo",),)
# Two parallel calls, then a third; the first call triggers the hook.
_CALLS = (("echo", "echo"), ("echo",))
_DENY = HookResult(action="deny", reason="The hook says no.")
_ASK_USER = HookResult(action="ask_user", approval_prompt="May the tool run?")
_INJECT = HookResult(action="inject_context", context_injection=INJECTED)
_EPHEMERAL = _INJECT.model_copy(update={"ephemeral": True, "context_injection_role": "user"})
_REPLACE_INPUT = HookResult(action="modify", data={"tool_input": REPLACED_INPUT})
_REPLACE_RESULT = HookResult(action="modify", data={"tool_result": ToolResult(output=REPLACED_RESULT)})
_PRE, _POST, _REQUEST = events.TOOL_PRE, events.TOOL_POST, events.PROVIDER_REQUEST

PLAIN, TOOLS = "a plain answer", "two rounds of tools"
SCENARIOS: Mapping[str, Scenario] = {
    PLAIN: Scenario("returns_the_text announces_model_calls keeps_the_conversation"),
    TOOLS: Scenario(
        "returns_the_text announces_model_calls answers_tool_pre keeps_the_conversation keeps_the_signature", _CALLS
    ),
    "an unknown tool": Scenario("survives_a_failed_call", (("nowhere", "echo"),)),
    "a tool that raises": Scenario("survives_a_failed_call answers_tool_pre", (("broken", "echo"),)),
    "an error of the provider": Scenario("handles_provider_errors", (_FAILURE,)),
    "an error of the provider after a tool": Scenario("handles_provider_errors", (*_ECHO, _FAILURE)),
    "a cancelled model call": Scenario("passes_a_cancellation_on", (*_ECHO, HOLD), cancelled=True),
    "a cancelled tool call": Scenario(
        "passes_a_cancellation_on answers_tool_pre_when_cancelled", (("held", "echo"),), cancelled=True
    ),
    "a denied prompt": Scenario("", hook=(events.PROMPT_SUBMIT, _DENY)),
    "a denied request": Scenario("honours_denied_request", hook=(_REQUEST, _DENY)),
    "an injection at provider:request": Scenario("injects", _ECHO, (_REQUEST, _INJECT)),
    "a denied tool": Scenario("honours_deny", _CALLS, (_PRE, _DENY)),
    "a modified input": Scenario("uses_the_modified_input", _CALLS, (_PRE, _REPLACE_INPUT)),
    "an injection at tool:pre": Scenario("injects injects_behind_pairs", _CALLS, (_PRE, _INJECT)),
    "a tool that the user allows": Scenario("honours_deny", _CALLS, (_PRE, _ASK_USER)),
    "a tool that the user refuses": Scenario("honours_deny", _CALLS, (_PRE, _ASK_USER), approval="Deny"),
    "a denied result": Scenario("uses_the_modified_result", _CALLS, (_POST, _DENY)),
    "a modified result": Scenario("uses_the_modified_result", _CALLS, (_POST, _REPLACE_RESULT)),
    "an injection at tool:post": Scenario("injects", _CALLS, (_POST, _INJECT)),
    "an ephemeral injection at tool:post": Scenario("drops_ephemeral_injection", _CALLS, (_POST, _EPHEMERAL)),
    "a result that the user refuses": Scenario("uses_the_modified_result", _CALLS, (_POST, _ASK_USER), approval="Deny"),
    "two providers": Scenario("knows_several_providers", _ECHO, providers=("first", "second")),
    "endless tool calls": Scenario("limits_its_iterations", _ECHO, endless=True),
}


# Scenarios that end with the answer, and the rule of each.
_COMPLETED = {
    PLAIN: "returns_the_text",
    TOOLS: "returns_the_text",
    "an unknown tool": "survives_a_failed_call",
    "a tool that raises": "survives_a_failed_call",
    "two providers": "knows_several_providers",
}


@dataclass(slots=True)
class Recording:
    """What happened in a run.

    Args:
        requests: messages of each model call as JSON rows, with the number of events emitted before it.
        executions: input of each tool call.
        rows: the context at the end.
        hooked: data of the event to which the scenario's hook replied, and the number of events up to it.
        interrupted: set when the run is to be cancelled: a call is held, or the run does not end.
    """

    name: str
    scenario: Scenario
    hooks: RecordingHooks
    ended: CallResult = field(default_factory=CallResult)
    asked: int = 0
    calls: int = 0
    requests: list[tuple[int, list[dict[str, Any]]]] = field(default_factory=list)
    other_requests: list[str] = field(default_factory=list)
    executions: list[dict[str, Any]] = field(default_factory=list)
    rows: list[dict[str, Any]] = field(default_factory=list)
    contributed: set[str] = field(default_factory=set)
    hooked: tuple[int, dict[str, Any]] | None = None
    interrupted: asyncio.Event = field(default_factory=asyncio.Event)

    def __str__(self) -> str:
        return f"the run with {self.name}"

    def of(self, event: str) -> list[dict[str, Any]]:
        """Return the data of every emission of an event, in order."""
        return [data for _, data in self.hooks.get_events(event)]

    def later_requests(self) -> list[str]:
        """Return the requests after the hook's reply, each as a text."""
        since = self.hooked[0] if self.hooked else 0
        return [as_text(messages) for before, messages in self.requests if before >= since]

    async def reply(self, _: str, data: dict[str, Any]) -> HookResult:
        """Reply to the first emission of the scenario's event, as a hook."""
        if self.hooked is not None or self.scenario.hook is None:
            return HookResult()
        self.hooked, result = (len(self.hooks.events), dict(data)), self.scenario.hook[1]
        return result.model_copy(update={"data": {**data, **result.data}}) if result.data else result

    def next_call(self, tool: str) -> ToolCallBlock:
        self.calls += 1
        return ToolCallBlock(id=f"call_{self.calls}", name=tool, input={"path": f"{self.calls}.txt"})

    async def hold(self) -> None:
        self.interrupted.set()
        await asyncio.Event().wait()


class ScriptedModel(MockProvider):
    """A provider that gives the answers of a scenario. Those of one scenario share the recording."""

    def __init__(self, name: str, recording: Recording) -> None:
        super().__init__(name=name)
        self._recording = recording

    @accepts_both  # its type is that of both kernels' requests
    async def complete(self, request: ChatRequest, **_: Any) -> ChatResponse:  # type: ignore[override]
        recording, scenario = self._recording, self._recording.scenario
        if not isinstance(request, ChatRequest):
            recording.other_requests.append(type(request).__name__)
            raise TypeError(f"complete() takes a ChatRequest, not {type(request).__name__}.")
        recording.asked += 1
        if not (scenario.endless and recording.requests):  # later requests repeat the first and grow
            messages = [message.model_dump() for message in request.messages]
            recording.requests.append((len(recording.hooks.events), messages))
        # Yield as a real provider does: otherwise an endless run would block the event loop.
        await asyncio.sleep(0)
        number = 0 if scenario.endless else recording.asked - 1
        answer = scenario.answers[number] if number < len(scenario.answers) else ANSWER
        if answer is HOLD or recording.asked >= _MOST_CALLS:
            await recording.hold()
        if isinstance(answer, Exception):
            raise answer
        if not isinstance(answer, tuple) or not request.tools or request.tool_choice == "none":
            return _response([TextBlock(text=ANSWER)])
        thinking = ThinkingBlock(thinking="I need tools.", signature=SIGNATURE)
        return _response([thinking, TextBlock(text="Let me see."), *map(recording.next_call, answer)])


def _response(blocks: list[Any]) -> ChatResponse:
    calls = calls_of(blocks)
    return ChatResponse(
        content=blocks,
        tool_calls=calls or None,
        usage=Usage(input_tokens=10, output_tokens=5, total_tokens=15),
        finish_reason="tool_use" if calls else "end_turn",
    )


class ScriptedTool(MockTool):
    """`echo` answers with its path, `broken` raises, `held` waits until it is cancelled."""

    def __init__(self, name: str, recording: Recording) -> None:
        super().__init__(name, return_value=RuntimeError("The tool is broken.") if name == "broken" else "")
        self.input_schema["properties"] = {"path": {"type": "string"}}
        self.inputs, self._recording = recording.executions, recording

    async def execute(self, input: dict[str, Any]) -> ToolResult:  # noqa: A002 - the name is the contract's
        await super().execute(input)
        if self.name == "held":
            await self._recording.hold()
        return ToolResult(output=result_for(input))


def result_for(given: Mapping[str, Any]) -> str:
    """Return the result of `echo`."""
    return f"In {given.get('path')} are apples."


class ViewedContext(MockContextManager):
    """A context whose view has an additional first row, which distinguishes it from the history."""

    async def get_messages_for_request(
        self, token_budget: int | None = None, provider: Any | None = None
    ) -> list[dict[str, Any]]:
        return [{"role": "system", "content": VIEW}, *await super().get_messages_for_request(token_budget, provider)]


def as_text(messages: Iterable[dict[str, Any]]) -> str:
    """Return messages as one text for searching."""
    return json.dumps(list(messages), default=str, ensure_ascii=False)


async def check_orchestrator(validator: Validator, sandboxes: Sandboxes) -> None:
    """Run all scenarios, then check the rules."""
    found: dict[str, list[Verdict]] = {key: [] for key in RULES["orchestrator"] if key != "implements_protocol"}
    hung = 0
    for name, scenario in SCENARIOS.items():
        recording = None
        if hung < _MOST_HUNG:
            coroutine = _record(name, scenario, validator, sandboxes)
            done = await validator.perform(f"a run with {name}", coroutine, validator.limit_s + _OVERHEAD_S)
            recording = done.value
        if recording is not None and recording.ended.hung:
            hung += 1
            found["runs_end"].append(f"The run with {name} {recording.ended.problem}.")
        elif recording is not None:
            for key, problem in _violations(recording):
                found[key].append(problem)
        if lack := _lack(name, recording):
            for key in scenario.rules.split():
                found[key].append(lack)
    for key, verdicts in found.items():
        validator.check(key, verdicts)


def _lack(name: str, run: Recording | None) -> NotCheckedError | None:
    """Return why the rules of a scenario cannot be checked by this run, if they cannot."""
    if run is None or run.ended.hung:
        return NotCheckedError(f"The run with {name} did not end.", "Let it end first, see above.")
    if run.scenario.cancelled and not run.interrupted.is_set():
        fix = "Let it ask the model and run the tools first, see above."
        return NotCheckedError(f"The run with {name} ended before it could be cancelled.", fix)
    if run.scenario.hook and run.hooked is None:
        event = run.scenario.hook[0]
        return NotCheckedError(f"In the run with {name} {event} was not emitted.", f"Emit {event}.")
    return None


async def _record(name: str, scenario: Scenario, validator: Validator, sandboxes: Sandboxes) -> Recording:
    async with sandboxes.open() as sandbox:
        recording, context = Recording(name, scenario, sandbox.recorded), ViewedContext()
        sandbox.mount("context", context)
        sandbox.approval_system = MockApprovalSystem(scenario.approval)
        if scenario.hook:
            sandbox.recorded.register(scenario.hook[0], recording.reply, priority=50, name="validation")
        providers = {each: ScriptedModel(each, recording) for each in scenario.providers}
        tools = {each: ScriptedTool(each, recording) for each in ("echo", "broken", "held")}
        for point, modules in (("providers", providers), ("tools", tools)):
            for known_as, module in modules.items():
                sandbox.mount(point, module, known_as)
        execute = sandbox.all("orchestrator")[0].instance.execute
        options = {"context": context, "providers": providers, "tools": tools, "hooks": sandbox.recorded}
        call = called(partial(execute, PROMPT, **options, coordinator=sandbox))
        run = asyncio.create_task(validator.caught(call))
        held = asyncio.create_task(recording.interrupted.wait())
        await asyncio.wait({run, held}, timeout=validator.limit_s, return_when=asyncio.FIRST_COMPLETED)
        if not run.done() and (held.done() or scenario.endless):
            recording.interrupted.set()  # an endless run that is slow would continue
            await cancel_in_time(run)
        held.cancel()
        recording.ended = await validator.ending(run)
        recording.rows, recording.contributed = await context.get_messages(), await sandbox.contributed_events()
        return recording


def _violations(run: Recording) -> Iterator[tuple[str, str]]:
    """Yield the keys of the violated rules, each with the problem."""
    for rule, problem in (*_wrong_ending(run), *_wrong_boundaries(run), *_wrong_calls(run), *_wrong_injections(run)):
        yield rule, f"In {run} {problem}."
    yield from (*_wrong_requests(run), *_wrong_rows(run), *_ignored_hook(run))


def _wrong_ending(run: Recording) -> Iterator[tuple[str, str]]:
    value, error = run.ended.value, run.ended.error
    how = "is cancelled" if run.ended.cancelled else run.ended.problem
    how = how or f"returns {repr(value) if isinstance(value, str) else kind(value)}"
    if run.name in _COMPLETED and value != ANSWER:
        yield _COMPLETED[run.name], f"it {how}, not {ANSWER!r}"
    elif not error and not isinstance(value, str):
        yield "returns_the_text", f"it {how}"
    if run.scenario.cancelled and not run.ended.cancelled:
        yield "passes_a_cancellation_on", f"it {how}"
    is_llm_error = isinstance(error, Exception) and isinstance(to_local_error(error), LLMError)
    if run.name.startswith("an error of the provider") and not is_llm_error and (error or value == ""):
        yield "handles_provider_errors", f"it {how}"
    if run.scenario.endless and run.interrupted.is_set():
        yield "limits_its_iterations", f"it has not stopped after {run.asked} answers that all call a tool"


def _wrong_boundaries(run: Recording) -> Iterator[tuple[str, str]]:
    names = [event for event, _ in run.hooks.events]
    if names[:1] != [events.EXECUTION_START]:
        yield "starts_with_the_prompt", f"{names[0] if names else 'no event'} comes first"
    elif (prompt := run.hooks.events[0][1].get("prompt")) != PROMPT:
        yield "starts_with_the_prompt", f"its 'prompt' is {prompt!r}"
    if (count := names.count(events.EXECUTION_END)) != 1:
        yield "ends_once", f"it comes {_times(count)}"
    # An error that became a text may have either status.
    allowed = ("cancelled",) if run.ended.cancelled else ("error",) if run.ended.error else ("completed", "error")
    for data in run.of(events.EXECUTION_END)[:1]:
        status, response, text = data.get("status"), data.get("response"), run.ended.value or ""
        if status not in allowed:
            yield "ends_once", f"it carries the status {status!r} where '{allowed[0]}' is right"
        if response != text and not (status == "error" and response == ""):
            yield "ends_once", f"it carries the response {response!r} where {text!r} is right"
        late = [name for name in names[names.index(events.EXECUTION_END) :] if name.startswith(("provider:", "tool:"))]
        yield from [("ends_once", f"{name} comes after it") for name in late[:1]]
    yield from _wrong_figures(run)


def _wrong_figures(run: Recording) -> Iterator[tuple[str, str]]:
    if (count := len(run.of(events.ORCHESTRATOR_COMPLETE))) != 1:
        yield "completes_always" if run.ended.error else "completes_once", f"it comes {_times(count)}"
    for data in run.of(events.ORCHESTRATOR_COMPLETE)[:1]:
        name, turns, status = data.get("orchestrator"), data.get("turn_count"), data.get("status")
        if not isinstance(name, str) or not name:
            yield "completes_once", f"its 'orchestrator' is {name!r}"
        if not isinstance(turns, int) or turns != {PLAIN: 1, TOOLS: 3}.get(run.name, turns):
            yield "completes_once", f"its 'turn_count' is {turns!r} though the model was asked {_times(run.asked)}"
        if status not in ("success", "incomplete", "cancelled"):
            yield "completes_once", f"its 'status' is {status!r}"


def _wrong_calls(run: Recording) -> Iterator[tuple[str, str]]:
    """Yield violations of the rules for the events of model and tool calls."""
    names = [event for event, _ in run.hooks.events]
    if run.name in (PLAIN, TOOLS):
        for event in (events.PROVIDER_REQUEST, events.PROVIDER_RESPONSE):
            if (count := names.count(event)) != run.asked:
                counts = f"{event} comes {_times(count)}, and the model is asked {_times(run.asked)}"
                yield "announces_model_calls", counts
        announced = [names[:before].count(events.PROVIDER_REQUEST) for before, _ in run.requests]
        if any(count < number for number, count in enumerate(announced, start=1)):
            yield "announces_model_calls", "the model is asked before provider:request"
    pre = Counter(map(_call_of, run.of(_PRE)))
    answers = Counter(map(_call_of, run.of(_POST) + run.of(events.TOOL_ERROR)))
    # A call that is denied, or whose tool does not exist, may be answered or not.
    optional = Counter(_call_of(data) for data in run.of(_PRE) if data.get("tool_name") == "nowhere")
    if run.name in ("a denied tool", "a tool that the user refuses") and run.hooked:
        optional[_call_of(run.hooked[1])] += 1
    # A tool that does not exist may be reported by tool:error alone.
    unknown = Counter(_call_of(data) for data in run.of(events.TOOL_ERROR) if data.get("tool_name") == "nowhere")
    for call in pre | answers:
        if not pre[call] - optional[call] <= answers[call] <= max(pre[call], min(unknown[call], 1)):
            when_cancelled = run.name == "a cancelled tool call"
            answered = f"tool:post or tool:error {_times(answers[call])}"
            key = "answers_tool_pre_when_cancelled" if when_cancelled else "answers_tool_pre"
            yield key, f"tool:pre comes {_times(pre[call])}, and {answered}, for {call}"
    if run.name == TOOLS and len(run.executions) != pre.total():
        yield "answers_tool_pre", f"tool:pre comes {_times(pre.total())}, and tools run {_times(len(run.executions))}"
    if any(data.get("tool_name") == "broken" for data in run.of(_POST)):
        yield "answers_tool_pre", "tool:post comes where the tool raised"


def _call_of(data: Mapping[str, Any]) -> str:
    return f"the call {data['tool_call_id']}" if data.get("tool_call_id") else f"the tool {data.get('tool_name')}"


def _times(count: int) -> str:
    return {0: "never", 1: "once", 2: "twice"}.get(count, f"{count} times")


def _wrong_requests(run: Recording) -> Iterator[tuple[str, str]]:
    """Yield violations of the rules for the payloads of events, and for requests."""
    for event, data in run.hooks.events:
        missing = [name for name in _PAYLOADS.get(event, ()) if name not in data]
        yield from (("carries_the_payloads", f"{event} lacks {name!r}.") for name in missing)
        if event not in events.ALL_EVENTS and event not in run.contributed:
            yield "contributes_its_events", f"It emits {event}, which is not contributed."
    yield from (("sends_the_view", f"It asks with a {name} instead of a ChatRequest.") for name in run.other_requests)
    results = [result_for({"path": path}) for path in ("1.txt", "2.txt")]
    for number, (_, messages) in enumerate(run.requests):
        text = as_text(messages)
        if VIEW not in text:
            yield "sends_the_view", f"In {run} a request lacks the view of get_messages_for_request()."
        wanted = [PROMPT, *(results if number else ())] if run.name == TOOLS else []
        for said in wanted:
            if said not in text:
                yield "keeps_the_conversation", f"A request lacks the prompt or a result: {said!r}."
        if run.name == TOOLS and number and SIGNATURE not in text:
            yield "keeps_the_signature", "The signature is missing in the next request."


def _wrong_rows(run: Recording) -> Iterator[tuple[str, str]]:
    """Yield violations of the rules for the rows in the context and in requests."""
    for role, said in (("user", PROMPT), ("assistant", ANSWER)) if run.name == PLAIN else ():
        if not any(row.get("role") == role and said in as_text([row]) for row in run.rows):
            yield "keeps_the_conversation", f"After a run the context holds no row of the role '{role}' with {said!r}."
    injects_early = run.name == "an injection at tool:pre"
    for when, rows in (*((f"In {run}", messages) for _, messages in run.requests), (f"After {run}", run.rows)):
        # The contract adds an injection at tool:pre before the tool runs.
        others = [row for row in rows if not (injects_early and INJECTED in as_text([row]))]
        yield from (("keeps_whole_pairs", f"{when}: {problem}") for problem in pair_problems(others))
    for _, messages in run.requests if injects_early else ():
        yield from (("injects_behind_pairs", problem) for problem in pair_problems(messages))


def _ignored_hook(run: Recording) -> Iterator[tuple[str, str]]:
    """Yield violations of the rules for the results of hooks."""
    if run.hooked is None:
        return
    given = run.hooked[1].get("tool_input") or {}
    ran, later = given in run.executions, run.later_requests()
    match run.name:
        case "a denied prompt" if run.asked:  # without the event it is not checked: it may be the application's
            yield "honours_denied_request", "The model is asked though prompt:submit was denied."
        case "a denied request" if run.asked >= len(run.of(_REQUEST)):
            yield "honours_denied_request", "The model is asked though provider:request was denied."
        case "a denied tool" | "a tool that the user refuses" if ran:
            yield "honours_deny", f"In {run} the tool runs anyway."
        case "a tool that the user allows" if not ran:
            yield "honours_deny", f"In {run} the tool does not run."
        case "a modified input" if ran or REPLACED_INPUT not in run.executions:
            yield "uses_the_modified_input", f"The tool gets {given} instead of {REPLACED_INPUT}."
        case "a modified result" if not later or not all(REPLACED_RESULT in request for request in later):
            yield "uses_the_modified_result", "The model reads the original."
        case "a denied result" | "a result that the user refuses" if any(result_for(given) in each for each in later):
            yield "uses_the_modified_result", f"In {run} the model reads it anyway."


def _wrong_injections(run: Recording) -> Iterator[tuple[str, str]]:
    later = run.later_requests()
    match run.name:
        case _ if run.hooked is None:
            return
        case "an injection at tool:pre" | "an injection at tool:post" | "an injection at provider:request":
            if run.name.endswith(_REQUEST) and later and INJECTED not in later[0]:
                later = later[1:]  # the messages of this request may have been built already
            if (count := later[0].count(INJECTED) if later else 0) != 1:
                yield "injects", f"the next request has the text {count} times"
        case "an ephemeral injection at tool:post":
            if not later or INJECTED not in later[0]:
                yield "drops_ephemeral_injection", "the next request does not have the text"
            if any(INJECTED in request for request in later[1:]):
                yield "drops_ephemeral_injection", "a later request still has the text"
            if INJECTED in as_text(run.rows):
                yield "drops_ephemeral_injection", "the text is in the context"
