"""Rules for hooks: for any event data, each handler returns a valid result."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from orchestrator_interactive.kernel.contracts import events
from orchestrator_interactive.kernel.contracts.models import HookResult
from orchestrator_interactive.kernel.interop import to_local
from orchestrator_interactive.testing import MockContextManager
from orchestrator_interactive.validation.hook.payloads import contract_payload, odd_payloads
from orchestrator_interactive.validation.report import Check
from orchestrator_interactive.validation.runner import Hung, Returned, Tolerated, kind, raising, rule, summarize
from orchestrator_interactive.validation.sandbox import called

if TYPE_CHECKING:
    from orchestrator_interactive.kernel.loading.location import ModuleLocation
    from orchestrator_interactive.validation.runner import Ending, Problems, ValidationRule, Validator
    from orchestrator_interactive.validation.sandbox import Registration, SandboxSession

_EARLIEST, _LATEST = 10, 90
# Events that this project's loop contributes; it is not mounted during the validation of a hook.
_EVENTS_OF_THE_LOOP = ("injection:applied",)


@dataclass(frozen=True, slots=True)
class HookReply:
    """Outcome of one handler call. `is_contract_data`: whether the data was the contract's."""

    handler: str
    event: str
    words: str
    is_contract_data: bool
    ended: Ending

    def __str__(self) -> str:
        return f"{self.handler} at {self.event}, given {self.words},"


@dataclass(frozen=True, slots=True)
class HookReplies:
    """Handlers of a module, their replies, and the events that the module contributes."""

    location: ModuleLocation
    sandboxes: SandboxSession
    registrations: tuple[Registration, ...]
    answers: tuple[HookReply, ...]
    contributed: frozenset[str]


async def check_hook(validator: Validator, sandboxes: SandboxSession) -> None:
    """Call every handler with valid and invalid data of its event, then check the rules."""
    async with sandboxes.open() as sandbox:
        if sandbox.coordinator.get("context") is None:
            sandbox.coordinator.mount("context", MockContextManager())
        registrations = tuple(sandbox.hooks.registrations)
        answers = []
        for registration in registrations:
            answers += await _answers(validator, registration)
        contributed = frozenset(await sandbox.contributed_events())
        replies = HookReplies(validator.location, sandboxes, registrations, tuple(answers), contributed)
        await validator.check_all(RULES, replies)


async def _answers(validator: Validator, registration: Registration) -> list[HookReply]:
    event, answers = registration.event, []
    payloads = [("the contract's data", contract_payload(event)), *odd_payloads(event)]
    for number, (words, data) in enumerate(payloads):
        doing = f"{registration.name} at {event}, given {words}"
        ended = await validator.perform(doing, called(partial(registration.handler, event, data)))
        answers.append(HookReply(registration.name, event, words, number == 0, ended))
        if isinstance(ended, Hung):
            break  # further calls would probably hang too
    return answers


@rule(
    Check(
        rule="its handlers are async and take (event, data)",
        section="Protocol Definition",
        fix="Write `async def handler(event, data) -> HookResult`.",
        part="structure",
    )
)
def handlers_are_async(replies: HookReplies) -> Problems:
    return [
        f"{registration.name}: {problem}"
        for registration in replies.registrations
        if (problem := _problem_of_form(registration.handler))
    ]


def _problem_of_form(handler: Any) -> str:
    if not any(map(inspect.iscoroutinefunction, (handler, type(handler).__call__))):
        return "it is a plain function."
    try:
        inspect.signature(handler).bind("event", "data")
    except TypeError as e:
        return f"it cannot be called with (event, data): {e}."
    return ""


@rule(
    Check(
        rule="its handlers take the contract's data",
        section="Common Events",
        fix="Read the data as the contract lists it; the tool's result and the model's response are objects.",
    )
)
def accepts_contract_data(replies: HookReplies) -> Problems:
    return _raised(replies, is_contract_data=True)


@rule(
    Check(
        rule="its handlers do not raise, with any data that was tried",
        section="HookResult Actions",
        fix="Read optional data with data.get(…), check its type, and return HookResult() where you do not know it.",
    )
)
def does_not_raise(replies: HookReplies) -> Problems:
    return _raised(replies, is_contract_data=False)


def _raised(replies: HookReplies, *, is_contract_data: bool) -> Problems:
    return raising(
        (answer for answer in replies.answers if answer.is_contract_data == is_contract_data), replies.location
    )


@rule(
    Check(
        rule="its handlers return a HookResult",
        section="HookResult Actions",
        fix="Return a HookResult on every path; HookResult() means continue.",
    )
)
def returns_a_result(replies: HookReplies) -> Problems:
    return [
        f"{answer} returns {kind(answer.ended.value)}."
        for answer in replies.answers
        if isinstance(answer.ended, Returned) and not isinstance(to_local(answer.ended.value), HookResult)
    ]


@rule(
    Check(
        rule="its results have the fields that their action needs",
        section="HookResult Actions",
        fix="Set the fields of the action: `data` to modify, `context_injection` to inject, `approval_prompt` to ask, "
        "with one of `approval_options` beginning with 'Allow'; a `reason` to deny.",
    )
)
def results_are_complete(replies: HookReplies) -> Problems:
    ended = [(answer, answer.ended.value) for answer in replies.answers if isinstance(answer.ended, Returned)]
    results = [(answer, result) for answer, value in ended if isinstance(result := to_local(value), HookResult)]
    problems = [
        f"{answer} wants to {result.action} and gives no {missing}."
        for answer, result in results
        if (missing := _missing(result))
    ]
    doubts = [f"{answer} {doubt}." for answer, result in results if (doubt := _doubt(result))]
    if doubts and not problems:
        raise Tolerated(summarize(doubts))
    return problems


def _missing(result: HookResult) -> str:
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


@rule(
    Check(
        rule="its handlers answer in time",
        section="Protocol Definition",
        fix="Limit and await long operations: the agent waits for its handlers.",
    )
)
def answers_in_time(replies: HookReplies) -> Problems:
    return [
        f"{answer} does not answer within {answer.ended.limit_s:g} seconds."
        for answer in replies.answers
        if isinstance(answer.ended, Hung)
    ]


@rule(
    Check(
        rule="a clean-up unregisters its handlers",
        section="Entry Point Pattern, mount() Function",
        fix="Keep the functions that register() returns, and return from mount() a function that calls them.",
        required=False,
    )
)
async def cleans_up(replies: HookReplies) -> Problems:
    async with replies.sandboxes.open() as sandbox:
        clean_ups = sandbox.cleanups()
        if not clean_ups:
            return ["mount() returns no clean-up, and registers none."]
        for clean_up in clean_ups:
            await called(clean_up)
        left = sandbox.hooks.list_handlers()
    return [
        f"After the clean-up {', '.join(names)} still listens to {event}." for event, names in left.items() if names
    ]


@rule(
    Check(
        rule=f"its priorities are between {_EARLIEST} and {_LATEST}",
        section="Event Registration",
        fix="Pass priority=50; lower is earlier, and values outside the range are for the kernel.",
        required=False,
    )
)
def has_a_usual_priority(replies: HookReplies) -> Problems:
    return [
        f"{registration.name} listens to {registration.event} with priority {registration.priority}."
        for registration in replies.registrations
        if not _EARLIEST <= registration.priority <= _LATEST
    ]


@rule(
    Check(
        rule="it listens to known events",
        section="Event Registration",
        fix="Correct the name; register a contributor at 'observability.events' for events of your own.",
        required=False,
    )
)
def knows_its_events(replies: HookReplies) -> Problems:
    known = {*events.ALL_EVENTS, *_EVENTS_OF_THE_LOOP, *replies.contributed}
    return [
        f"{registration.name} listens to {registration.event}, which is no event of the kernel and not contributed."
        for registration in replies.registrations
        if registration.event not in known
    ]


RULES: tuple[ValidationRule[HookReplies], ...] = (
    handlers_are_async,
    accepts_contract_data,
    does_not_raise,
    returns_a_result,
    results_are_complete,
    answers_in_time,
    cleans_up,
    has_a_usual_priority,
    knows_its_events,
)
