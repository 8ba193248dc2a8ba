"""Keep the schedules of people in the run store: add, list and remove them."""

from __future__ import annotations

import asyncio
import time
from dataclasses import asdict
from hashlib import sha256
from typing import TYPE_CHECKING, Any, NamedTuple

from pydantic import TypeAdapter

from connector.events import ThreadAddress
from connector.records import active_run
from connector.schedules import Schedule
from service.schedules.times import parse
from service.store.base import MOST_DOCUMENTS, parse_documents, thread_of, workspace_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from orchestrator_interactive.interactions.records import Key
    from service.sessions.host import HostFunction
    from service.store.base import RunStore

_SCHEDULE = TypeAdapter(Schedule)
_ID_CHARS = 8
_TEXT_CHARS = 2_000
# How long the identity of a schedule that is over is kept, if there is room for it.
KEPT_S = 7 * 86_400.0
# Schedules of a person, and of a workspace. The collection has room for those that are added at the same moment.
MOST_OF_PERSON, MOST = 50, MOST_DOCUMENTS - 100
NONE = "There are no schedules here."
_NOT_YOURS = "Only the person who made it can remove it here."


class Stored(NamedTuple):
    """A schedule, and its document."""

    schedule: Schedule
    document: Mapping[str, Any]


class StoredSchedules:
    """The schedules of all workspaces, in documents of the run store; implements `connector.schedules.Schedules`.

    Args:
        now_s: seconds since the epoch.

    Attributes:
        zones: by workspace, a function that returns the IANA name of a person's time zone; without one, it is UTC.
        changed: set when this process adds a schedule.
    """

    def __init__(self, store: RunStore, now_s: Callable[[], float] = time.time) -> None:
        self._store = store
        self.now_s = now_s
        self.zones: dict[str, Callable[[str], Awaitable[str]]] = {}
        self.changed = asyncio.Event()

    @property
    def functions(self) -> dict[str, HostFunction]:
        """The functions that sessions may call; see `service.sessions.host`."""
        return {"schedules.add": self._add, "schedules.list": self._list, "schedules.remove": self._remove}

    async def stored(self, team: str) -> list[Stored]:
        """Return the readable schedules of a workspace, the next one first."""
        documents = await self._store.documents(_collection(team))
        found = [Stored(each, documents[name]) for name, each in parse_documents(_SCHEDULE, documents).items()]
        return sorted(found, key=lambda each: (not each.schedule.due_s, each.schedule.due_s))

    async def of_person(self, team: str, user: str) -> tuple[Schedule, ...]:
        """Return the schedules of a person, the next one first."""
        return tuple(each for each in await self.current(team) if each.user == user)

    async def of_place(self, place: str) -> tuple[Schedule, ...]:
        """Return the schedules of a conversation, the next one first."""
        return tuple(each for each in await self.current(workspace_of(place)) if each.place == place)

    async def current(self, team: str) -> list[Schedule]:
        """Return the schedules of a workspace that are not over."""
        return [each.schedule for each in await self.stored(team) if not each.schedule.is_over]

    async def add(  # noqa: PLR0913 - the parts of a schedule
        self, place: str, user: str, instance: str, request: str, call: str, *, zone: str = ""
    ) -> Schedule:
        """Store a schedule and return it; a known `call` returns the stored one.

        `request` has the times, then the message; `zone` is their time zone, blank: that of the person.

        Raises:
            ValueError: the times are not possible, their zone is not known now, or there are too many schedules; the
                message is a sentence.
        """
        team = workspace_of(place)
        schedule_id = f"s{sha256(f'{place} {call}'.encode()).hexdigest()[:_ID_CHARS]}"
        known = [each.schedule for each in await self.stored(team)]
        if (same := next((each for each in known if each.id == schedule_id), None)) is not None:
            return same
        current = [each for each in known if not each.is_over]
        if len(current) >= MOST:
            raise ValueError(f"This workspace has {MOST} schedules, and no more are possible: remove one first.")
        if sum(each.user == user for each in current) >= MOST_OF_PERSON:
            raise ValueError(f"You have {MOST_OF_PERSON} schedules, and no more are possible: remove one first.")
        zone, now_s = zone or (await self.zones[team](user) if team in self.zones else "") or "UTC", self.now_s()
        times, text = await asyncio.to_thread(parse, request, zone, now_s)
        if not text or len(text) > _TEXT_CHARS:
            raise ValueError(f"After the times, write the message to me: 1 to {_TEXT_CHARS} characters.")
        parts = (place, instance, user, text, times.title, times.cron, zone, now_s, times.first_s, call)
        schedule = Schedule(schedule_id, *parts)
        over = sorted((each for each in known if each.is_over), key=lambda each: each.over_s)
        for old in over[: max(len(known) + 1 - MOST, 0)]:  # the store would delete the oldest ones, also current ones
            await self.delete(team, old.id)
        await self._store.put_document(_collection(team), schedule_id, asdict(schedule))
        self.changed.set()
        return schedule

    async def replace(self, stored: Stored, schedule: Schedule) -> bool:
        """Store another state of a schedule; return False if it was removed or changed in the meantime."""
        collection = _collection(workspace_of(schedule.place))
        return await self._store.replace_document(collection, schedule.id, stored.document, asdict(schedule))

    async def delete(self, team: str, schedule_id: str) -> bool:
        """Delete a schedule; return whether it existed."""
        return await self._store.delete_document(_collection(team), schedule_id)

    async def revoke(self, team: str, user: str, schedule_id: str) -> bool:
        """Delete a schedule of a person; return whether it existed."""
        found = next((each for each in await self.of_person(team, user) if each.id == schedule_id), None)
        if found is not None:
            await self._end(found)
        return found is not None

    async def carry_out(self, place: ThreadAddress, user: str, instance: str, argument: str, call: str) -> str:
        """Carry out a command; see the protocol."""
        where = place.thread.conversation_id
        try:
            match argument.split():
                case []:
                    return "\n".join(each.line for each in await self.of_place(where)) or NONE
                case ["remove", schedule_id]:
                    return f"🗑️ Removed: {await self._removed(where, user, schedule_id)}"
            added = await self.add(where, user, instance, argument, call)
        except ValueError as e:
            return str(e)
        return f"{added.line} `!schedule remove {added.id}` removes it."

    async def _removed(self, place: str, user: str, schedule_id: str) -> str:
        """Remove a schedule of a person, or of their thread, and return its message.

        Raises:
            ValueError: there is none.
        """
        team, named = workspace_of(place), schedule_id.strip("`")
        found = next((each for each in await self.current(team) if each.id == named), None)
        may_remove = found is not None and (found.user == user or _is_thread(place, found))
        if found is None or not may_remove:
            raise ValueError(f"You have no schedule {named!r}.{f' {_NOT_YOURS}' if found is not None else ''}")
        await self._end(found)
        return f"“{found.text}” ({found.when})."

    async def _end(self, schedule: Schedule) -> None:
        data = asdict(schedule.over(self.now_s()))
        await self._store.put_document(_collection(workspace_of(schedule.place)), schedule.id, data)

    async def _add(self, key: Key, arguments: Mapping[str, Any]) -> dict[str, Any]:
        place, request = thread_of(key.conversation_id), f"{arguments['when']} {arguments['text']}"
        if arguments.get("new_thread"):
            place = ThreadAddress.parse(place).of_channel.conversation_id
        zone, (user, run_id) = str(arguments.get("zone") or ""), await self._asker(key)
        call = f"{key.conversation_id} {run_id} {arguments['call_id']}"
        added = await self.add(place, user, key.agent_id, request, call, zone=zone)
        return {"id": added.id, "line": added.line}

    async def _list(self, key: Key, _: Mapping[str, Any]) -> dict[str, Any]:
        return {"lines": [each.line for place in _places(key) for each in await self.of_place(place)]}

    async def _remove(self, key: Key, arguments: Mapping[str, Any]) -> dict[str, Any]:
        place = thread_of(key.conversation_id)
        return {"removed": await self._removed(place, (await self._asker(key))[0], str(arguments["id"]))}

    async def _asker(self, key: Key) -> tuple[str, str]:
        """Return the person who began the active run of a session, and the id of the run.

        Raises:
            ValueError: no person did.
        """
        record = await self._store.record(key.conversation_id)
        run = active_run(None if record is None else record.run)
        if run is None or not run.first.has_person:
            raise ValueError("Only in a run that a person began.")
        return run.first.owner, run.id


def _places(key: Key) -> tuple[str, ...]:
    thread = thread_of(key.conversation_id)
    return tuple(dict.fromkeys((thread, ThreadAddress.parse(thread).of_channel.conversation_id)))


def _is_thread(place: str, schedule: Schedule) -> bool:
    return schedule.place == place and ThreadAddress.parse(place).thread_ts is not None


def _collection(team: str) -> str:
    return f"schedules:{team}"
