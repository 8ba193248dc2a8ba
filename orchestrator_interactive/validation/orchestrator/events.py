"""Rules for the events of an orchestrator: their occurrence, order and data."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from orchestrator_interactive.kernel.contracts import events
from orchestrator_interactive.validation.orchestrator.scenarios import (
    CANCELLED_TOOL,
    DENY_PRE,
    PLAIN,
    PROMPT,
    REFUSED_PRE,
    TOOLS,
)
from orchestrator_interactive.validation.report import Check
from orchestrator_interactive.validation.runner import Cancelled, Raised, Returned, rule

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from orchestrator_interactive.validation.orchestrator.runner import Recording, Recordings
    from orchestrator_interactive.validation.runner import Problems, ValidationRule

_BOUNDARIES = "Required: execution:start and execution:end Events"
_COMPLETE = "Required: orchestrator:complete Event"
_EMISSION = "Event Emission"

_PAYLOADS: Mapping[str, tuple[str, ...]] = {
    events.PROVIDER_REQUEST: ("provider", "messages", "model"),
    events.PROVIDER_RESPONSE: ("provider", "response", "usage"),
    events.TOOL_PRE: ("tool_name", "tool_input"),
    events.TOOL_POST: ("tool_name", "tool_input", "tool_result"),
    events.TOOL_ERROR: ("tool_name", "error"),
}
_STATUSES = ("success", "incomplete", "cancelled")
_TURNS = {PLAIN.name: 1, TOOLS.name: 3}


def _in(recording: Recording, problem: str) -> str:
    return f"In the run with {recording.scenario.name} {problem}."


@rule(
    Check(
        rule="execution:start comes first, with the prompt",
        section=_BOUNDARIES,
        fix="Emit execution:start with {'prompt': prompt} before execute() does anything else.",
    )
)
def starts_with_the_prompt(recordings: Recordings) -> Problems:
    problems = []
    for recording in recordings:
        first = recording.emitted[0] if recording.emitted else None
        if first is None or first.event != events.EXECUTION_START:
            problems.append(_in(recording, f"{first.event if first else 'no event'} comes first"))
        elif first.data.get("prompt") != PROMPT:
            problems.append(_in(recording, f"its 'prompt' is {first.data.get('prompt')!r}"))
    return problems


@rule(
    Check(
        rule="execution:end comes exactly once, on every path",
        section=_BOUNDARIES,
        fix="Emit execution:end in one place that every path passes: after the answer, after an error, when cancelled.",
    )
)
def ends_once(recordings: Recordings) -> Problems:
    counted = ((recording, len(recording.of(events.EXECUTION_END))) for recording in recordings)
    return [_in(recording, f"it comes {_times(count)}") for recording, count in counted if count != 1]


@rule(
    Check(
        rule="execution:end carries how the run ended",
        section=_BOUNDARIES,
        fix="Give 'response' (empty on error and cancellation) and 'status' ('completed', 'error' or 'cancelled').",
    )
)
def ends_with_the_status(recordings: Recordings) -> Problems:
    return [
        _in(recording, f"it carries {shown} where {expected} is right")
        for recording in recordings
        for data in recording.of(events.EXECUTION_END)[:1]
        for shown, expected in _wrong_end(recording, data)
    ]


def _wrong_end(recording: Recording, data: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
    response, status = data.get("response"), data.get("status")
    allowed: tuple[str, ...]
    said: tuple[Any, ...]
    match recording.ended:
        case Returned(value=text):
            # An error that became a text may have either status.
            allowed, said = ("completed", "error"), (text, "") if status == "error" else (text,)
        case Cancelled():
            allowed, said = ("cancelled",), ("",)
        case Raised():
            allowed, said = ("error",), ("",)
        case _:
            return
    if status not in allowed:
        yield f"the status {status!r}", f"'{allowed[0]}'"
    if response not in said:
        yield f"the response {response!r}", f"{said[0]!r}"


@rule(
    Check(
        rule="no model or tool call follows execution:end",
        section=_BOUNDARIES,
        fix="Wait for the model and the tools before you emit execution:end.",
    )
)
def ends_last(recordings: Recordings) -> Problems:
    problems = []
    for recording in recordings:
        names = [emitted.event for emitted in recording.emitted]
        after = names[names.index(events.EXECUTION_END) + 1 :] if events.EXECUTION_END in names else []
        late = [name for name in after if name.startswith(("provider:", "tool:"))]
        problems += [_in(recording, f"{late[0]} comes after it")] if late else []
    return problems


@rule(
    Check(
        rule="orchestrator:complete comes exactly once where execute() returns",
        section=_COMPLETE,
        fix="Emit it at the end of execute(), once.",
    )
)
def completes_once(recordings: Recordings) -> Problems:
    return _not_once(recording for recording in recordings if isinstance(recording.ended, Returned))


@rule(
    Check(
        rule="orchestrator:complete comes also where a run fails or is cancelled",
        section=_COMPLETE,
        fix="Emit it on every path: with the status 'incomplete' after an error, 'cancelled' after a cancellation.",
        required=False,
    )
)
def completes_always(recordings: Recordings) -> Problems:
    return _not_once(recording for recording in recordings if not isinstance(recording.ended, Returned))


def _not_once(recordings: Iterable[Recording]) -> Problems:
    counted = ((recording, len(recording.of(events.ORCHESTRATOR_COMPLETE))) for recording in recordings)
    return [_in(recording, f"it comes {_times(count)}") for recording, count in counted if count != 1]


@rule(
    Check(
        rule="orchestrator:complete carries orchestrator, turn_count and status",
        section=_COMPLETE,
        fix=f"Give 'orchestrator' (its name), 'turn_count' (model calls) and 'status' ({', '.join(_STATUSES)}).",
    )
)
def completes_with_the_figures(recordings: Recordings) -> Problems:
    return [
        _in(recording, problem)
        for recording in recordings
        for data in recording.of(events.ORCHESTRATOR_COMPLETE)[:1]
        for problem in _wrong_figures(recording, data)
    ]


def _wrong_figures(recording: Recording, data: Mapping[str, Any]) -> Iterable[str]:
    name, turns, status = data.get("orchestrator"), data.get("turn_count"), data.get("status")
    if not isinstance(name, str) or not name:
        yield f"its 'orchestrator' is {name!r}"
    expected = _TURNS.get(recording.scenario.name)
    if not isinstance(turns, int) or (expected is not None and turns != expected):
        yield f"its 'turn_count' is {turns!r} though the model was asked {_times(recording.asked)}"
    if status not in _STATUSES:
        yield f"its 'status' is {status!r}"


@rule(
    Check(
        rule="every model call has its provider:request and its provider:response",
        section=_EMISSION,
        fix="Emit provider:request before each provider.complete(), and provider:response after its answer.",
    )
)
def announces_model_calls(recordings: Recordings) -> Problems:
    problems = []
    for recording in (recordings.of(PLAIN), recordings.of(TOOLS)):
        asked = _times(recording.asked)
        for event in (events.PROVIDER_REQUEST, events.PROVIDER_RESPONSE):
            count = len(recording.of(event))
            if count != recording.asked:
                problems.append(_in(recording, f"{event} comes {_times(count)}, and the model is asked {asked}"))
        before = [[e.event for e in recording.emitted[: r.events_before]] for r in recording.requests]
        if any(names.count(events.PROVIDER_REQUEST) < n for n, names in enumerate(before, start=1)):
            problems.append(_in(recording, "the model is asked before provider:request"))
    return problems


@rule(
    Check(
        rule="every tool:pre is answered by exactly one tool:post or tool:error",
        section=_EMISSION,
        fix="Emit tool:post after a tool has run, or tool:error where it failed; never both, never neither.",
    )
)
def answers_tool_pre(recordings: Recordings) -> Problems:
    problems = [
        _in(recording, problem)
        for recording in recordings
        if recording.scenario.name != CANCELLED_TOOL.name
        for problem in _unanswered(recording)
    ]
    announced = len(recordings.of(TOOLS).of(events.TOOL_PRE))
    ran = len(recordings.of(TOOLS).executions)
    if announced != ran:
        problems.append(_in(recordings.of(TOOLS), f"tool:pre comes {_times(announced)}, and tools run {_times(ran)}"))
    return problems


@rule(
    Check(
        rule="tool:pre is answered also where the run is cancelled",
        section=_EMISSION,
        fix="Emit tool:error for the tools that were running, before CancelledError is passed on.",
        required=False,
    )
)
def answers_tool_pre_when_cancelled(recordings: Recordings) -> Problems:
    recording = recordings.of(CANCELLED_TOOL)
    return [_in(recording, problem) for problem in _unanswered(recording)]


def _unanswered(recording: Recording) -> Iterable[str]:
    pre, answers = Counter(map(_key, recording.of(events.TOOL_PRE))), Counter[str]()
    for event in (events.TOOL_POST, events.TOOL_ERROR):
        answers.update(map(_key, recording.of(event)))
    denied = Counter[str]()
    if recording.scenario.name in (DENY_PRE.name, REFUSED_PRE.name) and recording.hook and recording.hook.data:
        denied[_key(recording.hook.data)] += 1  # it may be answered, or not
    for key in pre | answers:
        if not pre[key] - denied[key] <= answers[key] <= pre[key]:
            yield f"tool:pre comes {_times(pre[key])}, and tool:post or tool:error {_times(answers[key])}, for {key}"


def _key(data: Mapping[str, Any]) -> str:
    return f"the call {data['tool_call_id']}" if data.get("tool_call_id") else f"the tool {data.get('tool_name')}"


@rule(
    Check(
        rule="its events contain the fields of the contract",
        section=_EMISSION,
        fix="Use these field names: hooks read them.",
    )
)
def carries_the_payloads(recordings: Recordings) -> Problems:
    missing = {
        f"{emitted.event} lacks {name!r}."
        for recording in recordings
        for emitted in recording.emitted
        for name in _PAYLOADS.get(emitted.event, ())
        if name not in emitted.data
    }
    return sorted(missing)


@rule(
    Check(
        rule="its own events are contributed to observability.events",
        section="Observability",
        fix="Call coordinator.register_contributor('observability.events', 'my-orchestrator', lambda: […names…]).",
    )
)
def contributes_its_events(recordings: Recordings) -> Problems:
    unknown = {
        emitted.event
        for recording in recordings
        for emitted in recording.emitted
        if emitted.event not in events.ALL_EVENTS and emitted.event not in recording.contributed
    }
    return [f"It emits {event}, which is not contributed." for event in sorted(unknown)]


def _times(count: int) -> str:
    return {0: "never", 1: "once", 2: "twice"}.get(count, f"{count} times")


EVENT_RULES: tuple[ValidationRule[Recordings], ...] = (
    starts_with_the_prompt,
    ends_once,
    ends_with_the_status,
    ends_last,
    completes_once,
    completes_always,
    completes_with_the_figures,
    announces_model_calls,
    answers_tool_pre,
    answers_tool_pre_when_cancelled,
    carries_the_payloads,
    contributes_its_events,
)
