"""Errors of a run for the connector, with messages for users."""

from __future__ import annotations

import math
from contextlib import contextmanager
from typing import TYPE_CHECKING

import structlog

from connector.protocols import LeaseLost, RunFailed
from orchestrator_interactive.interactions.errors import (
    ConversationFinished,
    DamagedLog,
    Fenced,
    InteractionError,
    WriteConflict,
)
from orchestrator_interactive.kernel.contracts import errors
from orchestrator_interactive.modules.tool_filesystem.quota import NoRoom
from orchestrator_interactive.storage.errors import StoreError
from service.sessions.workspaces import WorkspaceTemplateTooLarge

if TYPE_CHECKING:
    from collections.abc import Iterator

    from orchestrator_interactive.interactions.records import Key

log = structlog.get_logger(__name__)


class Interrupted(Exception):  # noqa: N818 - a fact about the run
    """A run was interrupted and cannot be resumed: nothing is logged, or its loop does not support it."""


_AGAIN = "Send a message to try again."
_OPERATOR = "The operator of this bot can find the reason in its log."
_FULL = (
    "The disk is full, so I cannot store the files of this conversation. Ask the operator of this bot to free space, "
    "then send a message to try again."
)
_TEMPLATE_TOO_LARGE = (
    f"I cannot start here: the template of new workspace folders exceeds their size limit. {_OPERATOR}"
)

# The first matching type determines the message.
_SENTENCES: tuple[tuple[type[Exception], str], ...] = (
    (errors.AuthenticationError, f"The model provider does not accept our API key. {_OPERATOR}"),
    (errors.RateLimitError, "The model provider's rate limit is reached. Try again in {wait}."),
    (errors.ContextLengthError, "This conversation has become too long for the model. Start a new thread, please."),
    (errors.ContentFilterError, "The model provider refused this content. Rephrase it in a new thread, please."),
    (errors.LLMTimeoutError, f"The model stopped answering. {_AGAIN}"),
    (errors.ProviderUnavailableError, f"The model provider is not available at the moment. {_AGAIN}"),
    (errors.LLMError, f"The model provider refused the request. {_AGAIN} If that fails, too, start a new thread."),
    (Interrupted, f"I was interrupted and lost my work. {_AGAIN}"),
    (
        WriteConflict,
        f"Another program changed this conversation, so I stopped. {_AGAIN} I will continue from its current state.",
    ),
    (ConversationFinished, "This conversation is finished and accepts no messages. Start a new thread, please."),
    (DamagedLog, f"The log of this conversation cannot be read. Start a new thread, please. {_OPERATOR}"),
    (StoreError, f"I cannot save this conversation at the moment, so I stopped. {_AGAIN} {_OPERATOR}"),
    (InteractionError, f"The log of this conversation cannot be read. Start a new thread, please. {_OPERATOR}"),
    (errors.ModuleNotFoundError, f"This agent is not set up correctly. {_OPERATOR}"),
    (errors.ModuleLoadError, f"This agent is not set up correctly. {_OPERATOR}"),
    (TimeoutError, f"The model stopped answering. {_AGAIN}"),
    (ConnectionError, f"The model provider cannot be reached at the moment. {_AGAIN}"),
    (NoRoom, _FULL),
    (WorkspaceTemplateTooLarge, _TEMPLATE_TOO_LARGE),
    (OSError, f"The files of this conversation cannot be used. {_OPERATOR}"),
    (Exception, f"An internal error occurred. {_AGAIN} {_OPERATOR}"),
)


def sentence(error: Exception) -> str:
    """Return the message for an error: the problem and its remedy."""
    wait = _in_words(getattr(error, "retry_after", None))
    return next(text for kind, text in _SENTENCES if isinstance(error, kind)).format(wait=wait)


def _in_words(wait_s: float | None) -> str:
    if wait_s is None or not math.isfinite(wait_s):
        return "a minute"
    for unit, length_s in (("hours", 3600), ("minutes", 60)):
        if wait_s >= 2 * length_s:
            return f"about {math.ceil(wait_s / length_s)} {unit}"
    return f"about {max(2, math.ceil(wait_s))} seconds"


@contextmanager
def connector_errors(key: Key, *, transient: tuple[type[Exception], ...] = ()) -> Iterator[None]:
    """Convert errors to those of the connector: users see a sentence, the log has the details.

    `transient` errors are raised unchanged, except for a damaged log, which is permanent.
    """
    try:
        yield
    except Exception as e:  # a Slack handler's border
        if isinstance(e, transient) and not isinstance(e, DamagedLog):
            raise
        place = {"instance": key.agent_id, "conversation": key.conversation_id}
        if _is_fenced(e):
            log.warning("run.fenced", **place)
            raise LeaseLost(f"Another process owns the conversation {key.conversation_id}.") from e
        if isinstance(e, errors.LLMError):  # its reason is not in our code
            log.error("run.failed", **place, error=type(e).__name__, reason=str(e))  # noqa: TRY400 - the traceback follows
            log.debug("run.failed_traceback", **place, exc_info=e)
        else:
            log.error("run.failed", **place, exc_info=e)  # noqa: TRY400 - the traceback is that of the error
        raise RunFailed(sentence(e)) from e


def _is_fenced(error: BaseException | None) -> bool:
    """Return whether a refused fencing token is anywhere in the chain of causes."""
    while error is not None:
        if isinstance(error, Fenced | LeaseLost):
            return True
        error = error.__cause__ or error.__context__
    return False
