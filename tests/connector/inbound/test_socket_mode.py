from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from typing import Any, ClassVar

import aiohttp
import pytest
from slack_sdk.web.async_client import AsyncWebClient
from structlog.testing import capture_logs

from connector.inbound.dispatcher import Reply
from connector.inbound.socket_mode import SocketMode, SocketTiming, address_source
from connector.slack_api.client import SlackClient
from connector.slack_api.errors import Backoff
from connector.slack_api.rate_limiter import RateLimiter
from local_slack import LocalSlack, RetrySchedule

QUICK = Backoff(0.01, 0.05)
TIMING = SocketTiming(
    ping_every_s=0.05,
    silent_for_s=5,
    linger_s=0.05,
    suspend_check_s=0.01,
    drain_within_s=0.05,
    retry=QUICK,
    refused=QUICK,
)


class Receiver:
    """Receives messages, and ends once `may_end` is set."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.fails_at: list[str] = []
        self.status = 200
        self.active = self.most_active = 0
        self.may_end, self.received = asyncio.Event(), asyncio.Event()
        self.may_end.set()

    async def receive(self, body: dict[str, Any]) -> Reply:
        event = body["event"]
        if event.get("text") in self.fails_at:
            self.fails_at.remove(event["text"])
            raise RuntimeError("an unexpected error")
        if event["type"] != "message":
            return Reply(200)
        self.texts.append(event["text"])
        self.received.set()
        self.active += 1
        self.most_active = max(self.most_active, self.active)
        await self.may_end.wait()
        self.active -= 1
        return Reply(self.status)


class SleepClock:
    """How long the machine has slept."""

    def __init__(self) -> None:
        self.suspended_s = 0.0
        self._checks = asyncio.Semaphore(0)

    def __call__(self) -> float:
        self._checks.release()
        return self.suspended_s

    async def checked(self, times: int) -> None:
        """Wait for so many checks; there is one every `suspend_check_s`."""
        for _ in range(times):
            await self._checks.acquire()


class Client:
    """A client of Socket Mode, and the workspace that it connects to."""

    def __init__(self, slack: LocalSlack) -> None:
        self.slack = slack
        self.socket = slack.socket_mode
        self.receiver = Receiver()
        self.clock = SleepClock()

    @asynccontextmanager
    async def running(self, timing: SocketTiming = TIMING, slots: int = 100):
        async with AsyncExitStack() as stack:
            http = await stack.enter_async_context(aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=5)))
            rate_limiter = await stack.enter_async_context(RateLimiter("T"))
            client = AsyncWebClient(self.slack.app_token, base_url=self.slack.api_url, session=http, retry_handlers=[])
            address = address_source(SlackClient(client, rate_limiter))
            semaphore = asyncio.Semaphore(slots)
            yield await stack.enter_async_context(
                SocketMode(http, address, self.receiver.receive, semaphore, timing=timing, suspended_s=self.clock)
            )

    async def connected(self, count: int = 2) -> None:
        await self.slack.until(lambda _: self.socket.connections == count)

    async def reconnected(self, before: int, count: int = 2) -> None:
        await self.slack.until(lambda _: self.socket.opened >= before + count)

    async def say(self, text: str) -> None:
        await self.slack.as_person("ana").say("general", text)

    async def acknowledged(self) -> None:
        await self.slack.until(lambda _: not self.socket.delivery.outstanding)

    async def received(self, count: int) -> None:
        async with asyncio.timeout(5):
            while len(self.receiver.texts) < count:
                self.receiver.received.clear()
                await self.receiver.received.wait()


@pytest.fixture
async def client():
    async with LocalSlack(limits=None, retries=RetrySchedule(30, (30,))) as slack:
        yield Client(slack)


@pytest.fixture
async def retried():
    """A client of a Slack that delivers again soon."""
    async with LocalSlack(limits=None, retries=RetrySchedule(0.05, (0, 0.05, 0.05, 0.1))) as slack:
        yield Client(slack)


async def test_an_envelope_is_acknowledged_when_its_event_is_stored(client):
    client.receiver.may_end.clear()
    async with client.running():
        await client.say("hello")
        await client.received(1)
        assert client.socket.delivery.outstanding == 1
        client.receiver.may_end.set()
        await client.acknowledged()


async def test_an_event_that_is_not_stored_is_not_acknowledged_and_is_delivered_again(retried):
    retried.receiver.status = 503
    async with retried.running():
        await retried.say("hello")
        await retried.received(2)
        retried.receiver.status = 200
        await retried.acknowledged()
    assert set(retried.receiver.texts) == {"hello"}


async def test_an_event_whose_handling_fails_is_delivered_again_and_delays_no_other(retried):
    retried.receiver.fails_at = ["hello"]
    async with retried.running():
        await retried.say("hello")
        await retried.say("and this")
        await retried.received(2)
        await retried.acknowledged()
        assert retried.socket.connections > 0
    assert set(retried.receiver.texts) == {"hello", "and this"}


@pytest.mark.parametrize("reason", ["warning", "refresh_requested"])
async def test_a_refresh_leaves_no_gap_and_closes_the_replaced_connections(client, reason):
    online = []
    client.slack.workspace.listen(lambda _: online.append(client.slack.workspace.bot_online))
    async with client.running():
        await client.connected(2)
        online.clear()
        before = client.socket.opened
        client.socket.disconnect(reason)
        await client.say("during the refresh")
        await client.reconnected(before)
        await client.connected(2)
        await client.acknowledged()
        assert all(online), "there was a moment without a connection"
    assert client.receiver.texts == ["during the refresh"]


async def test_events_on_a_replaced_connection_are_stored(client):
    async with client.running(replace(TIMING, linger_s=5)):
        await client.connected(2)
        before = client.socket.opened
        client.socket.disconnect("warning")
        await client.reconnected(before)
        for number in range(8):  # all four connections are open, and Slack uses each in turn
            await client.say(str(number))
        await client.acknowledged()
        assert client.socket.connections == 4
    assert sorted(client.receiver.texts) == list("01234567")


async def test_an_envelope_of_a_lost_connection_is_acknowledged_on_another_one(client):
    client.receiver.may_end.clear()
    async with client.running():
        await client.connected(2)
        await client.say("hello")
        await client.received(1)
        before = client.socket.opened
        client.socket.drop()
        await client.reconnected(before)
        client.receiver.may_end.set()
        await client.acknowledged()
    assert client.receiver.texts == ["hello"]


async def test_an_event_that_is_stored_without_a_connection_is_acknowledged_on_the_next_one(client):
    client.receiver.may_end.clear()
    async with client.running():
        await client.connected(2)
        await client.say("hello")
        await client.received(1)
        client.socket.disconnect("link_disabled")
        await client.connected(0)
        client.receiver.may_end.set()
        await client.clock.checked(5)
        client.socket.enable()
        await client.acknowledged()
    assert client.receiver.texts == ["hello"]


async def test_a_message_posted_without_a_connection_arrives_over_the_next_one(client):
    async with client.running():
        await client.connected(2)
        client.socket.drop()
        await client.say("anybody there?")
        await client.acknowledged()
    assert client.receiver.texts == ["anybody there?"]


async def test_a_silent_connection_is_replaced(retried):
    async with retried.running(replace(TIMING, silent_for_s=0.15)):
        await retried.connected(2)
        before = retried.socket.opened
        retried.socket.freeze()
        await retried.say("hello")
        await retried.reconnected(before)
        await retried.acknowledged()
    assert "hello" in retried.receiver.texts


async def test_a_connection_that_answers_pings_is_not_replaced(client):
    async with client.running(replace(TIMING, ping_every_s=0.02, silent_for_s=0.2)) as socket_mode:
        await client.connected(2)
        await client.clock.checked(40)
        assert socket_mode.opened == 2


async def test_all_connections_are_replaced_after_the_machine_has_slept(client):
    async with client.running():
        await client.connected(2)
        before = client.socket.opened
        client.clock.suspended_s += 3600
        await client.reconnected(before)
        await client.connected(2)
        await client.say("good morning")
        await client.acknowledged()


async def test_a_disabled_socket_mode_is_logged_once_and_tried_again(client):
    with capture_logs() as logs:
        async with client.running():
            await client.connected(2)
            client.socket.disconnect("link_disabled")
            await client.connected(0)
            await client.say("hello")
            await client.clock.checked(15)
            client.socket.enable()
            await client.acknowledged()
    (refused,) = [log for log in logs if log["event"] == "socket.refused" and log["why"] == "link_disabled"]
    assert "Socket Mode is switched off" in refused["hint"]


async def test_with_too_many_connections_the_open_ones_are_kept_and_the_refusal_is_logged_once(client):
    with capture_logs() as logs:
        async with AsyncExitStack() as others:
            for _ in range(8):
                await others.enter_async_context(Client(client.slack).running(replace(TIMING, connections=1)))
            async with client.running(replace(TIMING, connections=3)) as socket_mode:
                await client.connected(10)
                await client.clock.checked(20)
                assert socket_mode.connections == 2
                assert [log["why"] for log in logs if log["event"] == "socket.refused"] == ["too_many_websockets"]
                await others.aclose()
                await client.connected(3)


async def test_concurrent_events_are_limited_and_none_is_dropped(client):
    client.receiver.may_end.clear()
    async with client.running(slots=2):
        await client.connected(2)
        for number in range(9):
            await client.say(str(number))
        await client.received(2)
        await client.clock.checked(5)
        assert len(client.receiver.texts) == 2
        client.receiver.may_end.set()
        await client.acknowledged()
    assert sorted(client.receiver.texts) == list("012345678")
    assert client.receiver.most_active == 2


async def test_one_connection_delivers_in_order_with_one_slot(client):
    async with client.running(replace(TIMING, connections=1), slots=1):
        for number in range(20):
            await client.say(f"{number:02}")
        await client.acknowledged()
    assert client.receiver.texts == [f"{number:02}" for number in range(20)]


async def test_closing_ends_all_tasks_and_acknowledges_no_event_that_is_not_stored(client):
    before = asyncio.all_tasks()
    async with client.running():
        await client.connected(2)
        client.receiver.may_end.clear()
        await client.say("hello")
        await client.received(1)
        ours = {task for task in asyncio.all_tasks() - before if "connector" in repr(task)}
        assert ours
    assert all(task.done() for task in ours)
    await client.connected(0)
    assert client.socket.delivery.outstanding == 1


async def test_closing_waits_for_an_event_that_is_nearly_stored(client):
    async with client.running(replace(TIMING, drain_within_s=5)):
        client.receiver.may_end.clear()
        await client.say("hello")
        await client.received(1)
        asyncio.get_running_loop().call_soon(client.receiver.may_end.set)
    await client.acknowledged()


class RecordingBackoff(Backoff):
    """Records the numbers of consecutive failures."""

    failures: ClassVar[list[int]] = []

    def delay_s(self, failures: int) -> float:
        self.failures.append(failures)
        return super().delay_s(failures)


@pytest.mark.parametrize(("min_lifetime_s", "expected"), [(0, [1, 1, 1]), (60, [1, 2, 3])])
async def test_failures_before_a_lasting_connection_are_forgotten(client, min_lifetime_s, expected):
    RecordingBackoff.failures.clear()
    refused = RecordingBackoff(0.01, 0.02)
    async with client.running(replace(TIMING, connections=1, min_lifetime_s=min_lifetime_s, refused=refused)):
        for _ in expected:
            await client.connected(1)
            before = client.socket.opened
            client.socket.disconnect("too_many_websockets")
            await client.reconnected(before, 1)
    assert RecordingBackoff.failures == expected
