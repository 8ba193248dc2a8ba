"""Rules for providers that call a service over HTTP: requests, refused calls and cancelled calls."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestrator_interactive.kernel.contracts.conversion import to_local_error
from orchestrator_interactive.kernel.contracts.errors import LLMError
from orchestrator_interactive.validation.provider.calls import CALLS, SENT, SIGNATURE
from orchestrator_interactive.validation.report import Check
from orchestrator_interactive.validation.runner import (
    UNREQUESTED_CANCEL,
    Cancelled,
    Hung,
    NotChecked,
    Raised,
    Returned,
    error_text,
    rule,
)

if TYPE_CHECKING:
    from orchestrator_interactive.validation.provider.calls import Probed
    from orchestrator_interactive.validation.runner import Problems, ValidationRule

NONE_NEEDED = "None is needed."
_CHECKLIST = "Validation Checklist"


@rule(
    Check(
        rule="a request contains the signature of earlier thinking",
        section=_CHECKLIST,
        fix="Send thinking blocks back as they came, signature included; the service refuses them otherwise.",
    )
)
def sends_the_signature(probed: Probed) -> Problems:
    return [] if SIGNATURE in _sent(probed) else ["The signature of the thinking block is not in the request's body."]


@rule(
    Check(
        rule="a request contains the whole conversation",
        section=_CHECKLIST,
        fix="Convert every message: system, user, assistant with its calls, and the results under the calls' ids.",
    )
)
def sends_the_conversation(probed: Probed) -> Problems:
    sent = _sent(probed)
    problems = [f"The id {call} is not both at its call and at its result." for call in CALLS if sent.count(call) < 2]
    return problems + [
        f"In the request's body {what} is missing." for what, texts in SENT.items() if not all(t in sent for t in texts)
    ]


@rule(
    Check(
        rule="a refusal of its service becomes an LLMError",
        section=_CHECKLIST,
        fix="Raise the error of the LLMError family that fits, such as InvalidRequestError, from the one you catch.",
        required=False,
    )
)
def raises_llm_errors(probed: Probed) -> Problems:
    _sent(probed)
    match probed.refused:
        case Raised(error=Exception() as error) if isinstance(to_local_error(error), LLMError):
            return []
        case Raised(error=error):
            return [f"After HTTP status 400 it raises {error_text(error, probed.location)}."]
        case Returned():
            return ["After HTTP status 400 it returns an answer."]
        case Hung(limit_s=limit_s):
            return [f"After HTTP status 400 it does not end within {limit_s:g} seconds."]
        case _:
            return [f"After HTTP status 400 it {UNREQUESTED_CANCEL}."]


@rule(
    Check(
        rule="a call that is cancelled ends within a second",
        section="Protocol Definition",
        fix="Await the service with an async client, and let CancelledError pass.",
    )
)
def honours_cancellation(probed: Probed) -> Problems:
    _sent(probed)
    match probed.held:
        case Cancelled():
            return []
        case None:
            raise NotChecked("A second request has not reached its service.", "Let every complete() ask the service.")
        case Hung():
            return ["It continues after its cancellation."]
        case Raised(error=error):
            return [f"Cancelled, it raises {error_text(error, probed.location)} instead of CancelledError."]
        case Returned():
            return ["Cancelled, it returns an answer instead of raising CancelledError."]


def _sent(probed: Probed) -> str:
    """Return the body of the request at the mock server.

    Raises:
        NotChecked: no request arrived.
    """
    if probed.asked.caught:
        # The largest is the model call; others may fetch a token or count tokens.
        return max((caught.body for caught in probed.asked.caught), key=len).decode(errors="replace")
    if isinstance(probed.asked.ended, Returned):
        raise NotChecked("It answers without asking a service over HTTP.", NONE_NEEDED)
    raise NotChecked(
        "No request has arrived at the server that the option `base_url` named.",
        "Let the option `base_url` set the address of its service, and give with --config what else it needs.",
    )


WIRE_RULES: tuple[ValidationRule[Probed], ...] = (
    sends_the_signature,
    sends_the_conversation,
    raises_llm_errors,
    honours_cancellation,
)
