"""What a person reads when a run could not answer."""

from __future__ import annotations

import math

from orchestrator_interactive.interactions.errors import (
    ConversationFinished,
    DamagedLog,
    InteractionError,
    WriteConflict,
)
from orchestrator_interactive.kernel.contracts import errors
from orchestrator_interactive.modules.tool_filesystem.quota import NoRoom
from orchestrator_interactive.storage.errors import StoreError
from service.sessions.workspace_template import WorkspaceTemplateTooLarge


class Interrupted(Exception):  # noqa: N818 - a fact about the run
    """A run was interrupted, and nothing is left of it to go on from."""


_AGAIN = "Write again to try once more."
_OPERATOR = "Whoever runs this bot finds the reason in its log."
_FULL = (
    "There is no room on the disk for the files of this conversation. Whoever runs this bot has to make room; then "
    "write again."
)
_TEMPLATE_TOO_LARGE = (
    f"The template of new workspace folders is larger than a folder may be, so I cannot begin here. {_OPERATOR}"
)

# The first kind that fits speaks.
_SENTENCES: tuple[tuple[type[Exception], str], ...] = (
    (errors.AuthenticationError, f"The model's service does not accept our key. {_OPERATOR}"),
    (errors.RateLimitError, "The model's service asks us to slow down. Write again in {wait}."),
    (errors.ContextLengthError, "This conversation has become too long for the model. Start a new thread, please."),
    (errors.ContentFilterError, "The model's service refused this content. Put it differently, please."),
    (errors.LLMTimeoutError, f"The model stopped answering. {_AGAIN}"),
    (errors.ProviderUnavailableError, f"The model's service is not available at the moment. {_AGAIN}"),
    (errors.LLMError, f"The model's service refused the request. {_AGAIN} If that does not help, start a new thread."),
    (Interrupted, "I was interrupted, and what I was doing is lost. Write again."),
    (
        WriteConflict,
        "Somebody changed this conversation from outside, so I stopped. Write again: I go on from where it stands now.",
    ),
    (ConversationFinished, "This conversation is finished: nothing can be added to it. Start a new thread, please."),
    (DamagedLog, f"What was said here cannot be read. Start a new thread, please. {_OPERATOR}"),
    (StoreError, f"What is said here cannot be kept at the moment, so I stopped. {_AGAIN} {_OPERATOR}"),
    (InteractionError, f"What was said here cannot be read. Start a new thread, please. {_OPERATOR}"),
    (errors.ModuleNotFoundError, f"This agent is not set up correctly. {_OPERATOR}"),
    (errors.ModuleLoadError, f"This agent is not set up correctly. {_OPERATOR}"),
    (TimeoutError, f"The model stopped answering. {_AGAIN}"),
    (ConnectionError, f"The model's service cannot be reached at the moment. {_AGAIN}"),
    (NoRoom, _FULL),
    (WorkspaceTemplateTooLarge, _TEMPLATE_TOO_LARGE),
    (OSError, f"The files of this conversation cannot be used. {_OPERATOR}"),
    (Exception, f"Something went wrong on my side. {_AGAIN} {_OPERATOR}"),
)


def sentence(error: Exception) -> str:
    """Say plainly what went wrong and what to do."""
    wait = _in_words(getattr(error, "retry_after", None))
    return next(text for kind, text in _SENTENCES if isinstance(error, kind)).format(wait=wait)


def _in_words(wait_s: float | None) -> str:
    if wait_s is None or not math.isfinite(wait_s):
        return "a minute"
    for unit, length_s in (("hours", 3600), ("minutes", 60)):
        if wait_s >= 2 * length_s:
            return f"about {math.ceil(wait_s / length_s)} {unit}"
    return f"about {max(2, math.ceil(wait_s))} seconds"
