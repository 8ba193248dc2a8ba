"""Slack's errors, classified by how to handle them, and the delays between retries."""

from __future__ import annotations

import math
import random
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

import structlog

from connector.protocols import LeaseLost

if TYPE_CHECKING:
    from collections.abc import Iterator

    from slack_sdk.errors import SlackApiError

log = structlog.get_logger(__name__)

LIMITED = "ratelimited"
NO_ANSWER = "no_answer"
NO_THREAD = "thread_not_found"
# HTTP 404: the method does not exist at this address.
NOT_FOUND = "http_404"
_SERVER_ERROR = 500
_LONGEST_WAIT_S = 600.0
_MAX_DOUBLINGS = 20


@dataclass(frozen=True, slots=True)
class Backoff:
    """Delays that double with each failure up to `longest_s`. Up to the share `jitter` of a delay is left out."""

    first_s: float
    longest_s: float
    jitter: float = 0.0

    def delay_s(self, failures: int) -> float:
        """Return the seconds to wait after this many consecutive failures."""
        if failures < 1:
            return 0.0
        full_s = min(self.first_s * 2.0 ** min(failures - 1, _MAX_DOUBLINGS), self.longest_s)
        return full_s * (1 - self.jitter * random.random())  # noqa: S311 - no secret


class RetryDecision(Enum):
    """How to handle an error. TRANSIENT is retried; the others are final for this call."""

    TRANSIENT = "transient: Slack is busy or unavailable"
    GONE = "the message cannot be changed"
    TOO_MUCH = "the content is refused: send it shorter, or as plain text"
    CONVERSATION_CLOSED = "the bot may not write in this conversation"
    WORKSPACE_CLOSED = "the bot has no access to the workspace"
    UNAVAILABLE = "the workspace lacks this feature or has not granted it"
    REFUSED = "any other error"


# https://docs.slack.dev/reference/methods, each method's page.
_DECISIONS = {
    RetryDecision.TRANSIENT: f"{LIMITED} {NO_ANSWER} service_unavailable fatal_error internal_error request_timeout",
    RetryDecision.GONE: (
        "message_not_found cant_update_message cant_delete_message edit_window_closed message_not_in_streaming_state "
        "streaming_state_conflict thread_locked too_many_reactions"
    ),
    RetryDecision.TOO_MUCH: (
        "invalid_blocks invalid_blocks_format markdown_text_conflict msg_blocks_too_long msg_too_long"
    ),
    RetryDecision.CONVERSATION_CLOSED: (
        "cannot_reply_to_message channel_not_found is_archived messages_tab_disabled not_in_channel restricted_action "
        "restricted_action_non_threadable_channel restricted_action_read_only_channel restricted_action_thread_locked "
        "restricted_action_thread_only_channel"
    ),
    RetryDecision.WORKSPACE_CLOSED: "account_inactive invalid_auth not_authed token_expired token_revoked",
    RetryDecision.UNAVAILABLE: (
        "access_denied canvas_disabled_user_team feature_disabled feature_not_enabled "
        "free_teams_cannot_create_non_tabbed_canvases missing_scope no_permission not_allowed_token_type "
        "not_authorized unknown_method"
    ),
}
_BY_ERROR = {word: decision for decision, words in _DECISIONS.items() for word in words.split()}
# Decisions that differ for posts: without the scope to post, the workspace is unusable.
_FOR_POSTS = {"missing_scope": RetryDecision.WORKSPACE_CLOSED, "thread_locked": RetryDecision.CONVERSATION_CLOSED}


class SlackCallFailed(Exception):  # noqa: N818 - named after the event, like its siblings
    """A Web API call failed.

    Attributes:
        method: the Web API method.
        error: Slack's error code; `no_answer`: there was no response, or it was not Slack's; `http_404`.
        retry_after_s: the wait that Slack requests.
        needed: the missing scope; blank if none is missing, or Slack does not name it.
    """

    def __init__(self, method: str, error: str, retry_after_s: float | None = None, needed: str = "") -> None:
        super().__init__(f"{method}: {error} ({needed})" if needed else f"{method}: {error}")
        self.method = method
        self.error = error
        self.retry_after_s = retry_after_s
        self.needed = needed

    @property
    def decision(self) -> RetryDecision:
        """How to handle the error; for some codes this depends on the method."""
        decision = _BY_ERROR.get(self.error, RetryDecision.REFUSED)
        if self.method == "chat.postMessage":
            return _FOR_POSTS.get(self.error, decision)
        # The bot may still be allowed to post where it may not share files or canvases.
        is_about_files = self.method.startswith(("files.", "canvases."))
        is_closed = decision is RetryDecision.CONVERSATION_CLOSED
        return RetryDecision.UNAVAILABLE if is_closed and is_about_files else decision

    @property
    def may_be_unreachable(self) -> bool:
        """Whether Slack may be unreachable at this address: the error is transient, or nothing there is its Web API."""
        return self.is_transient or self.error == NOT_FOUND

    @property
    def is_transient(self) -> bool:
        """Whether the error is transient: Slack was busy or unavailable."""
        return self.decision is RetryDecision.TRANSIENT


def failure(method: str, error: SlackApiError) -> SlackCallFailed:
    """Convert an error of the SDK."""
    response: Any = error.response
    data = getattr(response, "data", None)
    # Of a response that is not JSON, the SDK passes on aiohttp's object.
    status: int = getattr(response, "status_code", None) or getattr(response, "status", None) or _SERVER_ERROR
    if status == HTTPStatus.NOT_FOUND:
        return SlackCallFailed(method, NOT_FOUND)
    if not isinstance(data, dict) or status >= _SERVER_ERROR:
        return SlackCallFailed(method, NO_ANSWER)
    word = str(data.get("error") or NO_ANSWER)
    if word != LIMITED:
        return SlackCallFailed(method, word, needed=str(data.get("needed") or ""))
    return SlackCallFailed(method, word, seconds_of(response.headers.get("Retry-After")))


def seconds_of(header: str | None) -> float | None:
    """Parse a `Retry-After` header, at most ten minutes; `None`: missing or invalid."""
    try:
        wait_s = float(header) if header is not None else math.nan
    except ValueError:
        return None
    return min(wait_s, _LONGEST_WAIT_S) if math.isfinite(wait_s) and wait_s >= 0 else None


@contextmanager
def error_boundary(event: str, **fields: Any) -> Iterator[None]:
    """Log an error of a handler of Slack's events and calls as `event`, and continue. `LeaseLost` is raised."""
    try:
        yield
    except LeaseLost:
        raise
    except Exception:  # a Slack handler's border
        log.exception(event, **fields)
