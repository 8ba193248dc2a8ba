"""Socket Mode: nothing is lost and nothing is held twice, whatever becomes of its connections."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

import aiohttp
import pytest
from slack_sdk.web.async_client import AsyncWebClient
from structlog.testing import capture_logs

from connector.inbound.addresses import Addresses
from connector.inbound.backoff import Backoff
from connector.inbound.reception import Reply
from connector.inbound.socket_mode import SocketMode
from connector.inbound.websocket import SocketTiming
from connector.slack_api.client import SlackClient
from connector.slack_api.rate_limiter import RateLimiter
from local_slack import LocalSlack, RetrySchedule

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

QUICK = Backoff(0.01, 0.05)
PACE = SocketTiming(
    ping_every_s=0.05,
    silent_for_s=5,
    linger_s=0.05,
    suspend_check_s=0.01,
    drain_within_s=0.05,
    retry=QUICK,
    refused=QUICK,
)


class Listener:
    """Receives what comes in, and keeps it until it may be received."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.fails_at: list[str] = []
        self.status = 200
        self.at_work = self.most = 0
        self.may_go = asyncio.Event()
        self.may_go.set()
        self.has_heard = asyncio.Event()

    async def receive(self, body: dict[str, Any]) -> Reply:
        event = body["event"]
        if event.get("text") in self.fails_at:
            self.fails_at.remove(event["text"])
            raise RuntimeError("something that nobody has thought of")
        if event["type"] != "message":
            return Reply(200)
        self.texts.append(event["text"])
        self.has_heard.set()
        self.at_work += 1
        self.most = max(self.most, self.at_work)
        await self.may_go.wait()
        self.at_work -= 1
        return Reply(self.status)


class Sleeper:
    """How long the machine has slept."""

    def __init__(self) -> None:
        self.slept_s = 0.0
        self._looks = asyncio.Semaphore(0)

    def __call__(self) -> float:
        self._looks.release()
        return self.slept_s

    async def looked(self, times: int) -> None:
        """Wait until the door has looked so often, which it does once in each `suspend_check_s`."""
        for _ in range(times):
            await self._looks.acquire()


class Door:
    """A door to a Slack of its own, as the test opens it."""

    def __init__(self, slack: LocalSlack) -> None:
        self.slack = slack
        self.listener = Listener()
        self.sleeper = Sleeper()

    @asynccontextmanager
    async def opened(self, pace: SocketTiming = PACE, slots: int = 100) -> AsyncIterator[SocketMode]:
        async with AsyncExitStack() as stack:
            http = await stack.enter_async_context(aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=5)))
            scheduler = await stack.enter_async_context(RateLimiter("T"))
            client = AsyncWebClient(self.slack.app_token, base_url=self.slack.api_url, session=http, retry_handlers=[])
            addresses = Addresses(SlackClient(client, scheduler), "")
            socket_mode = SocketMode(
                http,
                addresses.next,
                self.listener.receive,
                asyncio.Semaphore(slots),
                timing=pace,
                slept_s=self.sleeper,
            )
            yield await stack.enter_async_context(socket_mode)

    async def connected(self, count: int = 2) -> None:
        await self.slack.until(lambda _: self.slack.socket_mode.connections == count)

    async def opened_again(self, before: int, count: int = 2) -> None:
        await self.slack.until(lambda _: self.slack.socket_mode.opened >= before + count)

    async def said(self, text: str) -> None:
        await self.slack.as_person("ana").say("general", text)

    async def all_acknowledged(self) -> None:
        await self.slack.until(lambda _: not self.slack.socket_mode.delivery.outstanding)

    async def heard(self, count: int) -> None:
        async with asyncio.timeout(5):
            while len(self.listener.texts) < count:
                self.listener.has_heard.clear()
                await self.listener.has_heard.wait()


@pytest.fixture
async def door() -> AsyncIterator[Door]:
    async with LocalSlack(limits=None, retries=RetrySchedule(30, (30,))) as slack:
        yield Door(slack)


@pytest.fixture
async def impatient() -> AsyncIterator[Door]:
    """To a Slack that delivers again soon."""
    async with LocalSlack(limits=None, retries=RetrySchedule(0.05, (0, 0.05, 0.05, 0.1))) as slack:
        yield Door(slack)


async def test_an_envelope_is_acknowledged_when_it_is_kept_and_not_before(door):
    door.listener.may_go.clear()
    async with door.opened():
        await door.said("hello")
        await door.heard(1)
        assert door.slack.socket_mode.delivery.outstanding == 1
        door.listener.may_go.set()
        await door.all_acknowledged()


async def test_what_is_not_kept_is_not_acknowledged_and_comes_again(impatient):
    impatient.listener.status = 503
    async with impatient.opened():
        await impatient.said("hello")
        await impatient.heard(2)
        impatient.listener.status = 200
        await impatient.all_acknowledged()
    assert set(impatient.listener.texts) == {"hello"}


async def test_what_fails_while_it_is_received_comes_again_and_the_door_hears_on(impatient):
    impatient.listener.fails_at = ["hello"]
    async with impatient.opened():
        await impatient.said("hello")
        await impatient.said("and this")
        await impatient.heard(2)
        await impatient.all_acknowledged()
        assert impatient.slack.socket_mode.connections > 0
    assert set(impatient.listener.texts) == {"hello", "and this"}


async def test_there_are_several_connections_and_each_event_comes_by_one_of_them(door):
    async with door.opened():
        await door.connected(2)
        for number in range(6):
            await door.said(str(number))
        await door.all_acknowledged()
    assert sorted(door.listener.texts) == list("012345")


@pytest.mark.parametrize("reason", ["warning", "refresh_requested"])
async def test_a_refresh_leaves_no_gap_and_closes_what_it_replaces(door, reason):
    offline = []
    door.slack.workspace.listen(lambda _: offline.append(door.slack.workspace.bot_online))
    async with door.opened():
        await door.connected(2)
        offline.clear()
        before = door.slack.socket_mode.opened
        door.slack.socket_mode.disconnect(reason)
        await door.said("meanwhile")
        await door.opened_again(before)
        await door.connected(2)
        await door.all_acknowledged()
        assert all(offline), "there was a moment without a connection"
    assert door.listener.texts == ["meanwhile"]


async def test_what_an_old_connection_still_delivers_is_kept(door):
    pace = replace(PACE, linger_s=5)
    async with door.opened(pace):
        await door.connected(2)
        before = door.slack.socket_mode.opened
        door.slack.socket_mode.disconnect("warning")
        await door.opened_again(before)
        # All four are open, and Slack uses each in turn.
        for number in range(8):
            await door.said(str(number))
        await door.all_acknowledged()
        assert door.slack.socket_mode.connections == 4
    assert sorted(door.listener.texts) == list("01234567")


async def test_an_envelope_whose_connection_is_gone_is_acknowledged_on_another_one(door):
    door.listener.may_go.clear()
    async with door.opened():
        await door.connected(2)
        await door.said("hello")
        await door.heard(1)
        before = door.slack.socket_mode.opened
        door.slack.socket_mode.drop()
        await door.opened_again(before)
        door.listener.may_go.set()
        await door.all_acknowledged()
    assert door.listener.texts == ["hello"], "Slack would have delivered it again much later"


async def test_what_is_kept_while_there_is_no_connection_is_acknowledged_on_the_next_one(door):
    door.listener.may_go.clear()
    async with door.opened():
        await door.connected(2)
        await door.said("hello")
        await door.heard(1)
        door.slack.socket_mode.disconnect("link_disabled")
        await door.connected(0)
        door.listener.may_go.set()
        await door.sleeper.looked(5)
        door.slack.socket_mode.enable()
        await door.all_acknowledged()
    assert door.listener.texts == ["hello"]


async def test_what_is_written_while_there_is_no_connection_comes_when_there_is_one(door):
    async with door.opened():
        await door.connected(2)
        door.slack.socket_mode.drop()
        await door.said("anybody there?")
        await door.all_acknowledged()
    assert door.listener.texts == ["anybody there?"]


async def test_a_silent_connection_is_replaced(impatient):
    async with impatient.opened(replace(PACE, silent_for_s=0.15)):
        await impatient.connected(2)
        before = impatient.slack.socket_mode.opened
        impatient.slack.socket_mode.freeze()
        await impatient.said("hello")
        await impatient.opened_again(before)
        await impatient.all_acknowledged()
    assert "hello" in impatient.listener.texts


async def test_a_quiet_connection_whose_pings_are_answered_stays(door):
    async with door.opened(replace(PACE, ping_every_s=0.02, silent_for_s=0.2)) as socket_mode:
        await door.connected(2)
        await door.sleeper.looked(40)
        assert socket_mode.opened == 2


async def test_after_the_machine_has_slept_all_connections_are_replaced(door):
    async with door.opened():
        await door.connected(2)
        before = door.slack.socket_mode.opened
        door.sleeper.slept_s += 3600
        await door.opened_again(before)
        await door.connected(2)
        await door.said("good morning")
        await door.all_acknowledged()


async def test_a_switched_off_socket_mode_is_told_once_and_tried_on(door):
    with capture_logs() as logs:
        async with door.opened():
            await door.connected(2)
            door.slack.socket_mode.disconnect("link_disabled")
            await door.connected(0)
            await door.said("hello")
            await door.sleeper.looked(15)
            door.slack.socket_mode.enable()
            await door.all_acknowledged()
    told = [entry for entry in logs if entry["event"] == "socket.refused" and entry["why"] == "link_disabled"]
    assert len(told) == 1
    assert "Socket Mode is switched off" in told[0]["hint"]


async def test_with_too_many_connections_those_that_work_are_kept_and_it_is_told_once(door):
    with capture_logs() as logs:
        async with AsyncExitStack() as others:
            for _ in range(8):
                await others.enter_async_context(Door(door.slack).opened(replace(PACE, connections=1)))
            async with door.opened(replace(PACE, connections=3)) as socket_mode:
                await door.connected(10)
                await door.sleeper.looked(20)
                assert socket_mode.connections == 2
                told = [entry for entry in logs if entry["event"] == "socket.refused"]
                assert [entry["why"] for entry in told] == ["too_many_websockets"]
                await others.aclose()
                await door.connected(3)


async def test_no_more_are_at_work_than_there_are_slots_and_none_is_dropped(door):
    door.listener.may_go.clear()
    async with door.opened(slots=2):
        await door.connected(2)
        for number in range(9):
            await door.said(str(number))
        await door.heard(2)
        await door.sleeper.looked(5)
        assert len(door.listener.texts) == 2
        door.listener.may_go.set()
        await door.all_acknowledged()
    assert sorted(door.listener.texts) == list("012345678")
    assert door.listener.most == 2


async def test_one_connection_delivers_in_order_however_few_slots_there_are(door):
    async with door.opened(replace(PACE, connections=1), slots=1):
        for number in range(20):
            await door.said(f"{number:02}")
        await door.all_acknowledged()
    assert door.listener.texts == [f"{number:02}" for number in range(20)]


async def test_leaving_closes_everything_and_acknowledges_nothing_that_was_not_kept(door):
    before = asyncio.all_tasks()
    async with door.opened():
        await door.connected(2)
        door.listener.may_go.clear()
        await door.said("hello")
        await door.heard(1)
        ours = {task for task in asyncio.all_tasks() - before if "connector" in repr(task)}
        assert ours
    assert all(task.done() for task in ours)
    await door.connected(0)
    assert door.slack.socket_mode.delivery.outstanding == 1


async def test_leaving_lets_what_is_nearly_kept_be_acknowledged(door):
    async with door.opened(replace(PACE, drain_within_s=5)):
        door.listener.may_go.clear()
        await door.said("hello")
        await door.heard(1)
        asyncio.get_running_loop().call_soon(door.listener.may_go.set)
    await door.all_acknowledged()


class Noting(Backoff):
    """Notes the failures in a row after which it was asked how long to wait."""

    failures: ClassVar[list[int]] = []

    def delay_s(self, failures: int) -> float:
        self.failures.append(failures)
        return super().delay_s(failures)


@pytest.mark.parametrize(("min_lifetime_s", "expected"), [(0, [1, 1, 1]), (60, [1, 2, 3])])
async def test_what_went_wrong_before_a_connection_has_lived_is_forgotten(door, min_lifetime_s, expected):
    Noting.failures.clear()
    async with door.opened(replace(PACE, connections=1, min_lifetime_s=min_lifetime_s, refused=Noting(0.01, 0.02))):
        for _ in expected:
            await door.connected(1)
            before = door.slack.socket_mode.opened
            door.slack.socket_mode.disconnect("too_many_websockets")
            await door.opened_again(before, 1)
    assert Noting.failures == expected


def test_each_failure_waits_longer_than_the_one_before_up_to_a_limit_and_never_all_at_once():
    longest = Backoff(0.1, 30, lambda: 1.0)
    shortest = Backoff(0.1, 30, lambda: 0.0)
    assert longest.delay_s(0) == 0
    delays = [longest.delay_s(failures) for failures in range(1, 12)]
    assert delays == sorted(delays)
    assert delays[:3] == [0.1, 0.2, 0.4]
    assert longest.delay_s(10_000) == 30
    assert all(shortest.delay_s(n) == longest.delay_s(n) / 2 for n in range(1, 12))
