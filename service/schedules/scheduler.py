"""Fire the schedules that are due, each occurrence once over all processes, and report those that were missed.

The effect of a schedule is decided once: the decision replaces its document only if no other process has replaced it.
It is then carried out by inbox entries whose ids follow from the occurrence, and repeated until it is known to be done.
"""

from __future__ import annotations

import asyncio
import random
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict, replace
from typing import TYPE_CHECKING

import structlog

from connector.events import ThreadAddress
from connector.schedules import Firing
from connector.slack_api.errors import error_boundary
from orchestrator_interactive.storage.errors import StoreError
from service.schedules.stored import KEPT_S, Stored
from service.schedules.times import MOST_COUNTED, occurrences, passed

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from connector.inbound.unattended import Unattended
    from connector.schedules import Schedule
    from service.schedules.stored import StoredSchedules

log = structlog.get_logger(__name__)

# An occurrence that is older was missed.
GRACE_S = 300.0
# Longest time until a schedule that another process has added is seen.
_LOOK_EVERY_S = 15.0
_LEAST_WAIT_S = 0.05
_AT_A_TIME = 20


class Scheduler:
    """Fires the schedules of one workspace."""

    def __init__(self, schedules: StoredSchedules, slack: Unattended, grace_s: float = GRACE_S) -> None:
        self._schedules = schedules
        self._slack = slack
        self._grace_s = grace_s

    async def run(self) -> None:
        """Fire due schedules, for ever. Store outages delay it."""
        while True:
            self._schedules.changed.clear()
            wait_s = _LOOK_EVERY_S
            try:
                wait_s = await self.look()
            except StoreError as e:
                log.error("schedules.not_read", problem=str(e))  # noqa: TRY400 - the message gives the reason
            wait_s *= random.uniform(1, 1.1) if wait_s == _LOOK_EVERY_S else 1  # noqa: S311 - jitter between replicas
            with suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await self._schedules.changed.wait()

    async def look(self) -> float:
        """Fire the schedules that are due now; return the seconds until the next look.

        Raises:
            StoreError: the schedules cannot be read.
        """
        now_s, slots = self._schedules.now_s(), asyncio.Semaphore(_AT_A_TIME)
        stored = await self._schedules.stored(self._slack.team)
        for old in [
            each.schedule for each in stored if each.schedule.is_over and now_s - each.schedule.over_s > KEPT_S
        ]:
            await self._schedules.delete(self._slack.team, old.id)
        due = [each for each in stored if each.schedule.firing or _is_due(each.schedule, now_s)]

        async def fire(each: Stored) -> None:
            async with slots:
                with error_boundary("schedule.not_fired", schedule=each.schedule.id):
                    await self._fire(each, now_s)

        async with asyncio.TaskGroup() as firing:
            for each in due:
                firing.create_task(fire(each))
        later = [each.schedule.due_s for each in stored if not each.schedule.suspended and each.schedule.due_s > now_s]
        return min(
            _LOOK_EVERY_S, max(min(later, default=now_s + _LOOK_EVERY_S) - self._schedules.now_s(), _LEAST_WAIT_S)
        )

    async def _fire(self, stored: Stored, now_s: float) -> None:
        schedule, place = stored.schedule, ThreadAddress.parse(stored.schedule.place)
        if schedule.firing is None:
            found = await self._slack.obstacle(schedule.user, place.channel, schedule.instance)
            if found is not None and found.is_transient:
                return
            decided = decided_of(schedule, now_s, self._grace_s)
            if found is not None:
                decided = replace(decided, suspended=found.reason, firing=Firing(last_s=schedule.due_s))
            if not await self._schedules.replace(stored, decided):
                return
            stored = Stored(decided, asdict(decided))
        await self._carry_out(stored.schedule, place)
        await self._done(stored)

    async def _carry_out(self, schedule: Schedule, place: ThreadAddress) -> None:
        firing = schedule.firing
        if firing is None:
            return
        key = f"{schedule.id}.{int(firing.at_s or firing.last_s)}"
        fields = {"schedule": schedule.id, "place": schedule.place, "user": schedule.user}
        name, missed = await self._slack.name_of(schedule.user), missed_of(schedule, firing)
        if schedule.suspended:
            log.warning("schedule.suspended", **fields, reason=schedule.suspended)
            text = f"⏰ The schedule {schedule.id} of {name} (“{schedule.text}”) is suspended: {schedule.suspended}"
            await self._slack.report(place, schedule.user, key, text)
        elif not firing.at_s:
            log.warning("schedule.missed", **fields, missed=firing.missed)
            text = (
                f"⏰ {missed} So I did not do this for {name}: “{schedule.text}”. To have it done now, write it to me."
            )
            await self._slack.report(place, schedule.user, key, text)
        else:
            log.info("schedule.fired", **fields, missed=firing.missed)
            shown = f"⏰ Scheduled by {name} ({schedule.id}, {schedule.when}): {schedule.text}"
            prompt = f"[Scheduled message {schedule.id}: {schedule.when}] {schedule.text}"
            text = f"{shown}\n{missed}" if missed else shown
            await self._slack.begin(place, schedule.user, schedule.instance, key, prompt=prompt, shown=text)

    async def _done(self, stored: Stored) -> None:
        """Store that the decision is carried out."""
        schedule = replace(stored.schedule, firing=None)
        if not schedule.due_s and not schedule.suspended:
            schedule = schedule.over(self._schedules.now_s())
        await self._schedules.replace(stored, schedule)


def decided_of(schedule: Schedule, now_s: float, grace_s: float = GRACE_S) -> Schedule:
    """Return a due schedule with its effect for the occurrences until now, and its next occurrence.

    Only the latest occurrence fires, and only within the grace and after a restored backup; the others are missed.
    """
    times, count, due_s = [schedule.due_s], 1, 0.0
    if schedule.cron:
        times, count = passed(schedule.cron, schedule.zone, schedule.due_s, now_s)
        due_s = next(occurrences(schedule.cron, schedule.zone, now_s), 0.0)
    at_s = 0.0
    if now_s - times[-1] <= grace_s and times[-1] > schedule.restored_s:
        at_s, count = times.pop(), count - 1
    missed = (count, times[0], times[-1]) if times else ()
    return replace(schedule, due_s=due_s, firing=Firing(at_s, *missed))


def missed_of(schedule: Schedule, firing: Firing) -> str:
    """Return a sentence about the occurrences that were missed; blank: none."""
    first, last, why = schedule.local(firing.first_s), schedule.local(firing.last_s), "was not running at"
    if firing.first_s <= schedule.restored_s:
        why = "was restored from a backup, and may have done this at"
    match firing.missed:
        case 0:
            return ""
        case 1:
            return f"I {why} the scheduled time ({first}, {schedule.zone})."
    count = f"{firing.missed}{' or more' if firing.missed >= MOST_COUNTED - 1 else ''}"
    return f"I {why} {count} scheduled times (from {first} to {last}, {schedule.zone})."


@asynccontextmanager
async def firing_schedules(
    schedules: StoredSchedules, slack: Unattended, grace_s: float = GRACE_S
) -> AsyncIterator[None]:
    """Fire the schedules of a workspace while the context is open; an occurrence older than `grace_s` was missed."""
    schedules.zones[slack.team] = slack.zone_of
    task = asyncio.create_task(Scheduler(schedules, slack, grace_s).run())
    try:
        yield
    finally:
        schedules.zones.pop(slack.team, None)
        task.cancel()
        await asyncio.wait([task])


def _is_due(schedule: Schedule, now_s: float) -> bool:
    return not schedule.suspended and 0 < schedule.due_s <= now_s
