"""Scenarios for orchestrators: runs with scripted models, tools and hooks, and the rules for their recordings."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from orchestrator_interactive.kernel.contracts import events
from orchestrator_interactive.kernel.contracts.errors import LLMError, ProviderUnavailableError
from orchestrator_interactive.kernel.contracts.messages import (
    ChatRequest,
    ChatResponse,
    TextBlock,
    ThinkingBlock,
    ToolCall,
    ToolCallBlock,
    Usage,
)
from orchestrator_interactive.kernel.contracts.models import HookResult, ToolResult
from orchestrator_interactive.kernel.interop import accepts_both, to_local_error
from orchestrator_interactive.testing import MockApprovalSystem, MockContextManager, MockProvider, MockTool
from orchestrator_interactive.validation.runner import RULES, CallResult, NotCheckedError, cancel_in_time, kind
from orchestrator_interactive.validation.tool_pairs import pair_problems

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from orchestrator_interactive.validation.runner import Validator
    from orchestrator_interactive.validation.sandbox import RecordingHooks, Sandbox, Sandboxes

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
        name: description of the run.
        answers: responses of the model in order; then `ANSWER`, or with `endless` the last one repeatedly. A tuple
            calls these tools: `echo`; `broken`, which raises; `held`, which waits until it is cancelled.
        hook: an event and the result of a hook at its first emission; `modify` changes the fields in its `data`.
        approval: answer of the approval system.
        providers: names under which the model is mounted.
    """

    name: str
    answers: tuple[tuple[str, ...] | str | Exception, ...] = ()
    hook: tuple[str, HookResult] | None = None
    approval: str = "Allow"
    providers: tuple[str, ...] = ("mock",)
    endless: bool = False


HOLD = "Hold the model call until it is cancelled."
_FAILURE = ProviderUnavailableError("The model is overloaded.", provider="mock", status_code=503)
# Two parallel calls, then a third; the first call triggers the hook.
_CALLS = (("echo", "echo"), ("echo",))
_DENY = HookResult(action="deny", reason="The hook says no.")
_ASK_USER = HookResult(action="ask_user", approval_prompt="May the tool run?")
_INJECT = HookResult(action="inject_context", context_injection=INJECTED)
_EPHEMERAL = _INJECT.model_copy(update={"ephemeral": True, "context_injection_role": "user"})
_REPLACE_INPUT = HookResult(action="modify", data={"tool_input": REPLACED_INPUT})
_REPLACE_RESULT = HookResult(action="modify", data={"tool_result": ToolResult(output=REPLACED_RESULT)})

PLAIN = Scenario("a plain answer")
TOOLS = Scenario("two rounds of tools", _CALLS)
UNKNOWN_TOOL = Scenario("an unknown tool", (("nowhere", "echo"),))
BROKEN_TOOL = Scenario("a tool that raises", (("broken", "echo"),))
PROVIDER_ERROR = Scenario("an error of the provider", (_FAILURE,))
LATER_PROVIDER_ERROR = Scenario("an error of the provider after a tool", (("echo",), _FAILURE))
CANCELLED_MODEL = Scenario("a cancelled model call", (("echo",), HOLD))
CANCELLED_TOOL = Scenario("a cancelled tool call", (("held", "echo"),))
DENY_PROMPT = Scenario("a denied prompt", hook=(events.PROMPT_SUBMIT, _DENY))
DENY_REQUEST = Scenario("a denied request", hook=(events.PROVIDER_REQUEST, _DENY))
INJECT_REQUEST = Scenario("an injection at provider:request", (("echo",),), (events.PROVIDER_REQUEST, _INJECT))
DENY_PRE = Scenario("a denied tool", _CALLS, (events.TOOL_PRE, _DENY))
MODIFY_PRE = Scenario("a modified input", _CALLS, (events.TOOL_PRE, _REPLACE_INPUT))
INJECT_PRE = Scenario("an injection at tool:pre", _CALLS, (events.TOOL_PRE, _INJECT))
ALLOWED_PRE = Scenario("a tool that the user allows", _CALLS, (events.TOOL_PRE, _ASK_USER))
REFUSED_PRE = Scenario("a tool that the user refuses", _CALLS, (events.TOOL_PRE, _ASK_USER), approval="Deny")
DENY_POST = Scenario("a denied result", _CALLS, (events.TOOL_POST, _DENY))
MODIFY_POST = Scenario("a modified result", _CALLS, (events.TOOL_POST, _REPLACE_RESULT))
INJECT_POST = Scenario("an injection at tool:post", _CALLS, (events.TOOL_POST, _INJECT))
EPHEMERAL_POST = Scenario("an ephemeral injection at tool:post", _CALLS, (events.TOOL_POST, _EPHEMERAL))
REFUSED_POST = Scenario("a result that the user refuses", _CALLS, (events.TOOL_POST, _ASK_USER), approval="Deny")
SEVERAL_PROVIDERS = Scenario("two providers", (("echo",),), providers=("first", "second"))
ENDLESS = Scenario("endless tool calls", (("echo",),), endless=True)

SCENARIOS = (
    *(PLAIN, TOOLS, UNKNOWN_TOOL, BROKEN_TOOL, PROVIDER_ERROR, LATER_PROVIDER_ERROR, CANCELLED_MODEL, CANCELLED_TOOL),
    *(DENY_PROMPT, DENY_REQUEST, INJECT_REQUEST, DENY_PRE, MODIFY_PRE, INJECT_PRE, ALLOWED_PRE, REFUSED_PRE),
    *(DENY_POST, MODIFY_POST, INJECT_POST, EPHEMERAL_POST, REFUSED_POST, SEVERAL_PROVIDERS, ENDLESS),
)
_CANCELLED = (CANCELLED_MODEL, CANCELLED_TOOL)


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
        return f"the run with {self.scenario.name}"

    def of(self, event: str) -> list[dict[str, Any]]:
        """Return the data of every emission of an event, in order."""
        return [data for _, data in self.hooks.get_events(event)]

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
    calls = [ToolCall(id=b.id, name=b.name, arguments=b.input) for b in blocks if isinstance(b, ToolCallBlock)]
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
        self._recording = recording

    async def execute(self, input: dict[str, Any]) -> ToolResult:  # noqa: A002 - the name is the contract's
        self._recording.executions.append(dict(input))
        if self.name == "held":
            await self._recording.hold()
        return await super().execute(input) if self.name == "broken" else ToolResult(output=result_for(input))


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
    runs: dict[str, Recording] = {}
    for scenario in SCENARIOS:
        if sum(run.ended.hung for run in runs.values()) < _MOST_HUNG:
            coroutine = _record(scenario, validator, sandboxes)
            done = await validator.perform(f"a run with {scenario.name}", coroutine, validator.limit_s + _OVERHEAD_S)
            runs |= {scenario.name: done.value} if done.value else {}
    ended = {name: run for name, run in runs.items() if not run.ended.hung}
    hung = [run for run in runs.values() if run.ended.hung]
    violations = [("runs_end", f"The run with {run.scenario.name} {run.ended.problem}.") for run in hung]
    violations += [violation for run in ended.values() for violation in _violations(run)]
    for key in RULES["orchestrator"]:
        if key != "implements_protocol":
            problems = [problem for rule, problem in violations if rule == key]
            validator.check(key, _problems(problems, _NEEDS.get(key, ()), ended))


def _problems(problems: list[str], scenarios: tuple[Scenario, ...], runs: Mapping[str, Recording]) -> Iterator[str]:
    """Yield the problems of a rule.

    Raises:
        NotCheckedError: one of the scenarios that it needs did not end, or did not emit the event of its hook.
    """
    for scenario in scenarios:
        run = runs.get(scenario.name)
        if run is None:
            raise NotCheckedError(f"The run with {scenario.name} did not end.", "Let it end first, see above.")
        if scenario in _CANCELLED and not run.interrupted.is_set():
            fix = "Let it ask the model and run the tools first, see above."
            raise NotCheckedError(f"The run with {scenario.name} ended before it could be cancelled.", fix)
        if scenario.hook and run.hooked is None:
            event = scenario.hook[0]
            raise NotCheckedError(f"In the run with {scenario.name} {event} was not emitted.", f"Emit {event}.")
    yield from problems


async def _record(scenario: Scenario, validator: Validator, sandboxes: Sandboxes) -> Recording:
    async with sandboxes.open() as sandbox:
        recording, context = Recording(scenario, sandbox.hooks), ViewedContext()
        sandbox.coordinator.mount("context", context)
        sandbox.coordinator.approval_system = MockApprovalSystem(scenario.approval)
        if scenario.hook:
            sandbox.hooks.register(scenario.hook[0], recording.reply, priority=50, name="validation")
        run = asyncio.create_task(validator.caught(_execute(sandbox, recording, context)))
        held = asyncio.create_task(recording.interrupted.wait())
        await asyncio.wait({run, held}, timeout=validator.limit_s, return_when=asyncio.FIRST_COMPLETED)
        if not run.done() and (held.done() or scenario.endless):
            recording.interrupted.set()  # an endless run that is slow would continue
            await cancel_in_time(run)
        held.cancel()
        recording.ended = await validator.ending(run)
        recording.rows, recording.contributed = await context.get_messages(), await sandbox.contributed_events()
        return recording


async def _execute(sandbox: Sandbox, recording: Recording, context: ViewedContext) -> Any:
    providers = {name: ScriptedModel(name, recording) for name in recording.scenario.providers}
    tools = {name: ScriptedTool(name, recording) for name in ("echo", "broken", "held")}
    for name, provider in providers.items():
        sandbox.coordinator.mount("providers", provider, name)
    for name, tool in tools.items():
        sandbox.coordinator.mount("tools", tool, name)
    orchestrator = sandbox.all("orchestrator")[0].instance
    return await orchestrator.execute(PROMPT, context, providers, tools, sandbox.hooks, coordinator=sandbox.coordinator)


def _violations(run: Recording) -> Iterator[tuple[str, str]]:
    """Yield the keys of the violated rules, each with the problem."""
    for rule, problem in (*_wrong_ending(run), *_wrong_boundaries(run), *_wrong_figures(run), *_wrong_calls(run)):
        yield rule, f"In {run} {problem}."
    yield from (*_wrong_requests(run), *_wrong_rows(run), *_ignored_hook(run), *_wrong_injections(run))


def _wrong_ending(run: Recording) -> Iterator[tuple[str, str]]:
    scenario, value, error = run.scenario, run.ended.value, run.ended.error
    how = "is cancelled" if run.ended.cancelled else run.ended.problem
    how = how or f"returns {repr(value) if isinstance(value, str) else kind(value)}"
    if scenario in (PLAIN, TOOLS) and value != ANSWER:
        yield "returns_the_text", f"it {how}, not {ANSWER!r}"
    elif not error and not isinstance(value, str):
        yield "returns_the_text", f"it {how}"
    for completed, rule in _COMPLETED:
        if scenario is completed and value != ANSWER:
            yield rule, f"it {how}"
    if scenario in _CANCELLED and not run.ended.cancelled:
        yield "passes_a_cancellation_on", f"it {how}"
    is_llm_error = isinstance(error, Exception) and isinstance(to_local_error(error), LLMError)
    if scenario in (PROVIDER_ERROR, LATER_PROVIDER_ERROR) and not (is_llm_error or (isinstance(value, str) and value)):
        yield "handles_provider_errors", f"it {how if error else 'returns nothing'}"
    if scenario is ENDLESS and run.interrupted.is_set():
        yield "limits_its_iterations", f"it has not stopped after {run.asked} answers that all call a tool"


def _wrong_boundaries(run: Recording) -> Iterator[tuple[str, str]]:
    names = [event for event, _ in run.hooks.events]
    if names[:1] != [events.EXECUTION_START]:
        yield "starts_with_the_prompt", f"{names[0] if names else 'no event'} comes first"
    elif (prompt := run.hooks.events[0][1].get("prompt")) != PROMPT:
        yield "starts_with_the_prompt", f"its 'prompt' is {prompt!r}"
    if (count := names.count(events.EXECUTION_END)) != 1:
        yield "ends_once", f"it comes {_times(count)}"
    if (count := names.count(events.ORCHESTRATOR_COMPLETE)) != 1:
        yield "completes_always" if run.ended.error else "completes_once", f"it comes {_times(count)}"
    # An error that became a text may have either status.
    allowed = ("cancelled",) if run.ended.cancelled else ("error",) if run.ended.error else ("completed", "error")
    for data in run.of(events.EXECUTION_END)[:1]:
        status, response, text = data.get("status"), data.get("response"), run.ended.value or ""
        if status not in allowed:
            yield "ends_with_the_status", f"it carries the status {status!r} where '{allowed[0]}' is right"
        if response != text and not (status == "error" and response == ""):
            yield "ends_with_the_status", f"it carries the response {response!r} where {text!r} is right"
        late = [name for name in names[names.index(events.EXECUTION_END) :] if name.startswith(("provider:", "tool:"))]
        yield from [("ends_last", f"{name} comes after it") for name in late[:1]]


def _wrong_figures(run: Recording) -> Iterator[tuple[str, str]]:
    for data in run.of(events.ORCHESTRATOR_COMPLETE)[:1]:
        name, turns, status = data.get("orchestrator"), data.get("turn_count"), data.get("status")
        if not isinstance(name, str) or not name:
            yield "completes_with_the_figures", f"its 'orchestrator' is {name!r}"
        if not isinstance(turns, int) or turns != {PLAIN.name: 1, TOOLS.name: 3}.get(run.scenario.name, turns):
            asked = f"though the model was asked {_times(run.asked)}"
            yield "completes_with_the_figures", f"its 'turn_count' is {turns!r} {asked}"
        if status not in ("success", "incomplete", "cancelled"):
            yield "completes_with_the_figures", f"its 'status' is {status!r}"


def _wrong_calls(run: Recording) -> Iterator[tuple[str, str]]:
    """Yield violations of the rules for the events of model and tool calls."""
    scenario, names = run.scenario, [event for event, _ in run.hooks.events]
    for event in (events.PROVIDER_REQUEST, events.PROVIDER_RESPONSE):
        if scenario in (PLAIN, TOOLS) and names.count(event) != run.asked:
            counts = f"{event} comes {_times(names.count(event))}, and the model is asked {_times(run.asked)}"
            yield "announces_model_calls", counts
    announced = [names[:before].count(events.PROVIDER_REQUEST) for before, _ in run.requests]
    if scenario in (PLAIN, TOOLS) and any(count < number for number, count in enumerate(announced, start=1)):
        yield "announces_model_calls", "the model is asked before provider:request"
    pre = Counter(map(_call_of, run.of(events.TOOL_PRE)))
    answers = Counter(map(_call_of, run.of(events.TOOL_POST) + run.of(events.TOOL_ERROR)))
    # A call that is denied, or whose tool does not exist, may be answered or not.
    optional = Counter(_call_of(data) for data in run.of(events.TOOL_PRE) if data.get("tool_name") == "nowhere")
    optional.update([_call_of(run.hooked[1])] if scenario in (DENY_PRE, REFUSED_PRE) and run.hooked else ())
    for call in pre | answers:
        if not pre[call] - optional[call] <= answers[call] <= pre[call]:
            rule = "answers_tool_pre_when_cancelled" if scenario is CANCELLED_TOOL else "answers_tool_pre"
            answered = f"tool:post or tool:error {_times(answers[call])}"
            yield rule, f"tool:pre comes {_times(pre[call])}, and {answered}, for {call}"
    if scenario is TOOLS and len(run.executions) != pre.total():
        yield "answers_tool_pre", f"tool:pre comes {_times(pre.total())}, and tools run {_times(len(run.executions))}"
    if scenario is BROKEN_TOOL and any(data.get("tool_name") == "broken" for data in run.of(events.TOOL_POST)):
        yield "reports_tool_errors", "tool:post comes where the tool raised"


def _call_of(data: Mapping[str, Any]) -> str:
    return f"the call {data['tool_call_id']}" if data.get("tool_call_id") else f"the tool {data.get('tool_name')}"


def _times(count: int) -> str:
    return {0: "never", 1: "once", 2: "twice"}.get(count, f"{count} times")


def _wrong_requests(run: Recording) -> Iterator[tuple[str, str]]:
    for event, data in run.hooks.events:
        missing = [name for name in _PAYLOADS.get(event, ()) if name not in data]
        yield from (("carries_the_payloads", f"{event} lacks {name!r}.") for name in missing)
        if event not in events.ALL_EVENTS and event not in run.contributed:
            yield "contributes_its_events", f"It emits {event}, which is not contributed."
    yield from (("sends_the_view", f"It asks with a {name} instead of a ChatRequest.") for name in run.other_requests)
    for number, (_, messages) in enumerate(run.requests):
        text = as_text(messages)
        if VIEW not in text:
            yield "sends_the_view", f"In {run} a request lacks the view of get_messages_for_request()."
        for problem in pair_problems(_without_injection(run, messages)):
            yield "sends_whole_pairs", f"In {run}: {problem}"
        if run.scenario is INJECT_PRE:
            yield from (("injects_behind_pairs", problem) for problem in pair_problems(messages))
        if run.scenario is TOOLS and PROMPT not in text:
            yield "sends_prompt_and_results", "A request lacks the prompt."
        if run.scenario is TOOLS and number and SIGNATURE not in text:
            yield "keeps_the_signature", "The signature is missing in the next request."
        results = (
            [result_for({"path": path}) for path in ("1.txt", "2.txt")] if run.scenario is TOOLS and number else []
        )
        missing = [said for said in results if said not in text]
        yield from (("sends_prompt_and_results", f"A request after the tools lacks a result: {m!r}.") for m in missing)


def _without_injection(run: Recording, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the rows without an injection at tool:pre, which the contract adds before the tool runs."""
    return [row for row in rows if run.scenario is not INJECT_PRE or INJECTED not in as_text([row])]


def _wrong_rows(run: Recording) -> Iterator[tuple[str, str]]:
    wanted = (("user", PROMPT, "the prompt"), ("assistant", ANSWER, "the answer")) if run.scenario is PLAIN else ()
    for role, text, what in wanted:
        if not any(row.get("role") == role and text in as_text([row]) for row in run.rows):
            problem = f"After a run the context holds no row of the role '{role}' with {what}."
            yield "keeps_prompt_and_answer", problem
    rule = "leaves_whole_pairs" if run.scenario in _CANCELLED or run.ended.error else "keeps_whole_pairs"
    for problem in pair_problems(_without_injection(run, run.rows)):
        yield rule, f"After {run}: {problem}"


def _ignored_hook(run: Recording) -> Iterator[tuple[str, str]]:
    """Yield violations of the rules for the results of hooks."""
    scenario = run.scenario
    if scenario is DENY_PROMPT and run.of(events.PROMPT_SUBMIT) and run.asked:  # the event may be the application's
        yield "honours_denied_request", "The model is asked though prompt:submit was denied."
    if run.hooked is None:
        return
    since, data = run.hooked
    later = [as_text(messages) for before, messages in run.requests if before >= since]
    given = data.get("tool_input") or {}
    ran = given in run.executions
    match scenario.name:
        case DENY_PRE.name | REFUSED_PRE.name if ran:
            yield "honours_deny" if scenario is DENY_PRE else "honours_refusal", f"In {run} the tool runs anyway."
        case ALLOWED_PRE.name if not ran:
            yield "honours_approval", "The tool does not run."
        case MODIFY_PRE.name if ran or REPLACED_INPUT not in run.executions:
            yield "uses_the_modified_input", f"The tool gets {given} instead of {REPLACED_INPUT}."
        case MODIFY_POST.name if not later or not all(REPLACED_RESULT in request for request in later):
            yield "uses_the_modified_result", "The model reads the original."
        case DENY_POST.name | REFUSED_POST.name if any(result_for(given) in request for request in later):
            yield "withholds_a_denied_result", f"In {run} the model reads it anyway."
        case DENY_REQUEST.name if run.asked >= len(run.of(events.PROVIDER_REQUEST)):
            yield "honours_denied_request", "The model is asked though provider:request was denied."


def _wrong_injections(run: Recording) -> Iterator[tuple[str, str]]:
    if run.hooked is None:
        return
    scenario, since = run.scenario, run.hooked[0]
    later = [as_text(messages) for before, messages in run.requests if before >= since]
    match scenario.name:
        case INJECT_PRE.name | INJECT_POST.name | INJECT_REQUEST.name:
            if scenario is INJECT_REQUEST and later and INJECTED not in later[0]:
                later = later[1:]  # the messages of this request may have been built already
            if (count := later[0].count(INJECTED) if later else 0) != 1:
                yield "injects", f"In {run} the next request has the text {count} times."
        case EPHEMERAL_POST.name:
            if not later or INJECTED not in later[0]:
                yield "drops_ephemeral_injection", "The next request does not have the text."
            if any(INJECTED in request for request in later[1:]):
                yield "drops_ephemeral_injection", "A later request still has the text."
            if INJECTED in as_text(run.rows):
                yield "drops_ephemeral_injection", "The text is in the context."


_COMPLETED = (
    (BROKEN_TOOL, "survives_a_broken_tool"),
    (UNKNOWN_TOOL, "survives_an_unknown_tool"),
    (SEVERAL_PROVIDERS, "knows_several_providers"),
)
# Scenarios that a rule needs. Other runs may violate it, too.
_NEEDS: Mapping[str, tuple[Scenario, ...]] = {
    "returns_the_text": (PLAIN, TOOLS),
    "survives_a_broken_tool": (BROKEN_TOOL,),
    "survives_an_unknown_tool": (UNKNOWN_TOOL,),
    "passes_a_cancellation_on": _CANCELLED,
    "handles_provider_errors": (PROVIDER_ERROR, LATER_PROVIDER_ERROR),
    "knows_several_providers": (SEVERAL_PROVIDERS,),
    "limits_its_iterations": (ENDLESS,),
    "announces_model_calls": (PLAIN, TOOLS),
    "answers_tool_pre": (TOOLS,),
    "reports_tool_errors": (BROKEN_TOOL,),
    "answers_tool_pre_when_cancelled": (CANCELLED_TOOL,),
    "keeps_prompt_and_answer": (PLAIN,),
    "sends_prompt_and_results": (TOOLS,),
    "injects_behind_pairs": (INJECT_PRE,),
    "keeps_the_signature": (TOOLS,),
    "honours_deny": (DENY_PRE,),
    "honours_refusal": (REFUSED_PRE,),
    "honours_approval": (ALLOWED_PRE,),
    "uses_the_modified_input": (MODIFY_PRE,),
    "uses_the_modified_result": (MODIFY_POST,),
    "withholds_a_denied_result": (DENY_POST, REFUSED_POST),
    "injects": (INJECT_PRE, INJECT_POST, INJECT_REQUEST),
    "drops_ephemeral_injection": (EPHEMERAL_POST,),
    "honours_denied_request": (DENY_REQUEST,),
}
