"""What Slack's errors mean for us: by what is to be done about them."""

from __future__ import annotations

import math
from enum import Enum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from slack_sdk.errors import SlackApiError

LIMITED = "ratelimited"
NO_ANSWER = "no_answer"
NO_THREAD = "thread_not_found"
_SERVER_ERROR = 500
_LONGEST_WAIT_S = 600.0


class RetryDecision(Enum):
    """What an error says about trying on."""

    PASSING = "it may be possible later: Slack is busy or away"
    GONE = "this message cannot be changed (any more)"
    TOO_MUCH = "Slack takes it in another form: shorter, or as plain text"
    CONVERSATION_CLOSED = "we may not write here"
    WORKSPACE_CLOSED = "we may do nothing at all"
    UNAVAILABLE = "this workspace has not got that, or has not allowed it to us"
    REFUSED = "anything else"


# https://docs.slack.dev/reference/methods, each method's page.
_DECISIONS = {
    RetryDecision.PASSING: (
        LIMITED,
        NO_ANSWER,
        "service_unavailable",
        "fatal_error",
        "internal_error",
        "request_timeout",
    ),
    RetryDecision.GONE: (
        "message_not_found",
        "cant_update_message",
        "cant_delete_message",
        "edit_window_closed",
        "message_not_in_streaming_state",
        "streaming_state_conflict",
        "thread_locked",
        "too_many_reactions",
    ),
    RetryDecision.TOO_MUCH: (
        "invalid_blocks",
        "invalid_blocks_format",
        "markdown_text_conflict",
        "msg_blocks_too_long",
        "msg_too_long",
    ),
    RetryDecision.CONVERSATION_CLOSED: (
        "cannot_reply_to_message",
        "channel_not_found",
        "is_archived",
        "messages_tab_disabled",
        "not_in_channel",
        "restricted_action",
        "restricted_action_non_threadable_channel",
        "restricted_action_read_only_channel",
        "restricted_action_thread_locked",
        "restricted_action_thread_only_channel",
    ),
    RetryDecision.WORKSPACE_CLOSED: (
        "account_inactive",
        "invalid_auth",
        "not_authed",
        "token_expired",
        "token_revoked",
    ),
    RetryDecision.UNAVAILABLE: (
        "access_denied",
        "feature_disabled",
        "feature_not_enabled",
        "missing_scope",
        "no_permission",
        "not_allowed_token_type",
        "not_authorized",
        "unknown_method",
    ),
}
_BY_ERROR = {word: verdict for verdict, words in _DECISIONS.items() for word in words}
# Who may not even post is of no use in a workspace.
_FOR_POSTS = {"missing_scope": RetryDecision.WORKSPACE_CLOSED, "thread_locked": RetryDecision.CONVERSATION_CLOSED}


class SlackCallFailed(Exception):  # noqa: N818 - says what happened, as its siblings do
    """Slack did not do what it was asked to.

    Attributes:
        method: what was called.
        error: Slack's own word for why; `no_answer` where Slack did not answer, or something else did in its place.
        retry_after_s: how long Slack asks us to wait.
        needed: the scope that is missing; blank where none is, or Slack does not say which.
    """

    def __init__(self, method: str, error: str, retry_after_s: float | None = None, needed: str = "") -> None:
        super().__init__(f"{method}: {error} ({needed})" if needed else f"{method}: {error}")
        self.method = method
        self.error = error
        self.retry_after_s = retry_after_s
        self.needed = needed

    @property
    def verdict(self) -> RetryDecision:
        """What it says about trying on: some words say more of one method than of the others."""
        verdict = _BY_ERROR.get(self.error, RetryDecision.REFUSED)
        if self.method == "chat.postMessage":
            return _FOR_POSTS.get(self.error, verdict)
        # Who may not share a file may write all the same.
        is_about_files = verdict is RetryDecision.CONVERSATION_CLOSED and self.method.startswith("files.")
        return RetryDecision.UNAVAILABLE if is_about_files else verdict

    @property
    def is_passing(self) -> bool:
        """Whether the same may be possible later: Slack was busy or away."""
        return self.verdict is RetryDecision.PASSING


def failure(method: str, error: SlackApiError) -> SlackCallFailed:
    """What an error of the SDK says."""
    response: Any = error.response
    data = getattr(response, "data", None)
    status = getattr(response, "status_code", _SERVER_ERROR)
    if not isinstance(data, dict) or status >= _SERVER_ERROR:
        return SlackCallFailed(method, NO_ANSWER)
    word = str(data.get("error") or NO_ANSWER)
    if word != LIMITED:
        return SlackCallFailed(method, word, needed=str(data.get("needed") or ""))
    return SlackCallFailed(method, word, _seconds(response.headers.get("Retry-After")))


def _seconds(header: str | None) -> float | None:
    """What a header says, if that is a time to wait; nobody waits for hours because of one."""
    try:
        wait_s = float(header) if header is not None else math.nan
    except ValueError:
        return None
    return min(wait_s, _LONGEST_WAIT_S) if math.isfinite(wait_s) and wait_s >= 0 else None
