"""Rules for how an orchestrator honours hook results."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from orchestrator_interactive.kernel.contracts import events
from orchestrator_interactive.validation.orchestrator.runner import as_text
from orchestrator_interactive.validation.orchestrator.scenarios import (
    ALLOWED_PRE,
    DENY_POST,
    DENY_PRE,
    DENY_PROMPT,
    DENY_REQUEST,
    INJECT_POST,
    INJECT_PRE,
    INJECT_REQUEST,
    INJECTED,
    MODIFY_POST,
    MODIFY_PRE,
    REFUSED_POST,
    REFUSED_PRE,
    REMARK_POST,
    REPLACED_INPUT,
    REPLACED_RESULT,
    result_for,
)
from orchestrator_interactive.validation.report import Check
from orchestrator_interactive.validation.runner import NotChecked, rule

if TYPE_CHECKING:
    from orchestrator_interactive.validation.orchestrator.runner import Recording, Recordings
    from orchestrator_interactive.validation.runner import Problems, ValidationRule

_HOOKS = "Hook Processing"


@rule(
    Check(
        rule="a denied tool does not run",
        section=_HOOKS,
        fix="Where tool:pre comes back with 'deny', add a failed result with its reason instead of calling the tool.",
    )
)
def honours_deny(recordings: Recordings) -> Problems:
    return _tool_ran(recordings.of(DENY_PRE))


@rule(
    Check(
        rule="a tool that the user refuses does not run",
        section=_HOOKS,
        fix="Pass the result of tool:pre to coordinator.process_hook_result(), and honour its result.",
    )
)
def honours_refusal(recordings: Recordings) -> Problems:
    return _tool_ran(recordings.of(REFUSED_PRE))


def _tool_ran(recording: Recording) -> Problems:
    denied = _input_met(recording)
    ran = any(given == denied for _, given in recording.executions)
    return [f"In the run with {recording.scenario.name} the tool runs anyway."] if ran else []


def _input_met(recording: Recording) -> dict[str, Any]:
    """Return the input of the call for which the scenario's hook was called.

    Raises:
        NotChecked: the event does not contain it.
    """
    given = (recording.triggered_hook().data or {}).get("tool_input")
    if not isinstance(given, dict):
        event = recording.scenario.hook_script.event if recording.scenario.hook_script else "It"
        raise NotChecked(f"{event} does not carry the tool's input.", "Let it carry tool_name and tool_input.")
    return given


@rule(
    Check(
        rule="a tool that the user allows runs",
        section=_HOOKS,
        fix="Continue if coordinator.process_hook_result() turns 'ask_user' into 'continue'.",
    )
)
def honours_approval(recordings: Recordings) -> Problems:
    recording = recordings.of(ALLOWED_PRE)
    allowed = _input_met(recording)
    return [] if any(given == allowed for _, given in recording.executions) else ["The tool does not run."]


@rule(
    Check(
        rule="the tool gets the modified input",
        section=_HOOKS,
        fix="Where tool:pre comes back with 'modify', call the tool with result.data['tool_input'].",
    )
)
def uses_the_modified_input(recordings: Recordings) -> Problems:
    recording = recordings.of(MODIFY_PRE)
    original = _input_met(recording)
    ran = [given for _, given in recording.executions]
    if REPLACED_INPUT not in ran or original in ran:
        return [f"The tool gets {original} instead of {REPLACED_INPUT}."]
    return []


@rule(
    Check(
        rule="the model reads the modified result",
        section=_HOOKS,
        fix="Where tool:post comes back with 'modify', add result.data['tool_result'] to the context.",
        required=False,
    )
)
def uses_the_modified_result(recordings: Recordings) -> Problems:
    later = recordings.of(MODIFY_POST).requests_after_hook()
    return [] if later and all(REPLACED_RESULT in request for request in later) else ["The model reads the original."]


@rule(
    Check(
        rule="a denied or refused result does not reach the model",
        section=_HOOKS,
        fix="Where tool:post comes back with 'deny', or process_hook_result() makes that of it, add a result that says "
        "it was withheld.",
        required=False,
    )
)
def withholds_a_denied_result(recordings: Recordings) -> Problems:
    problems = []
    for recording in (recordings.of(DENY_POST), recordings.of(REFUSED_POST)):
        later = recording.requests_after_hook()
        said = result_for(str(_input_met(recording).get("path")))
        if any(said in request for request in later):
            problems.append(f"In the run with {recording.scenario.name} the model reads it anyway.")
    return problems


@rule(
    Check(
        rule="an injection is in the next request, once",
        section=_HOOKS,
        fix="Pass every result to coordinator.process_hook_result(), which adds the text to the context, or add it "
        "yourself, but not both; with several calls at once, after the last result.",
    )
)
def injects(recordings: Recordings) -> Problems:
    problems = []
    for scenario in (INJECT_PRE, INJECT_POST, INJECT_REQUEST):
        later = recordings.of(scenario).requests_after_hook()
        if scenario is INJECT_REQUEST and later and INJECTED not in later[0]:
            later = later[1:]  # the messages of this request may have been built already
        count = later[0].count(INJECTED) if later else 0
        if count != 1:
            problems.append(f"In the run with {scenario.name} the next request has the text {count} times.")
    return problems


@rule(
    Check(
        rule="an ephemeral injection is in the next request only",
        section=_HOOKS,
        fix="Put a text with ephemeral=True into the next request, and never into the context.",
        required=False,
    )
)
def drops_ephemeral_injection(recordings: Recordings) -> Problems:
    recording = recordings.of(REMARK_POST)
    later = recording.requests_after_hook()
    problems = [] if later and INJECTED in later[0] else ["The next request does not have the text."]
    if any(INJECTED in request for request in later[1:]):
        problems.append("A later request still has the text.")
    if INJECTED in as_text(recording.rows):
        problems.append("The text is in the context.")
    return problems


@rule(
    Check(
        rule="a denied prompt or request does not reach the model",
        section=_HOOKS,
        fix="Where prompt:submit or provider:request comes back with 'deny', end the run instead of asking the model.",
    )
)
def honours_denied_request(recordings: Recordings) -> Problems:
    recording = recordings.of(DENY_REQUEST)
    recording.triggered_hook()
    problems = []
    if recording.asked >= len(recording.of(events.PROVIDER_REQUEST)):
        problems.append("The model is asked though provider:request was denied.")
    at_prompt = recordings.of(DENY_PROMPT)
    if at_prompt.of(events.PROMPT_SUBMIT) and at_prompt.asked:  # the event may be the application's
        problems.append("The model is asked though prompt:submit was denied.")
    return problems


HOOK_RULES: tuple[ValidationRule[Recordings], ...] = (
    honours_deny,
    honours_refusal,
    honours_approval,
    uses_the_modified_input,
    uses_the_modified_result,
    withholds_a_denied_result,
    injects,
    drops_ephemeral_injection,
    honours_denied_request,
)
