"""Schedules: messages of people that an agent gets later, once or regularly."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Protocol
from zoneinfo import ZoneInfo

from connector.formatting.content import one_line

if TYPE_CHECKING:
    from connector.events import ThreadAddress

_TEXT_CHARS = 120


@dataclass(frozen=True, slots=True)
class Firing:
    """The effect of a schedule for its past occurrences, stored before it is carried out.

    Args:
        at_s: the occurrence that fires, in seconds since the epoch; 0: none.
        missed: number of occurrences that were missed; `first_s` and `last_s` are the first and the last one.
    """

    at_s: float = 0.0
    missed: int = 0
    first_s: float = 0.0
    last_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Schedule:
    """A message of a person to an agent at a later time.

    Args:
        id: such as `s3f2a9c1d`; unique in its workspace.
        place: id of the conversation that gets the message; that of a whole channel: each message begins a thread.
        instance: name of the agent.
        user: the person.
        text: the message.
        when: the times, in words.
        cron: the times as a line of cron; blank: once.
        zone: IANA name of the time zone.
        created_s: time of creation; `due_s` of the next occurrence, in seconds since the epoch; 0: there is none.
        call: identity of the request that made it.
        suspended: why it no longer fires, as a sentence; blank: it does.
        firing: its effect at present; `None`: none.
        over_s: when it was removed or fired for the last time; 0: it is not over.
        restored_s: when a backup with it was restored; occurrences until then may have fired before. 0: none was.
    """

    id: str
    place: str
    instance: str
    user: str
    text: str
    when: str
    cron: str
    zone: str
    created_s: float
    due_s: float
    call: str = ""
    suspended: str = ""
    firing: Firing | None = None
    over_s: float = 0.0
    restored_s: float = 0.0

    @property
    def is_over(self) -> bool:
        return self.over_s > 0

    def over(self, at_s: float) -> Schedule:
        """Return the record of its end, which prevents that a repeated request makes it again."""
        return replace(self, text="", due_s=0.0, firing=None, over_s=at_s)

    def local(self, at_s: float) -> str:
        """Return a time, in seconds since the epoch, in its time zone."""
        return f"{datetime.fromtimestamp(at_s, ZoneInfo(self.zone)):%a %d %b %Y %H:%M}"

    @property
    def line(self) -> str:
        """One line of a list, for people and models."""
        following = f" Next: {self.local(self.due_s)}." if self.due_s and self.cron else ""
        state = f" Suspended: {self.suspended}" if self.suspended else following
        return f"⏰ `{self.id}` {self.when}: “{one_line(self.text, _TEXT_CHARS)}”.{state}"


class Schedules(Protocol):
    """The schedules of a workspace. All methods wait while the store is unavailable."""

    async def carry_out(self, place: ThreadAddress, user: str, instance: str, argument: str, call: str) -> str:
        """Carry out a command in a place, and return the answer as plain text.

        A blank argument lists the schedules of the place, `remove ID` deletes one; otherwise it begins with the times,
        and the message follows. A repeated `call` changes nothing more.
        """

    async def of_person(self, team: str, user: str) -> tuple[Schedule, ...]:
        """Return the schedules of a person, the next one first."""

    async def revoke(self, team: str, user: str, schedule_id: str) -> bool:
        """Delete a schedule of a person; return whether it existed."""
