"""What people are called, in virtual time."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, cast

from virtual_time import in_virtual_time

from connector.slack_api.errors import SlackCallFailed
from connector.slack_api.rate_limiter import RateLimiter
from connector.slack_api.users import Users

if TYPE_CHECKING:
    from connector.slack_api.client import SlackClient

HOUR_S = 3600


class _Wire:
    def __init__(self) -> None:
        self.name: str | None = "Ana"
        self.error = ""
        self.asked = 0

    async def call(self, method: str, *_: Any) -> dict[str, Any]:
        self.asked += 1
        await asyncio.sleep(0.1)
        if self.name is None or self.error:
            raise SlackCallFailed(method, self.error or "no_answer")
        return {"user": {"real_name": self.name}}


@in_virtual_time
async def test_whoever_takes_another_name_is_called_by_it_within_two_hours():
    wire = _Wire()
    names = Users(cast("SlackClient", wire))
    for _ in range(10):
        await names.learn(["U1"])
    assert (names.of("U1"), wire.asked) == ("Ana", 1)
    wire.name = "Anna"
    await asyncio.sleep(HOUR_S)
    await names.learn(["U1"])
    assert names.of("U1") == "Ana", "nobody waits for a name that is known"
    await asyncio.sleep(1)
    assert (names.of("U1"), wire.asked) == ("Anna", 2)


@in_virtual_time
async def test_a_name_that_slack_does_not_tell_is_asked_for_again_and_one_that_was_told_stays():
    wire = _Wire()
    wire.name = None
    names = Users(cast("SlackClient", wire))
    await names.learn(["U1", "U1"])
    await names.learn(["U1"])
    assert (names.of("U1"), wire.asked) == (None, 1)
    wire.name = "Ana"
    await asyncio.sleep(HOUR_S / 60)
    await names.learn(["U1"])
    assert names.of("U1") == "Ana"
    wire.name = None
    await asyncio.sleep(HOUR_S)
    await names.learn(["U1"])
    await asyncio.sleep(1)
    assert names.of("U1") == "Ana"


@in_virtual_time
async def test_of_very_many_people_those_are_known_who_were_asked_about_last():
    names = Users(cast("SlackClient", _Wire()))
    await names.learn(["U first"])
    await names.learn([f"U{number}" for number in range(10_000)], within_s=1)
    assert names.of("U first") is None
    assert {names.of(f"U{number}") for number in range(10_000)} == {"Ana"}


@in_virtual_time
async def test_whom_slack_does_not_know_is_not_asked_about_again_soon():
    wire = _Wire()
    wire.error = "user_not_found"
    names = Users(cast("SlackClient", wire))
    for _ in range(3):
        await names.learn(["U1"], ["U2"])
        await asyncio.sleep(HOUR_S / 4)
    assert (names.profile("U1"), wire.asked) == (None, 2)


class _Limited(_Wire):
    """Has as much room as Slack allows."""

    def __init__(self, scheduler: RateLimiter) -> None:
        super().__init__()
        self._scheduler = scheduler

    async def call(self, method: str, *given: Any) -> dict[str, Any]:
        _, turn = given
        await self._scheduler.wait(method, "", turn)
        return await super().call(method)


@in_virtual_time
async def test_look_ups_that_nobody_waits_for_any_longer_are_not_made_and_leave_room_for_authors():
    async with RateLimiter("T") as scheduler:
        wire = _Limited(scheduler)
        names = Users(cast("SlackClient", wire))
        for number in range(100):
            await names.learn([], [f"U{number}x{each}" for each in range(20)])
        # A share of a hundred calls a minute, though two thousand were wanted.
        assert wire.asked <= 25 + 0.5 * asyncio.get_running_loop().time()
        await names.learn(["U1"], [f"U{number}" for number in range(2, 50)], within_s=0.2)
        assert names.of("U1") == "Ana"
        asked = wire.asked
        await asyncio.sleep(HOUR_S)
        assert wire.asked <= asked + 1


class _Silent(_Wire):
    """Is asked, and never answers."""

    async def call(self, *_: Any) -> dict[str, Any]:
        self.asked += 1
        await asyncio.Event().wait()
        raise AssertionError


@in_virtual_time
async def test_an_author_of_whom_slack_does_not_tell_in_time_is_not_waited_for_again_soon():
    wire, loop = _Silent(), asyncio.get_running_loop()
    names = Users(cast("SlackClient", wire))
    began_s = loop.time()
    for _ in range(50):
        await names.learn(["U1"], within_s=1)
    assert (loop.time() - began_s, wire.asked) == (1, 1)
    await asyncio.sleep(10)
    await names.learn(["U1"], within_s=1)
    assert loop.time() - began_s == 12, "it is waited for again"
    await names.close()
