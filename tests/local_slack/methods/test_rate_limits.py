"""Slack's limits, method by method, with a clock that the test moves."""

from __future__ import annotations

from dataclasses import dataclass

import aiohttp
import pytest
from slack_sdk.errors import SlackApiError
from slack_sdk.web.async_client import AsyncWebClient

from local_slack import SLACK_LIMITS, DropAfterCall, ErrorResponse, LocalSlack, PerMinute, RateLimiter
from local_slack.methods.web_api import METHOD_NAMES


@dataclass
class Clock:
    now: float = 1_700_000_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def limiter(clock: Clock) -> RateLimiter:
    return RateLimiter(SLACK_LIMITS, clock)


def test_every_method_has_its_limit() -> None:
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
def test_exactly_so_many_calls_fit_into_a_minute(limiter: RateLimiter, clock: Clock, method: str, calls: int) -> None:
    assert [limiter.take("T", method, "C") for _ in range(calls)] == [0] * calls
    clock.now += 30.5
    assert limiter.take("T", method, "C") == 30
    assert limiter.refused[method] == 1
    clock.now += 29.5
    assert limiter.take("T", method, "C") == 0


def test_the_window_slides_so_a_burst_over_the_turn_of_the_minute_does_not_fit(
    limiter: RateLimiter, clock: Clock
) -> None:
    for _ in range(10):
        limiter.take("T", "reactions.remove", "C")
    clock.now += 59
    for _ in range(10):
        limiter.take("T", "reactions.remove", "C")
    clock.now += 1
    assert [limiter.take("T", "reactions.remove", "C") for _ in range(11)] == [0] * 10 + [59]


def test_calls_that_were_let_through_over_the_limit_count_until_they_are_a_minute_old(
    limiter: RateLimiter, clock: Clock
) -> None:
    for _ in range(25):
        limiter.count("T", "reactions.remove", "C")
        clock.now += 1
    assert limiter.take("T", "reactions.remove", "C") == 40
    clock.now += 40
    assert limiter.take("T", "reactions.remove", "C") == 0


def test_posts_to_one_channel_come_in_short_bursts_and_then_one_a_second(limiter: RateLimiter, clock: Clock) -> None:
    assert [limiter.take("T", "chat.postMessage", "C1") for _ in range(6)] == [0] * 5 + [1]
    assert limiter.take("T", "chat.postMessage", "C2") == 0
    clock.now += 1
    assert [limiter.take("T", "chat.postMessage", "C1") for _ in range(2)] == [0, 1]


def test_posts_to_many_channels_meet_the_limit_of_the_workspace(limiter: RateLimiter, clock: Clock) -> None:
    assert {limiter.take("T", "chat.postMessage", f"C{number}") for number in range(300)} == {0}
    assert limiter.take("T", "chat.postMessage", "C300") == 60
    assert limiter.take("T2", "chat.postMessage", "C300") == 0


def test_after_retry_after_there_is_room(limiter: RateLimiter, clock: Clock) -> None:
    for number in range(200):
        clock.now += 0.137 * (number % 3)
        wait_s = limiter.take("T", "chat.postMessage", "C1")
        if wait_s:
            clock.now += wait_s
            assert limiter.take("T", "chat.postMessage", "C1") == 0


async def test_a_call_over_the_limit_is_a_429_that_says_when_to_come_again(clock: Clock) -> None:
    async with LocalSlack(limits={"reactions.add": (PerMinute(2),)}, clock=clock) as slack:
        client = AsyncWebClient(token=slack.bot_token, base_url=slack.api_url)
        ts = await slack.as_person("ana").say("general", "hi")
        for name in ("a", "b"):
            await client.reactions_add(channel="C0GENERAL", timestamp=ts, name=name)
        clock.now += 17.2
        with pytest.raises(SlackApiError) as refused:
            await client.reactions_add(channel="C0GENERAL", timestamp=ts, name="c")
        response = refused.value.response
        assert (response.status_code, response["error"], response.headers["Retry-After"]) == (429, "ratelimited", "43")
        assert slack.rate_limits.refused == {"reactions.add": 1}
        await slack.as_person("ana").react("general", ts, "d")
        clock.now += 43
        await client.reactions_add(channel="C0GENERAL", timestamp=ts, name="c")
        message = slack.workspace.message("general", ts)
        assert message is not None
        assert [reaction.name for reaction in message.reactions] == ["a", "b", "d", "c"]


async def test_an_announced_fault_comes_before_the_limit_and_counts(clock: Clock) -> None:
    async with LocalSlack(limits={"chat.postMessage": (PerMinute(1),)}, clock=clock) as slack:
        client = AsyncWebClient(token=slack.bot_token, base_url=slack.api_url)
        client.retry_handlers.clear()
        slack.faults.next("chat.postMessage", DropAfterCall())
        slack.faults.next("chat.postMessage", ErrorResponse("fatal_error"))
        with pytest.raises(aiohttp.ClientConnectionError):
            await client.chat_postMessage(channel="C0GENERAL", text="arrives")
        with pytest.raises(SlackApiError, match="fatal_error"):
            await client.chat_postMessage(channel="C0GENERAL", text="does not")
        with pytest.raises(SlackApiError, match="ratelimited"):
            await client.chat_postMessage(channel="C0GENERAL", text="does not either")
        assert [message.text for message in slack.workspace.messages("general")] == ["arrives"]


async def test_the_snapshot_shows_what_is_used(clock: Clock) -> None:
    async with LocalSlack(clock=clock) as slack:
        client = AsyncWebClient(token=slack.bot_token, base_url=slack.api_url)
        for _ in range(5):
            await client.chat_postMessage(channel="C0GENERAL", text="hi")
        with pytest.raises(SlackApiError):
            await client.chat_postMessage(channel="#general", text="hi")
        team = slack.team_id
        post = {"team": team, "method": "chat.postMessage", "used": 5, "refused": 1}
        assert slack.rate_limits.snapshot() == [
            {**post, "channel": "C0GENERAL", "limit": 5, "per_s": 5.0},
            {**post, "channel": "", "limit": 300, "per_s": 60.0},
        ]
        clock.now += 60
        assert [entry["used"] for entry in slack.rate_limits.snapshot()] == [0, 0]


async def test_one_channel_has_one_limit_by_whatever_name_it_is_called(clock: Clock) -> None:
    async with LocalSlack(clock=clock) as slack:
        client = AsyncWebClient(token=slack.bot_token, base_url=slack.api_url)
        for names in (("C0GENERAL", "#general", "general"), ("D0ANA", "U0ANA")):
            await slack.as_person("ana").open_dm("alpha")
            for number in range(5):
                await client.chat_postMessage(channel=names[number % len(names)], text="hi")
            for name in names:
                with pytest.raises(SlackApiError, match="ratelimited"):
                    await client.chat_postMessage(channel=name, text="hi")


async def test_without_limits_nothing_is_refused() -> None:
    async with LocalSlack(limits=None) as slack:
        client = AsyncWebClient(token=slack.bot_token, base_url=slack.api_url)
        for _ in range(8):
            await client.chat_postMessage(channel="C0GENERAL", text="hi")
        assert slack.rate_limits.snapshot() == []
