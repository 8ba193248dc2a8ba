"""What the client does about each error of Slack, by method; in virtual time."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import pytest
from fake_web_api import FakeResponse, FakeWebClient
from slack_sdk.errors import SlackApiError
from virtual_time import in_virtual_time

from connector import Persona
from connector.events import ThreadAddress
from connector.formatting.content import Content
from connector.slack_api.client import SlackClient
from connector.slack_api.errors import Backoff, RetryDecision, SlackCallFailed, failure
from connector.slack_api.rate_limiter import CallCancelled, CallSlot, RateLimiter
from local_slack import ErrorResponse, ServerError

POST, UPDATE, DELETE = "chat.postMessage", "chat.update", "chat.delete"
ADD, REMOVE = "reactions.add", "reactions.remove"
METHODS = (POST, UPDATE, DELETE, ADD, REMOVE)
SUCCESS, REPEATED = "success", "repeated"
PLACE = ThreadAddress("T1", "C1", "1.0")
ALPHA = Persona("Alpha", ":owl:")

OF_ALL_METHODS = {
    REPEATED: "ratelimited service_unavailable fatal_error internal_error",
    RetryDecision.GONE: (
        "cant_delete_message cant_update_message edit_window_closed message_not_in_streaming_state "
        "streaming_state_conflict too_many_reactions"
    ),
    RetryDecision.TOO_MUCH: "invalid_blocks markdown_text_conflict msg_blocks_too_long msg_too_long",
    RetryDecision.CONVERSATION_CLOSED: (
        "channel_not_found is_archived messages_tab_disabled not_in_channel restricted_action "
        "restricted_action_thread_locked"
    ),
    RetryDecision.WORKSPACE_CLOSED: "account_inactive invalid_auth not_authed token_expired token_revoked",
    RetryDecision.UNAVAILABLE: "feature_disabled not_authorized unknown_method",
    RetryDecision.REFUSED: "invalid_arguments no_text an_error_of_next_year",
}
OF_ONE_METHOD = {
    (POST, "missing_scope"): RetryDecision.WORKSPACE_CLOSED,
    (POST, "thread_locked"): RetryDecision.CONVERSATION_CLOSED,
    (POST, "already_reacted"): RetryDecision.REFUSED,
    (UPDATE, "missing_scope"): RetryDecision.UNAVAILABLE,
    (UPDATE, "message_not_found"): RetryDecision.GONE,
    (UPDATE, "thread_locked"): RetryDecision.GONE,
    (DELETE, "message_not_found"): SUCCESS,
    (DELETE, "missing_scope"): RetryDecision.UNAVAILABLE,
    (ADD, "already_reacted"): SUCCESS,
    (ADD, "message_not_found"): SUCCESS,
    (ADD, "missing_scope"): RetryDecision.UNAVAILABLE,
    (ADD, "thread_locked"): RetryDecision.GONE,
    (REMOVE, "message_not_found"): SUCCESS,
    (REMOVE, "missing_scope"): RetryDecision.UNAVAILABLE,
    (REMOVE, "no_reaction"): SUCCESS,
    (REMOVE, "thread_locked"): RetryDecision.GONE,
    ("files.completeUploadExternal", "restricted_action"): RetryDecision.UNAVAILABLE,
    ("canvases.access.set", "channel_not_found"): RetryDecision.UNAVAILABLE,
}
TABLE = [
    (method, error, end) for end, errors in OF_ALL_METHODS.items() for error in errors.split() for method in METHODS
]
TABLE += [(method, error, end) for (method, error), end in OF_ONE_METHOD.items()]


def web_client_of(method: str, *errors: dict[str, Any]) -> FakeWebClient:
    """Return a client whose calls of a method fail with these errors first."""
    return FakeWebClient(errors={method: errors})


async def call(client: SlackClient, method: str) -> None:
    match method:
        case "chat.postMessage":
            await client.post(PLACE, Content("text"), "key")
        case "chat.update":
            await client.update("C1", "2.0", lambda: Content("text"), CallSlot())
        case "chat.delete":
            await client.delete("C1", "2.0")
        case "reactions.add":
            await client.react("C1", "2.0", "eyes", CallSlot())
        case "reactions.remove":
            await client.unreact("C1", "2.0", "eyes")
        case _:
            await client.call(method, {}, CallSlot())


@pytest.mark.parametrize(("method", "error", "end"), TABLE)
@in_virtual_time
async def test_the_error_and_the_method_decide_what_is_done(method, error, end):
    web_client = web_client_of(method, {"error": error})
    fails = isinstance(end, RetryDecision)
    async with RateLimiter("T1") as rate_limiter:
        with pytest.raises(SlackCallFailed) if fails else nullcontext() as failed:
            await call(SlackClient(web_client, rate_limiter), method)
    assert not fails or failed.value.decision == end
    assert len(web_client.calls_of(method)) == (2 if end == REPEATED else 1)


@pytest.mark.parametrize("needed", [{"needed": "chat:write.customize"}, {}])
@in_virtual_time
async def test_without_the_scope_for_a_persona_posts_have_the_name_of_the_bot(needed):
    web_client = web_client_of(POST, {"error": "missing_scope", **needed})
    async with RateLimiter("T1") as rate_limiter:
        client = SlackClient(web_client, rate_limiter)
        for key in ("one", "two"):
            await client.post(PLACE, Content("text"), key, ALPHA)
    assert ["username" in post for post in web_client.calls_of(POST)] == [True, False, False]


@in_virtual_time
async def test_without_the_scope_for_posts_the_post_is_not_repeated_and_the_workspace_is_closed():
    web_client = web_client_of(POST, {"error": "missing_scope", "needed": "chat:write"})
    async with RateLimiter("T1") as rate_limiter:
        client = SlackClient(web_client, rate_limiter)
        with pytest.raises(SlackCallFailed, match="chat:write"):
            await client.post(PLACE, Content("text"), "key", ALPHA)
        assert (await client.closed()).error == "missing_scope"
    assert len(web_client.calls_of(POST)) == 1


@in_virtual_time
async def test_a_call_that_is_cancelled_while_it_is_confirmed_is_not_sent():
    web_client, slot = web_client_of(POST), CallSlot()

    async def confirm() -> None:
        slot.scope.cancel()

    async with RateLimiter("T1") as rate_limiter:
        with pytest.raises(CallCancelled):
            await SlackClient(web_client, rate_limiter).post(PLACE, Content("text"), "key", slot=slot, confirm=confirm)
    assert not web_client.calls


@pytest.mark.parametrize("fault", [ServerError(404), ErrorResponse("invalid_arguments")], ids=str)
async def test_http_404_is_an_error_of_the_call_and_not_repeated(client, slack, fault):
    slack.faults.next("users.info", fault, times=9)
    with pytest.raises(SlackCallFailed) as failed:
        await SlackClient.retry_until_done(lambda: client.call("users.info", {"user": "U0ANA"}, CallSlot()))
    assert failed.value.decision is RetryDecision.REFUSED
    assert slack.faults.pending("users.info") == 8


@pytest.mark.parametrize(
    ("header", "wait_s"),
    [("7", 7), ("0", 0), ("86400", 600), ("inf", None), ("nan", None), ("-3", None), ("soon", None), (None, None)],
)
def test_a_retry_after_header_is_a_number_of_seconds_up_to_ten_minutes(header, wait_s):
    headers = {} if header is None else {"Retry-After": header}
    error = SlackApiError("refused", FakeResponse({"ok": False, "error": "ratelimited"}, headers))
    assert failure(POST, error).retry_after_s == wait_s


def test_each_delay_is_longer_than_the_one_before_up_to_a_limit_with_a_random_part():
    backoff, shorter = Backoff(0.1, 30), Backoff(0.1, 30, jitter=0.5)
    assert [backoff.delay_s(failures) for failures in (0, 1, 2, 3, 10_000)] == [0, 0.1, 0.2, 0.4, 30]
    assert all(backoff.delay_s(n) / 2 <= shorter.delay_s(n) <= backoff.delay_s(n) for n in range(1, 12))
