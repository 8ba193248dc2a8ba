"""Rules for providers: their metadata, responses and requests."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from orchestrator_interactive.kernel.contracts.conversion import to_local, to_local_error
from orchestrator_interactive.kernel.contracts.errors import LLMError
from orchestrator_interactive.kernel.contracts.messages import ChatResponse, ToolCall
from orchestrator_interactive.kernel.contracts.models import ModelInfo, ProviderInfo
from orchestrator_interactive.validation.provider.calls import Prober, native, response_with
from orchestrator_interactive.validation.provider.service_answers import SIGNATURE
from orchestrator_interactive.validation.provider.wire import NONE_NEEDED, WIRE_RULES
from orchestrator_interactive.validation.report import Check
from orchestrator_interactive.validation.runner import (
    UNREQUESTED_CANCEL,
    Cancelled,
    Hung,
    NotChecked,
    Raised,
    Returned,
    Tolerated,
    error_text,
    kind,
    rule,
)

if TYPE_CHECKING:
    from orchestrator_interactive.validation.provider.calls import Probed
    from orchestrator_interactive.validation.provider.catching_server import CatchingServer
    from orchestrator_interactive.validation.runner import Problems, ValidationRule, Validator
    from orchestrator_interactive.validation.sandbox import SandboxSession

_PROTOCOL = "Protocol Definition"
_CHECKLIST = "Validation Checklist"

UNANSWERED = "It calls a service whose response format the mock server does not know."
TEST_IT = "Test it against recorded responses of the service."

_CALLS = (
    ToolCall(id="call_1", name="read_file", arguments={"path": "a.txt", "lines": [1, 2]}),
    ToolCall(id="call_2", name="list_files", arguments={}),
)


async def check_provider(validator: Validator, sandboxes: SandboxSession, server: CatchingServer) -> None:
    """Call each provider of the module against the mock server, then check the rules."""
    prober = Prober(validator, server)
    async with sandboxes.open() as sandbox:
        for mounted in sandbox.all("provider"):
            await validator.check_all((*RULES, *WIRE_RULES), await prober.probe(mounted))


@rule(
    Check(
        rule="get_info() identifies the provider",
        section=_PROTOCOL,
        fix="Return ProviderInfo(id='my-provider', display_name='My provider', …) from a plain get_info().",
    )
)
def identifies_itself(probed: Probed) -> Problems:
    info = to_local(probed.provider.get_info())
    if not isinstance(info, ProviderInfo):
        return [f"It returns {kind(info)}, not a ProviderInfo."]
    return [f"Its {name} is blank." for name in ("id", "display_name") if not getattr(info, name).strip()]


@rule(
    Check(
        rule="get_info() reports the limits of its model",
        section=_PROTOCOL,
        fix="Give defaults={'context_window': …, 'max_output_tokens': …}, in tokens: contexts compact by them.",
        required=False,
    )
)
def reports_limits(probed: Probed) -> Problems:
    defaults = getattr(probed.provider.get_info(), "defaults", None) or {}
    return [
        f"Its defaults have no number of tokens for '{name}'."
        for name in ("context_window", "max_output_tokens")
        if not isinstance(defaults.get(name), int) or defaults[name] <= 0
    ]


@rule(
    Check(
        rule="list_models() gives a list of ModelInfo",
        section=_PROTOCOL,
        fix="Return a list of ModelInfo; an empty one if the models are not available.",
    )
)
def lists_its_models(probed: Probed) -> Problems:
    match probed.models:
        case Returned(value=list() as models):
            wrong = [model for model in models if not isinstance(to_local(model), ModelInfo)]
            return [f"There is {kind(wrong[0])} in the list."] if wrong else []
        case Returned(value=value):
            return [f"It returns {kind(value)}."]
        case Raised() if probed.models_unanswered:
            raise NotChecked(UNANSWERED, TEST_IT)
        case Raised(error=error):
            raise Tolerated(f"It raises {error_text(error, probed.location)}.")
        case Hung(limit_s=limit_s):
            raise Tolerated(f"It does not end within {limit_s:g} seconds.")
        case _:
            return [f"It {UNREQUESTED_CANCEL}."]


@rule(
    Check(
        rule="parse_tool_calls() gives the calls of a response, none, one or several",
        section=_PROTOCOL,
        fix="Return a list of ToolCall (id, name, arguments), in the order of the response.",
    )
)
def parses_calls(probed: Probed) -> Problems:
    problems = []
    for count in range(len(_CALLS) + 1):
        response = native(probed.provider, response_with(*_CALLS[:count]))
        got = probed.provider.parse_tool_calls(response)
        if not isinstance(got, list):
            problems.append(f"Of a response with {count} calls it makes {kind(got)}, not a list.")
        elif [_call_fields(call) for call in got] != [_call_fields(call) for call in _CALLS[:count]]:
            problems.append(f"Of a response with {count} calls it makes {[_call_fields(call) for call in got]}.")
    return problems


def _call_fields(call: Any) -> dict[str, Any]:
    return {name: getattr(call, name, None) for name in ("id", "name", "arguments")}


@rule(
    Check(
        rule="parse_tool_calls() leaves the response as it is",
        section=_PROTOCOL,
        fix="Make new ToolCall objects of what you read; change neither the response nor its blocks.",
    )
)
def parsing_changes_nothing(probed: Probed) -> Problems:
    response = native(probed.provider, response_with(*_CALLS))
    before = response.model_dump()
    probed.provider.parse_tool_calls(response)
    return ["The response is changed afterwards."] if response.model_dump() != before else []


@rule(
    Check(
        rule="complete() returns a ChatResponse with content blocks",
        section=_CHECKLIST,
        fix="Return ChatResponse(content=[…blocks…], usage=…); raise an LLMError where there is no answer.",
    )
)
def answers(probed: Probed) -> Problems:
    answer = _answer(probed)
    if not isinstance(answer, ChatResponse):
        return [f"It returns {kind(answer)}."]
    return [] if answer.content else ["Its content is empty."]


@rule(
    Check(
        rule="complete() reports the tokens that it used",
        section=_CHECKLIST,
        fix="Give usage=Usage(input_tokens=…, output_tokens=…, total_tokens=…); the total is the sum of both.",
    )
)
def reports_usage(probed: Probed) -> Problems:
    usage = getattr(_answer(probed), "usage", None)
    if usage is None:
        return ["The response has no usage."]
    counts = {name: getattr(usage, name) for name in ("input_tokens", "output_tokens", "total_tokens")}
    if min(counts.values()) < 0:
        return [f"A number of tokens is negative: {counts}."]
    total = usage.input_tokens + usage.output_tokens
    return (
        [] if usage.total_tokens == total else [f"total_tokens is {usage.total_tokens}; input and output are {total}."]
    )


@rule(
    Check(
        rule="complete() keeps the thinking of an answer, with its signature",
        section=_CHECKLIST,
        fix="Make a ThinkingBlock(thinking=…, signature=…) of each block of thinking: the next request needs it.",
    )
)
def keeps_thinking(probed: Probed) -> Problems:
    answer = _answer(probed)
    if not any(caught.answer and caught.answer.has_signature for caught in probed.asked.caught):
        raise NotChecked("Its service has not answered with thinking that is signed.", NONE_NEEDED)
    signed = [block for block in answer.content if getattr(block, "signature", None) == SIGNATURE]
    return [] if signed else ["The signature of the thinking in the service's answer is not in the response."]


@rule(
    Check(
        rule="complete() leaves the request as it is",
        section=_CHECKLIST,
        fix="Build what you send anew; the orchestrator keeps the request, and asks with its messages again.",
    )
)
def leaves_the_request(probed: Probed) -> Problems:
    changed = [name for name, value in probed.asked.before.items() if probed.asked.after.get(name) != value]
    return [f"After the call its '{name}' is changed." for name in changed]


def _own(error: BaseException) -> BaseException:
    return to_local_error(error) if isinstance(error, Exception) else error


def _answer(probed: Probed) -> Any:
    """Return the result of `complete`.

    Raises:
        NotChecked: the call failed for lack of its service.
    """
    match probed.asked.ended:
        case Returned(value=value):
            return value
        case _ if probed.unanswered:
            raise NotChecked(UNANSWERED, TEST_IT)
        case Raised(error=error) if not probed.asked.caught and isinstance(_own(error), LLMError | OSError):
            raise NotChecked(
                f"It raises {error_text(error, probed.location)}, and has called nothing at the option `base_url`.",
                "Pass its configuration with --config, and let the option `base_url` set its service's address.",
            )
        case Raised(error=error):
            raise error
        case Hung(limit_s=limit_s):
            raise NotChecked(
                f"It does not end within {limit_s:g} seconds.",
                "Let the option `base_url` set its service's address, and let it answer sooner.",
            )
        case Cancelled():
            raise NotChecked(f"It {UNREQUESTED_CANCEL}.", "Find the code that cancels it.")


RULES: tuple[ValidationRule[Probed], ...] = (
    identifies_itself,
    reports_limits,
    lists_its_models,
    parses_calls,
    parsing_changes_nothing,
    answers,
    reports_usage,
    keeps_thinking,
    leaves_the_request,
)
