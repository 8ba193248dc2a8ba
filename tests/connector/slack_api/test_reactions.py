"""Marks that nobody wants any more, in virtual time."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, cast

import pytest
from virtual_time import in_virtual_time

from connector.events import SlackMessage
from connector.protocols import LeaseLost
from connector.runs.background_tasks import BackgroundTasks
from connector.slack_api.rate_limiter import CallSlot, Priority, RateLimiter
from connector.slack_api.reactions import ReactionKey, Reactions

if TYPE_CHECKING:
    from connector.slack_api.client import Confirm, SlackClient

FAR_MORE_THAN_GO_AT_ONCE = 200
LAST = ReactionKey("C1", "last", "hourglass_flowing_sand")


class _Wire:
    """What is put when its turn has come."""

    def __init__(self, scheduler: RateLimiter) -> None:
        self._scheduler = scheduler
        self.put: list[str] = []

    async def react(self, channel: str, ts: str, _name: str, turn: CallSlot, confirm: Confirm) -> None:
        await self._scheduler.wait("reactions.add", channel, replace(turn, priority=Priority.MARK))
        await confirm()
        self.put.append(ts)


@in_virtual_time
async def test_whoever_forgets_a_mark_before_its_turn_does_not_wait_for_that() -> None:
    clock = asyncio.get_running_loop()
    async with RateLimiter("T1") as scheduler:
        wire = _Wire(scheduler)
        marks = Reactions(cast("SlackClient", wire))
        before = [ReactionKey("C1", str(number), "eyes") for number in range(FAR_MORE_THAN_GO_AT_ONCE)]
        putting = [asyncio.create_task(marks.put(mark, "a run")) for mark in before]
        last = asyncio.create_task(marks.put(LAST, "a run"))
        await asyncio.sleep(1)
        at_s = clock.time()
        assert marks.forget(LAST)
        assert not await last
        assert clock.time() == at_s
        assert all(await asyncio.gather(*putting))
        assert sorted(wire.put) == sorted(mark.ts for mark in before)


@in_virtual_time
async def test_a_mark_that_is_on_its_way_is_not_cut() -> None:
    let_go = asyncio.Event()

    class Slow(_Wire):
        async def react(self, channel: str, ts: str, name: str, turn: CallSlot, confirm: Confirm) -> None:
            await super().react(channel, ts, name, turn, confirm)
            await let_go.wait()

    async with RateLimiter("T1") as scheduler:
        marks = Reactions(cast("SlackClient", Slow(scheduler)))
        putting = asyncio.create_task(marks.put(LAST, "a run"))
        await asyncio.sleep(1)
        assert not marks.forget(LAST)
        await asyncio.sleep(1)
        assert not putting.done()
        let_go.set()
        assert await putting


@in_virtual_time
async def test_hourglasses_that_were_never_put_leave_room_for_others() -> None:
    async def lost() -> None:
        raise LeaseLost

    async def confirm() -> None:
        pass

    def message(number: int) -> SlackMessage:
        return SlackMessage("T1", "C1", str(number), None, "U1", "hello", (), direct=False)

    async with RateLimiter("T1") as scheduler, BackgroundTasks(cast("SlackClient", _Wire(scheduler))) as desk:
        for number in range(20):
            with pytest.raises(LeaseLost):
                await desk.mark_working(message(number), lost)
        assert await desk.mark_working(message(20), confirm)
