"""What is done about each of Slack's errors, by the method that it is said of; in virtual time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import pytest
from slack_sdk.errors import SlackApiError
from virtual_time import in_virtual_time

from connector import Persona
from connector.events import ThreadAddress
from connector.formatting.content import Content
from connector.slack_api.client import SlackClient
from connector.slack_api.errors import RetryDecision, SlackCallFailed, failure
from connector.slack_api.rate_limiter import CallCancelled, CallSlot, RateLimiter

if TYPE_CHECKING:
    from collections.abc import Iterable

    from slack_sdk.web.async_client import AsyncWebClient

POST, UPDATE, DELETE = "chat.postMessage", "chat.update", "chat.delete"
ADD, REMOVE = "reactions.add", "reactions.remove"
METHODS = (POST, UPDATE, DELETE, ADD, REMOVE)
DONE, AGAIN = "it is done", "it is called again"
PLACE = ThreadAddress("T1", "C1", "1.0")

SAID_OF_ANY = {
    AGAIN: ("ratelimited", "service_unavailable", "fatal_error", "internal_error"),
    RetryDecision.GONE: (
        "cant_delete_message",
        "cant_update_message",
        "edit_window_closed",
        "message_not_in_streaming_state",
        "streaming_state_conflict",
        "too_many_reactions",
    ),
    RetryDecision.TOO_MUCH: ("invalid_blocks", "markdown_text_conflict", "msg_blocks_too_long", "msg_too_long"),
    RetryDecision.CONVERSATION_CLOSED: (
        "channel_not_found",
        "is_archived",
        "messages_tab_disabled",
        "not_in_channel",
        "restricted_action",
        "restricted_action_thread_locked",
    ),
    RetryDecision.WORKSPACE_CLOSED: (
        "account_inactive",
        "invalid_auth",
        "not_authed",
        "token_expired",
        "token_revoked",
    ),
    RetryDecision.UNAVAILABLE: ("feature_disabled", "not_authorized", "unknown_method"),
    RetryDecision.REFUSED: ("invalid_arguments", "no_text", "a word of next year"),
}
SAID_OF_ONE = {
    (POST, "missing_scope"): RetryDecision.WORKSPACE_CLOSED,
    (POST, "thread_locked"): RetryDecision.CONVERSATION_CLOSED,
    (POST, "already_reacted"): RetryDecision.REFUSED,
    (UPDATE, "missing_scope"): RetryDecision.UNAVAILABLE,
    (UPDATE, "message_not_found"): RetryDecision.GONE,
    (UPDATE, "thread_locked"): RetryDecision.GONE,
    (DELETE, "message_not_found"): DONE,
    (DELETE, "missing_scope"): RetryDecision.UNAVAILABLE,
    (ADD, "already_reacted"): DONE,
    (ADD, "message_not_found"): DONE,
    (ADD, "missing_scope"): RetryDecision.UNAVAILABLE,
    (ADD, "thread_locked"): RetryDecision.GONE,
    (REMOVE, "message_not_found"): DONE,
    (REMOVE, "missing_scope"): RetryDecision.UNAVAILABLE,
    (REMOVE, "no_reaction"): DONE,
    (REMOVE, "thread_locked"): RetryDecision.GONE,
    ("files.completeUploadExternal", "restricted_action"): RetryDecision.UNAVAILABLE,
}
TABLE = [(method, word, done) for done, words in SAID_OF_ANY.items() for word in words for method in METHODS]
TABLE += [(method, word, done) for (method, word), done in SAID_OF_ONE.items()]


class _Answer(dict[str, Any]):
    """As the SDK hands on what Slack answers."""

    def __init__(self, data: dict[str, Any], headers: dict[str, str] | None = None) -> None:
        super().__init__(data)
        self.data = data
        self.headers = headers or {}
        self.status_code = 200


class _Client:
    """A Slack that refuses one method a few times."""

    def __init__(self, method: str, refusals: Iterable[dict[str, Any]]) -> None:
        self._method = method
        self._refusals = iter(refusals)
        self.heard: list[dict[str, Any]] = []

    async def api_call(self, method: str, *, data: dict[str, Any]) -> _Answer:
        if method == self._method:
            self.heard.append(data)
            if (refusal := next(self._refusals, None)) is not None:
                raise SlackApiError("refused", _Answer({"ok": False, **refusal}))
        return _Answer({"ok": True, "ts": "2.0", "message": {"thread_ts": "1.0"}, "messages": []})


async def _call(wire: SlackClient, method: str) -> None:
    match method:
        case "chat.postMessage":
            await wire.post(PLACE, Content("text"), "key")
        case "chat.update":
            await wire.update("C1", "2.0", lambda: Content("text"), CallSlot())
        case "chat.delete":
            await wire.delete("C1", "2.0")
        case "reactions.add":
            await wire.react("C1", "2.0", "eyes", CallSlot())
        case "reactions.remove":
            await wire.unreact("C1", "2.0", "eyes")
        case _:
            await wire.call(method, {}, CallSlot())


@pytest.mark.parametrize(("method", "word", "done"), TABLE)
@in_virtual_time
async def test_what_slack_says_decides_what_is_done(method, word, done):
    client = _Client(method, [{"error": word}])
    outcome: object
    async with RateLimiter("T1") as scheduler:
        try:
            await _call(SlackClient(cast("AsyncWebClient", client), scheduler), method)
        except SlackCallFailed as e:
            outcome = e.verdict
        else:
            outcome = DONE if len(client.heard) == 1 else AGAIN
    assert outcome == done


CUSTOMIZE = {"error": "missing_scope", "needed": "chat:write.customize"}


@pytest.mark.parametrize("refusal", [CUSTOMIZE, {"error": "missing_scope"}])
@in_virtual_time
async def test_who_may_not_post_under_another_name_posts_under_the_bots_own(refusal):
    client = _Client(POST, [refusal])
    async with RateLimiter("T1") as scheduler:
        wire = SlackClient(cast("AsyncWebClient", client), scheduler)
        for key in ("one", "two"):
            await wire.post(PLACE, Content("text"), key, Persona("Alpha", ":owl:"))
        assert ["username" in post for post in client.heard] == [True, False, False]


@in_virtual_time
async def test_who_may_not_post_at_all_does_not_try_again_under_the_bots_own_name():
    client = _Client(POST, [{"error": "missing_scope", "needed": "chat:write"}])
    async with RateLimiter("T1") as scheduler:
        wire = SlackClient(cast("AsyncWebClient", client), scheduler)
        with pytest.raises(SlackCallFailed, match="chat:write"):
            await wire.post(PLACE, Content("text"), "key", Persona("Alpha", ":owl:"))
        assert (await wire.closed()).error == "missing_scope"
    assert len(client.heard) == 1


@in_virtual_time
async def test_what_nobody_wants_any_more_is_not_sent_though_its_turn_has_come():
    client = _Client(POST, [])
    turn = CallSlot()

    async def confirm() -> None:
        turn.scope.forget()

    async with RateLimiter("T1") as scheduler:
        wire = SlackClient(cast("AsyncWebClient", client), scheduler)
        with pytest.raises(CallCancelled):
            await wire.post(PLACE, Content("text"), "key", turn=turn, confirm=confirm)
    assert not client.heard


@pytest.mark.parametrize(
    ("header", "wait_s"),
    [("7", 7), ("0", 0), ("86400", 600), ("inf", None), ("nan", None), ("-3", None), ("soon", None), (None, None)],
)
def test_only_a_time_that_can_be_waited_for_is_one(header, wait_s):
    answer = _Answer({"ok": False, "error": "ratelimited"}, {} if header is None else {"Retry-After": header})
    assert failure(POST, SlackApiError("refused", answer)).retry_after_s == wait_s
