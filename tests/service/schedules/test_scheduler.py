from __future__ import annotations

import asyncio
import time
from contextlib import aclosing, suppress
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from itertools import count
from typing import Any

import pytest
from offline_slack import OfflineSlack

from connector.inbound.unattended import Obstacle
from connector.slack_api.errors import SlackCallFailed
from orchestrator_interactive.storage.retry import StoreRetryPolicy, retrying
from service.administration.backup import back_up, restore
from service.schedules.scheduler import Scheduler, decided_of
from service.schedules.stored import KEPT_S, MOST, MOST_OF_PERSON, StoredSchedules
from service.store import open_log_store, open_run_store

T0 = datetime(2026, 3, 23, 8, 30, tzinfo=UTC).timestamp()  # a Monday
THREAD, CHANNEL = "T1:C1:1.000001", "T1:C1:dm"
HOUR, DAY = 3600.0, 86400.0


class Killed(BaseException):
    """The process is killed."""


class DyingStore:
    """A store whose process is killed before, or right after, the call of a number."""

    def __init__(self, store: Any, dies_at: int, *, after: bool) -> None:
        self._store, self._left, self._after = store, dies_at, after

    def __getattr__(self, name: str) -> Any:
        call = getattr(self._store, name)

        async def counted(*arguments: Any) -> Any:
            self._left -= 1
            if self._left == 0 and not self._after:
                raise Killed
            found = await call(*arguments)
            if self._left <= 0:
                raise Killed
            return found

        return counted


@dataclass
class Office:
    """A store, and processes that fire its schedules; `now_s` is their clock."""

    url: str
    store: Any
    now_s: float = T0

    def schedules(self, store=None):
        return StoredSchedules(retrying(store or self.store, StoreRetryPolicy()), lambda: self.now_s)

    def scheduler(self, store=None, obstacle=None, client=None):
        slack = OfflineSlack.of(store or self.store, lambda: self.now_s, obstacle, client)
        return Scheduler(self.schedules(store), slack)

    async def add(self, request="0 9 * * * look", place=THREAD, call="c1", user="U1"):
        return await self.schedules().add(place, user, "alpha", request, call)

    async def inbox(self, place=THREAD):
        """Return the kinds and texts of the admitted entries, in order."""
        record = await self.store.record(place)
        entries = record.waiting if record is not None else ()
        return [
            (each.kind, each.data.get("text") or each.data.get("prompt") or each.data["argument"]) for each in entries
        ]

    async def left(self):
        return await self.schedules().current("T1")


@pytest.fixture
async def office(url):
    async with aclosing(await open_run_store(url)) as store:
        yield Office(url, store)


async def test_each_occurrence_fires_once_and_the_next_one_is_stored(office):
    schedule = await office.add()
    assert await office.scheduler().look() == 15
    assert await office.inbox() == []
    for day in range(3):
        office.now_s = schedule.due_s + day * DAY
        await asyncio.gather(*(office.scheduler().look() for _ in range(3)))
    said = f"⏰ Scheduled by Ana ({schedule.id}, at 09:00 every day (UTC)): look"
    fires = [("notice", said), ("message", f"[Scheduled message {schedule.id}: {schedule.when}] look")]
    assert await office.inbox() == fires * 3
    assert [each.due_s for each in await office.left()] == [schedule.due_s + 3 * DAY]


@pytest.mark.parametrize("after", [False, True])
async def test_a_process_that_is_killed_at_any_call_loses_and_repeats_nothing(office, after):
    for step in count(1):
        place = f"T1:C1:{step}.000001"
        schedule = await office.add("in 1 hours look", place, f"call {step}")
        office.now_s = schedule.due_s + 1
        ended = False
        with suppress(Killed, BaseExceptionGroup):
            await office.scheduler(DyingStore(office.store, step, after=after)).look()
            ended = True
        await office.scheduler().look()
        assert [kind for kind, _ in await office.inbox(place)] == ["notice", "message"]
        assert await office.left() == []
        if ended:
            break
    assert step > 5


async def test_a_decision_is_carried_out_however_late(office):
    schedule = await office.add()
    (stored,) = await office.schedules().stored("T1")
    assert await office.schedules().replace(stored, decided_of(schedule, schedule.due_s))
    office.now_s = schedule.due_s + DAY / 2
    await office.scheduler().look()
    assert [kind for kind, _ in await office.inbox()] == ["notice", "message"]


async def test_missed_occurrences_are_reported_and_not_caught_up(office):
    schedule = await office.add()
    office.now_s = schedule.due_s + 2 * DAY + HOUR
    await asyncio.gather(office.scheduler().look(), office.scheduler().look())
    ((kind, text),) = await office.inbox()
    assert kind == "notice"
    assert "not running at 3 scheduled times (from Mon 23 Mar 2026 09:00 to Wed 25 Mar 2026 09:00, UTC)" in text
    assert "“look”" in text
    office.now_s = schedule.due_s + 5 * DAY + 60
    await office.scheduler().look()
    _, (_, text), (kind, _) = await office.inbox()
    assert kind == "message"
    assert "not running at 2 scheduled times" in text


async def test_a_message_for_one_time_that_was_missed_is_reported_and_gone(office):
    schedule = await office.add("in 2 weeks look", CHANNEL)
    office.now_s = schedule.due_s + HOUR
    await office.scheduler().look()
    ((kind, text),) = await office.inbox(CHANNEL)
    assert kind == "command"
    assert text.endswith("So I did not do this for Ana: “look”. To have it done now, write it to me.")
    assert await office.left() == []
    assert (await office.add("in 2 weeks look", CHANNEL)).is_over  # a request that is repeated that late
    office.now_s += KEPT_S + HOUR
    await office.scheduler().look()
    assert await office.schedules().stored("T1") == []


async def test_a_schedule_of_a_channel_begins_a_thread(office):
    schedule = await office.add(place=CHANNEL)
    office.now_s = schedule.due_s
    await office.scheduler().look()
    (entry,) = (await office.store.record(CHANNEL)).waiting
    assert (entry.data["kind"], entry.data["user"], entry.data["instance"]) == ("begin", "U1", "alpha")
    assert entry.data["shown"].startswith("⏰ Scheduled by Ana")


async def test_a_schedule_without_access_is_reported_once_and_suspended(office):
    schedule = await office.add()
    office.now_s = schedule.due_s
    assert await office.scheduler(obstacle=Obstacle("ask later", is_transient=True)).look()
    assert await office.inbox() == []
    for _ in range(3):
        await office.scheduler(obstacle=Obstacle("no access.")).look()
        office.now_s += DAY
    assert await office.inbox() == [
        ("notice", f"⏰ The schedule {schedule.id} of Ana (“look”) is suspended: no access.")
    ]
    (left,) = await office.left()
    assert "Suspended: no access." in left.line


class DirectMessages:
    """Direct messages of a workspace that is not available at first."""

    is_available = False

    async def direct_with(self, user):
        if not self.is_available:
            self.is_available = True
            raise SlackCallFailed("conversations.open", "service_unavailable")
        return "D1"


async def test_the_report_about_a_closed_channel_is_repeated_until_slack_is_available(office):
    schedule = await office.add()
    office.now_s = schedule.due_s
    scheduler = office.scheduler(obstacle=Obstacle("no access."), client=DirectMessages())
    for _ in range(3):
        await scheduler.look()
    assert await office.inbox() == []
    assert await office.inbox("T1:D1:dm") == [
        ("command", f"⏰ The schedule {schedule.id} of Ana (“look”) is suspended: no access.")
    ]


async def test_a_removed_schedule_stays_removed(office):
    schedule = await office.add()
    (stored,) = await office.schedules().stored("T1")
    assert not await office.schedules().revoke("T1", "U2", schedule.id)
    assert await office.schedules().revoke("T1", "U1", schedule.id)
    assert not await office.schedules().replace(stored, replace(schedule, due_s=1))
    assert await office.left() == []


async def test_schedules_that_are_over_take_no_room(office):
    first = await office.add()
    for number in range(MOST):
        over = replace(first, id=f"s{number:08}").over(T0 + number)
        await office.store.put_document("schedules:T1", over.id, asdict(over))
    added = await office.add("in 2 days look", call="c2")
    assert {each.id for each in await office.left()} == {first.id, added.id}
    stored = [each.schedule for each in await office.schedules().stored("T1")]
    assert len(stored) == MOST
    assert min(each.over_s for each in stored if each.is_over) == T0 + 2
    for number in range(MOST - 2):
        one = replace(first, id=f"s{number:08}", user="U2")
        await office.store.put_document("schedules:T1", one.id, asdict(one))
    with pytest.raises(ValueError, match=f"This workspace has {MOST} schedules"):
        await office.add("in 2 days look", call="c3")


async def test_a_repeated_request_adds_nothing_and_too_many_are_refused(office):
    first = await office.add()
    assert await office.add("in 5 days other") == first
    for number in range(MOST_OF_PERSON - 1):
        await office.add(call=f"more {number}")
    with pytest.raises(ValueError, match="remove one first"):
        await office.add(call="one more")
    assert await office.add(call="of another", user="U2")


async def test_after_the_restore_of_a_backup_nothing_fires_that_may_have_fired(tmp_path):
    url, backup = f"sqlite:{tmp_path}/kept.db", tmp_path / "backup.db"
    async with aclosing(await open_run_store(url)) as store:
        office = Office(url, store, time.time() - 2 * DAY - 60)
        await office.add("*/5 * * * * lük")
        due = await office.add("in 48 hours lük", call="c2")
        later = await office.add("in 49 hours lük", call="c3")
        await (await open_log_store(url)).aclose()
        await back_up(url, backup)
    await restore(url, backup)
    async with aclosing(await open_run_store(url)) as store:
        office = Office(url, store, due.due_s + 1)
        await office.scheduler().look()
        for _, text in (notices := await office.inbox()):
            assert text.startswith("⏰ I was restored from a backup, and may have done this at")
        assert [kind for kind, _ in notices] == ["notice", "notice"]
        office.now_s = later.due_s + 1
        await office.scheduler().look()
        assert [kind for kind, _ in await office.inbox()] == ["notice"] * 2 + ["notice", "message"] * 2
