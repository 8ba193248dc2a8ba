"""Slack's rate limits per method, with a fake clock."""

from __future__ import annotations

import aiohttp
import pytest
from slack_errors import error_of
from slack_sdk.errors import SlackApiError

from local_slack import SLACK_LIMITS, DropAfterCall, ErrorResponse, MethodRateLimiter, PerMinute
from local_slack.methods.web_api import METHOD_NAMES


@pytest.fixture
def take(clock):
    """Take a call from the budget of a method; return the seconds to wait."""
    limiter = MethodRateLimiter(SLACK_LIMITS, clock)

    def take(method, channel="C", team="T"):
        return limiter.take(team, method, channel)

    take.limiter = limiter
    return take


@pytest.fixture
def post(client):
    return lambda channel="C0GENERAL", text="hi": client.chat_postMessage(channel=channel, text=text)


def test_every_method_has_a_limit():
    assert set(METHOD_NAMES) <= set(SLACK_LIMITS)


@pytest.mark.parametrize(
    ("method", "calls"),
    [
        ("reactions.remove", 20),
        ("chat.update", 50),
        ("reactions.add", 50),
        ("conversations.replies", 50),
        ("users.info", 100),
        ("assistant.threads.setStatus", 600),
    ],
)
def test_a_method_has_a_number_of_calls_per_minute(take, clock, method, calls):
    assert [take(method) for _ in range(calls)] == [0] * calls
    clock.advance(30.5)
    assert take(method) == 30
    assert take.limiter.refused[method] == 1
    clock.advance(29.5)
    assert take(method) == 0


def test_the_minute_is_a_sliding_window(take, clock):
    for _ in range(10):
        take("reactions.remove")
    clock.advance(59)
    for _ in range(10):
        take("reactions.remove")
    clock.advance(1)
    assert [take("reactions.remove") for _ in range(11)] == [0] * 10 + [59]


def test_calls_allowed_over_the_limit_count_for_a_minute(take, clock):
    for _ in range(25):
        take.limiter.take("T", "reactions.remove", "C", refuse=False)
        clock.advance(1)
    assert take("reactions.remove") == 40
    clock.advance(40)
    assert take("reactions.remove") == 0


def test_a_channel_accepts_a_short_burst_of_posts_and_then_one_per_second(take, clock):
    assert [take("chat.postMessage", "C1") for _ in range(6)] == [0] * 5 + [1]
    assert take("chat.postMessage", "C2") == 0
    clock.advance(1)
    assert [take("chat.postMessage", "C1") for _ in range(2)] == [0, 1]


def test_posts_to_many_channels_reach_the_limit_of_the_workspace(take):
    assert {take("chat.postMessage", f"C{number}") for number in range(300)} == {0}
    assert take("chat.postMessage", "C300") == 60
    assert take("chat.postMessage", "C300", "T2") == 0


def test_a_call_is_allowed_after_the_returned_wait(take, clock):
    for number in range(200):
        clock.advance(0.137 * (number % 3))
        if wait_s := take("chat.postMessage", "C1"):
            clock.advance(wait_s)
            assert take("chat.postMessage", "C1") == 0


@pytest.mark.slack(limits={"reactions.add": (PerMinute(2),)})
async def test_a_call_of_the_bot_over_the_limit_is_a_429_with_retry_after(slack, ana, client, clock):
    here = {"channel": "C0GENERAL", "timestamp": await ana.say("general", "hi")}
    for name in ("a", "b"):
        await client.reactions_add(**here, name=name)
    clock.advance(17.2)
    with pytest.raises(SlackApiError) as refused:
        await client.reactions_add(**here, name="c")
    response = refused.value.response
    assert (response.status_code, response["error"], response.headers["Retry-After"]) == (429, "ratelimited", "43")
    assert slack.rate_limits.refused == {"reactions.add": 1}
    await ana.react("general", here["timestamp"], "d")
    clock.advance(43)
    await client.reactions_add(**here, name="c")
    (message,) = slack.workspace.messages("general")
    assert [reaction.name for reaction in message.reactions] == ["a", "b", "d", "c"]


@pytest.mark.slack(limits={"chat.postMessage": (PerMinute(1),)})
async def test_a_fault_has_precedence_over_the_limit_and_counts(slack, post, clock):
    slack.faults.next("chat.postMessage", DropAfterCall())
    slack.faults.next("chat.postMessage", ErrorResponse("fatal_error"))
    with pytest.raises(aiohttp.ClientConnectionError):
        await post(text="arrives")
    assert [await error_of(post()) for _ in range(2)] == ["fatal_error", "ratelimited"]
    assert [message.text for message in slack.workspace.messages("general")] == ["arrives"]


async def test_the_snapshot_shows_used_and_refused_calls(slack, post, clock):
    for _ in range(5):
        await post()
    await error_of(post("#general"))
    row = {"team": slack.team_id, "method": "chat.postMessage", "used": 5, "refused": 1}
    assert slack.rate_limits.snapshot() == [
        {**row, "channel": "C0GENERAL", "limit": 5, "per_s": 5.0},
        {**row, "channel": "", "limit": 300, "per_s": 60.0},
    ]
    clock.advance(60)
    assert [entry["used"] for entry in slack.rate_limits.snapshot()] == [0, 0]


@pytest.mark.parametrize("names", [("C0GENERAL", "#general", "general"), ("D0ANA", "U0ANA")])
async def test_a_channel_has_one_limit_under_all_its_names(ana, post, clock, names):
    await ana.open_dm("alpha")
    for number in range(5):
        await post(names[number % len(names)])
    assert [await error_of(post(name)) for name in names] == ["ratelimited"] * len(names)


@pytest.mark.slack(limits=None)
async def test_without_limits_no_call_is_refused(slack, post):
    for _ in range(8):
        await post()
    assert slack.rate_limits.snapshot() == []
