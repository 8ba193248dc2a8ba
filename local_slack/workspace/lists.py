"""The lists of a workspace: pins, bookmarks, scheduled messages, user groups and emoji."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from local_slack.workspace.errors import SlackRefused

if TYPE_CHECKING:
    from asyncio import TimerHandle
    from collections.abc import Callable

    from local_slack.workspace.messages import Body

# Slack accepts at most this many messages of one channel for any five minutes, and no date further away.
_PER_WINDOW, _WINDOW_S = 30, 300
_FURTHEST_S = 120 * 24 * 3600
# A message this close to its time can no longer be deleted.
_CLOSE_S = 60


@dataclass(frozen=True, slots=True)
class Pin:
    channel: str
    ts: str
    user: str
    created: int


@dataclass(frozen=True, slots=True)
class Bookmark:
    id: str
    channel: str
    title: str
    link: str
    emoji: str
    user: str
    created: int
    updated: int


@dataclass(frozen=True, slots=True)
class ScheduledMessage:
    """A message that is posted at ``post_at``, in seconds since the epoch."""

    id: str
    channel: str
    user: str
    post_at: int
    created: int
    body: Body
    timer: TimerHandle


@dataclass(frozen=True, slots=True)
class UserGroup:
    id: str
    name: str
    handle: str
    description: str
    users: tuple[str, ...]
    creator: str
    created: int
    updated: int


class Lists:
    """Own the pins, bookmarks, scheduled messages and user groups of a workspace; ``emoji`` maps names to URLs."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._count = 0
        self.pins: dict[tuple[str, str], Pin] = {}
        self.bookmarks: dict[str, Bookmark] = {}
        self.scheduled: dict[str, ScheduledMessage] = {}
        self.user_groups: dict[str, UserGroup] = {}
        self.emoji: dict[str, str] = {}
        # Read cursors, by channel and member.
        self.last_read: dict[tuple[str, str], str] = {}

    def new_id(self, kind: str) -> str:
        """Return a new id that begins with ``kind``."""
        self._count += 1
        return f"{kind}0LOCAL{self._count:04d}"

    def pin(self, channel: str, ts: str, user: str) -> None:
        if (channel, ts) in self.pins:
            raise SlackRefused("already_pinned")
        self.pins[channel, ts] = Pin(channel, ts, user, int(self._clock()))

    def unpin(self, channel: str, ts: str) -> None:
        if self.pins.pop((channel, ts), None) is None:
            raise SlackRefused("no_pin")

    def add_bookmark(self, channel: str, title: str, link: str, emoji: str, user: str) -> Bookmark:
        now = int(self._clock())
        bookmark = Bookmark(self.new_id("Bk"), channel, title, link, emoji, user, now, now)
        self.bookmarks[bookmark.id] = bookmark
        return bookmark

    def bookmark(self, bookmark_id: str, channel: str) -> Bookmark:
        found = self.bookmarks.get(bookmark_id)
        if found is None or found.channel != channel:
            raise SlackRefused("not_found")
        return found

    def edit_bookmark(self, before: Bookmark, title: str | None, link: str | None, emoji: str | None) -> Bookmark:
        """Replace the given parts of a bookmark."""
        bookmark = replace(
            before,
            title=before.title if title is None else title,
            link=before.link if link is None else link,
            emoji=before.emoji if emoji is None else emoji,
            updated=int(self._clock()),
        )
        self.bookmarks[bookmark.id] = bookmark
        return bookmark

    def check_time(self, channel: str, post_at: int) -> None:
        """Refuse a time in the past or too far away, and more messages around it than Slack accepts."""
        now = self._clock()
        if post_at <= now:
            raise SlackRefused("time_in_past")
        if post_at - now > _FURTHEST_S:
            raise SlackRefused("time_too_far")
        around = [each for each in self.scheduled.values() if each.channel == channel]
        if sum(abs(each.post_at - post_at) < _WINDOW_S for each in around) >= _PER_WINDOW:
            raise SlackRefused("restricted_too_many")

    def unschedule(self, scheduled_id: str, channel: str, user: str) -> None:
        found = self.scheduled.get(scheduled_id)
        is_theirs = found is not None and (found.channel, found.user) == (channel, user)
        if found is None or not is_theirs or found.post_at - self._clock() < _CLOSE_S:
            raise SlackRefused("invalid_scheduled_message_id")
        self.scheduled.pop(scheduled_id).timer.cancel()

    def close(self) -> None:
        """Post no further scheduled messages."""
        for each in self.scheduled.values():
            each.timer.cancel()
