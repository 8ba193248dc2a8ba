"""Rules for orchestrators: how a run ends, and how it handles models, tools and their failures."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestrator_interactive.kernel.contracts.conversion import to_local_error
from orchestrator_interactive.kernel.contracts.errors import LLMError
from orchestrator_interactive.validation.orchestrator.events import EVENT_RULES
from orchestrator_interactive.validation.orchestrator.hooks import HOOK_RULES
from orchestrator_interactive.validation.orchestrator.rows import ROW_RULES
from orchestrator_interactive.validation.orchestrator.runner import run_all
from orchestrator_interactive.validation.orchestrator.scenarios import (
    ANSWER,
    BROKEN_TOOL,
    CANCELLED_MODEL,
    CANCELLED_TOOL,
    ENDLESS,
    LATER_PROVIDER_ERROR,
    PLAIN,
    PROVIDER_ERROR,
    SEVERAL_PROVIDERS,
    TOOLS,
    UNKNOWN_TOOL,
)
from orchestrator_interactive.validation.report import Check
from orchestrator_interactive.validation.runner import (
    Cancelled,
    Hung,
    NotChecked,
    Raised,
    Returned,
    error_text,
    kind,
    rule,
)

if TYPE_CHECKING:
    from orchestrator_interactive.validation.orchestrator.runner import Recording, Recordings
    from orchestrator_interactive.validation.runner import Problems, ValidationRule, Validator
    from orchestrator_interactive.validation.sandbox import SandboxSession

_CHECKLIST = "Validation Checklist"


async def check_orchestrator(validator: Validator, sandboxes: SandboxSession) -> None:
    """Run all scenarios, then check the rules."""
    recordings = await run_all(validator, sandboxes)
    await validator.check_all((*RULES, *EVENT_RULES, *ROW_RULES, *HOOK_RULES), recordings)


@rule(
    Check(
        rule="every run ends",
        section="Execution Flow",
        fix="Await nothing without a limit, and let cancellations through.",
    )
)
def runs_end(recordings: Recordings) -> Problems:
    return [
        f"The run with {recording.scenario.name} {_how(recording.ended)}."
        for recording in recordings.all
        if isinstance(recording.ended, Hung)
    ]


def _how(hung: Hung) -> str:
    suffix = "" if hung.stopped else ", and continues after its cancellation"
    return f"does not end within {hung.limit_s:g} seconds{suffix}"


@rule(
    Check(
        rule="execute() returns the final text",
        section="Protocol Definition",
        fix="Return the text of the model's last answer as a str.",
    )
)
def returns_the_text(recordings: Recordings) -> Problems:
    problems = []
    for scenario in (PLAIN, TOOLS):
        ended = recordings.of(scenario).ended
        if ended != Returned(ANSWER):
            problems.append(f"In the run with {scenario.name} it {_ending_text(ended, recordings)}, not {ANSWER!r}.")
    others = (recording for recording in recordings if recording.scenario not in (PLAIN, TOOLS))
    return problems + [
        f"In the run with {recording.scenario.name} it returns {kind(recording.ended.value)}."
        for recording in others
        if isinstance(recording.ended, Returned) and not isinstance(recording.ended.value, str)
    ]


def _ending_text(ended: object, recordings: Recordings) -> str:
    match ended:
        case Returned(value=str() as text):
            return f"returns {text!r}"
        case Returned(value=value):
            return f"returns {kind(value)}"
        case Raised(error=error):
            return f"raises {error_text(error, recordings.location)}"
        case _:
            return "is cancelled"


@rule(
    Check(
        rule="a tool that raises does not end the run",
        section="Hook Processing",
        fix="Catch errors of tool.execute(), add an error as the call's result, emit tool:error, and continue.",
    )
)
def survives_a_broken_tool(recordings: Recordings) -> Problems:
    return _completes(recordings.of(BROKEN_TOOL), recordings)


@rule(
    Check(
        rule="a call of an unknown tool does not end the run",
        section="Hook Processing",
        fix="Add a result that names the available tools, and continue.",
    )
)
def survives_an_unknown_tool(recordings: Recordings) -> Problems:
    return _completes(recordings.of(UNKNOWN_TOOL), recordings)


def _completes(recording: Recording, recordings: Recordings) -> Problems:
    if recording.ended == Returned(ANSWER):
        return []
    return [f"In the run with {recording.scenario.name} it {_ending_text(recording.ended, recordings)}."]


@rule(
    Check(
        rule="a cancelled run passes CancelledError on",
        section="Required: execution:start and execution:end Events",
        fix="Let `except asyncio.CancelledError` end with `raise`; `except Exception` does not catch it.",
    )
)
def passes_a_cancellation_on(recordings: Recordings) -> Problems:
    problems = []
    for recording in (recordings.of(CANCELLED_MODEL), recordings.of(CANCELLED_TOOL)):
        if not recording.interrupted:
            raise NotChecked(
                f"The run with {recording.scenario.name} ended before it could be cancelled.",
                "Let it ask the model and run the tools first, see above.",
            )
        if recording.ended != Cancelled():
            problems.append(
                f"In the run with {recording.scenario.name} it {_ending_text(recording.ended, recordings)}."
            )
    return problems


@rule(
    Check(
        rule="a provider error keeps its type or becomes a text",
        section=_CHECKLIST,
        fix="Let the provider's LLMError through, or return a sentence that describes the error.",
        required=False,
    )
)
def handles_provider_errors(recordings: Recordings) -> Problems:
    problems = []
    for recording in (recordings.of(PROVIDER_ERROR), recordings.of(LATER_PROVIDER_ERROR)):
        match recording.ended:
            case Raised(error=Exception() as error) if isinstance(to_local_error(error), LLMError):
                continue
            case Returned(value=str() as text) if text:
                continue
            case ended:
                how = "returns nothing" if isinstance(ended, Returned) else _ending_text(ended, recordings)
                problems.append(f"In the run with {recording.scenario.name} it {how}.")
    return problems


@rule(
    Check(
        rule="it works with several providers",
        section="Provider Selection",
        fix="Take the configured default_provider, or the first one, and use it throughout the run.",
        required=False,
    )
)
def knows_several_providers(recordings: Recordings) -> Problems:
    return _completes(recordings.of(SEVERAL_PROVIDERS), recordings)


@rule(
    Check(
        rule="it limits how often it asks the model",
        section=_CHECKLIST,
        fix="Count the iterations, and ask without tools or stop when a configured maximum is reached.",
        required=False,
    )
)
def limits_its_iterations(recordings: Recordings) -> Problems:
    recording = recordings.of(ENDLESS)
    if not recording.interrupted:
        return []
    return [f"After {recording.asked} answers that all call a tool it has not stopped."]


RULES: tuple[ValidationRule[Recordings], ...] = (
    runs_end,
    returns_the_text,
    survives_a_broken_tool,
    survives_an_unknown_tool,
    passes_a_cancellation_on,
    handles_provider_errors,
    knows_several_providers,
    limits_its_iterations,
)
