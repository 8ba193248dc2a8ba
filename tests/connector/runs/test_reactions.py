"""Reactions that are cancelled, in virtual time."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from virtual_time import in_virtual_time

from connector.runs.background_tasks import ReactionKey, Reactions
from connector.slack_api.rate_limiter import CallSlot, Priority, RateLimiter

LAST = ReactionKey("C1", "last", "hourglass_flowing_sand")
QUEUED = 200


class Client:
    """A client that adds a reaction at its slot, and responds once `may_respond` is set."""

    def __init__(self, rate_limiter: RateLimiter) -> None:
        self._rate_limiter = rate_limiter
        self.added: list[str] = []
        self.may_respond = asyncio.Event()
        self.may_respond.set()

    async def react(self, channel: str, ts: str, _name: str, slot: CallSlot, confirm) -> None:
        await self._rate_limiter.wait("reactions.add", channel, replace(slot, priority=Priority.REACTION))
        await confirm()
        self.added.append(ts)
        await self.may_respond.wait()


@in_virtual_time
async def test_a_queued_reaction_is_cancelled_at_once():
    clock = asyncio.get_running_loop()
    async with RateLimiter("T1") as rate_limiter:
        reactions = Reactions(client := Client(rate_limiter))
        before = [ReactionKey("C1", str(number), "eyes") for number in range(QUEUED)]
        adding = [asyncio.create_task(reactions.add(key, "a run")) for key in before]
        last = asyncio.create_task(reactions.add(LAST, "a run"))
        await asyncio.sleep(1)
        at_s = clock.time()
        assert reactions.cancel(LAST)
        assert not await last
        assert clock.time() == at_s
        assert all(await asyncio.gather(*adding))
        assert sorted(client.added) == sorted(key.ts for key in before)


@in_virtual_time
async def test_a_reaction_in_flight_is_not_cancelled():
    async with RateLimiter("T1") as rate_limiter:
        reactions = Reactions(client := Client(rate_limiter))
        client.may_respond.clear()
        adding = asyncio.create_task(reactions.add(LAST, "a run"))
        await asyncio.sleep(1)
        assert not reactions.cancel(LAST)
        await asyncio.sleep(1)
        assert not adding.done()
        client.may_respond.set()
        assert await adding
