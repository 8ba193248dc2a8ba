"""Names of users, in virtual time."""

from __future__ import annotations

import asyncio
from typing import Any

from virtual_time import in_virtual_time

from connector.protocols import MessageAuthor
from connector.slack_api.errors import SlackCallFailed
from connector.slack_api.rate_limiter import RateLimiter
from connector.slack_api.users import Users

HOUR_S = 3600


class Client:
    """A client with one name for all users, an error, or a rate limit."""

    def __init__(self, rate_limiter: RateLimiter | None = None) -> None:
        self._rate_limiter = rate_limiter
        self.name: str | None = "Ana"
        self.error = ""
        self.calls = 0

    async def call(self, method: str, arguments: object, slot: Any) -> dict[str, Any]:
        if self._rate_limiter is not None:
            await self._rate_limiter.wait(method, "", slot)
        self.calls += 1
        await asyncio.sleep(0.1)
        if self.name is None or self.error:
            raise SlackCallFailed(method, self.error or "no_answer")
        return {"user": {"real_name": self.name, "tz": "Europe/Berlin"}}


@in_virtual_time
async def test_an_author_has_a_name_and_a_time_zone_once_they_are_known():
    users = Users(Client())
    assert users.author("U1") == MessageAuthor("U1")
    await users.look_up(["U1"])
    assert users.author("U1") == MessageAuthor("U1", "Ana", "Europe/Berlin")


@in_virtual_time
async def test_a_new_name_is_known_within_two_hours_and_no_message_waits_for_it():
    users = Users(client := Client())
    for _ in range(10):
        await users.look_up(["U1"])
    assert (users.name_of("U1"), client.calls) == ("Ana", 1)
    client.name = "Anna"
    await asyncio.sleep(HOUR_S)
    await users.look_up(["U1"])
    assert users.name_of("U1") == "Ana"
    await asyncio.sleep(1)
    assert (users.name_of("U1"), client.calls) == ("Anna", 2)


@in_virtual_time
async def test_an_unavailable_name_is_looked_up_again_and_a_known_one_is_kept():
    users = Users(client := Client())
    client.name = None
    await users.look_up(["U1", "U1"])
    await users.look_up(["U1"])
    assert (users.name_of("U1"), client.calls) == (None, 1)
    client.name = "Ana"
    await asyncio.sleep(HOUR_S / 60)
    await users.look_up(["U1"])
    assert users.name_of("U1") == "Ana"
    client.name = None
    await asyncio.sleep(HOUR_S)
    await users.look_up(["U1"])
    await asyncio.sleep(1)
    assert users.name_of("U1") == "Ana"


@in_virtual_time
async def test_the_names_of_the_latest_ten_thousand_users_are_kept():
    users = Users(Client())
    await users.look_up(["U first"])
    await users.look_up([f"U{number}" for number in range(10_000)], within_s=1)
    assert users.name_of("U first") is None
    assert {users.name_of(f"U{number}") for number in range(10_000)} == {"Ana"}


@in_virtual_time
async def test_an_unknown_user_is_not_looked_up_again_soon():
    users = Users(client := Client())
    client.error = "user_not_found"
    for _ in range(3):
        await users.look_up(["U1"], ["U2"])
        await asyncio.sleep(HOUR_S / 4)
    assert (users.profile("U1"), client.calls) == (None, 2)


@in_virtual_time
async def test_who_is_unknown_without_an_answer_can_be_looked_up_again_at_once():
    users = Users(client := Client())
    client.name = None
    for calls in (1, 2):
        await users.look_up(["U1"], is_repeated=True)
        assert (users.is_unanswered("U1"), client.calls) == (True, calls)
    client.name, client.error = "Ana", "user_not_found"
    for _ in range(2):
        await users.look_up(["U1"], is_repeated=True)
        assert (users.is_unanswered("U1"), client.calls) == (False, 3)


@in_virtual_time
async def test_look_ups_of_mentioned_users_are_dropped_after_a_while_and_leave_room_for_authors():
    async with RateLimiter("T") as rate_limiter:
        users = Users(client := Client(rate_limiter))
        for number in range(100):
            await users.look_up([], [f"U{number}x{each}" for each in range(20)])
        # A part of a hundred calls a minute, though two thousand were requested.
        assert client.calls <= 25 + 0.5 * asyncio.get_running_loop().time()
        await users.look_up(["U1"], [f"U{number}" for number in range(2, 50)], within_s=0.2)
        assert users.name_of("U1") == "Ana"
        calls = client.calls
        await asyncio.sleep(HOUR_S)
        assert client.calls <= calls + 1


@in_virtual_time
async def test_an_author_whose_name_does_not_arrive_in_time_delays_one_message():
    class SilentClient(Client):
        async def call(self, *_: Any) -> dict[str, Any]:
            self.calls += 1
            await asyncio.Event().wait()
            raise AssertionError

    users, loop = Users(client := SilentClient()), asyncio.get_running_loop()
    began_s = loop.time()
    for _ in range(50):
        await users.look_up(["U1"], within_s=1)
    assert (loop.time() - began_s, client.calls) == (1, 1)
    await asyncio.sleep(10)
    await users.look_up(["U1"], within_s=1)
    assert loop.time() - began_s == 12, "one more a while later"
    await users.close()
