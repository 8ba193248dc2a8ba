"""Names and profiles of users, looked up with a short time-out."""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING
from unicodedata import category, normalize

import structlog

from connector.events import OPERATOR, TIME_LIMIT
from connector.protocols import MessageAuthor
from connector.slack_api.errors import SlackCallFailed
from connector.slack_api.rate_limiter import CallCancelled, CallSlot, CancelScope, Priority

if TYPE_CHECKING:
    from collections.abc import Iterable

    from connector.events import SlackMessage
    from connector.slack_api.client import SlackClient

log = structlog.get_logger(__name__)

WAIT_S = 0.5
# Seconds until the next look-up of a user: after no answer, and after an answer (also "no such user").
_RETRY_AFTER_S, _REFRESH_AFTER_S = 10.0, 3600.0
_MAX_PROFILES = 10_000
_NAME_CHARS = 80
# Look-ups in progress at which none starts for a mentioned user.
_MAX_LOOK_UPS = 100
_UNKNOWN = (None, 0.0)
_USER = re.compile(r"@([UW][A-Z0-9]{2,})\b")


@dataclass(frozen=True, slots=True)
class Profile:
    """Fields of `users.info`. `is_stranger`: a user of another workspace. `tz`: IANA name of the time zone.

    `is_deactivated`: the account can no longer be used.
    """

    name: str | None
    team: str | None
    is_stranger: bool
    is_guest: bool = False
    tz: str = ""
    is_deactivated: bool = False


@dataclass(slots=True)
class _LookUp:
    """A call of `users.info` and its number of waiters. Without waiters it leaves the rate limiter's queue."""

    task: asyncio.Task[None]
    scope: CancelScope
    waiting: int = 0


# Those that stop runs and are no users of Slack.
_NOT_IN_SLACK = {OPERATOR: "an operator", TIME_LIMIT: "its time limit"}


class Users:
    """Profiles of the workspace's users, cached and refreshed after `_REFRESH_AFTER_S`."""

    def __init__(self, client: SlackClient) -> None:
        self._client = client
        # Profile and time of the next look-up (loop time, s) by user id; the latest look-up is last.
        self._profiles: dict[str, tuple[Profile | None, float]] = {}
        self._look_ups: dict[tuple[str, Priority], _LookUp] = {}

    async def look_up(
        self,
        authors: Iterable[str],
        mentioned: Iterable[str] = (),
        within_s: float = WAIT_S,
        *,
        is_repeated: bool = False,
    ) -> None:
        """Look up users concurrently, and wait at most `within_s` seconds for the unknown ones.

        `authors` have priority over `mentioned` users, whose look-ups are skipped while many are in progress.
        `is_repeated`: also look up authors for whom Slack has not answered just now.
        """
        again = self.is_unanswered if is_repeated else lambda _: False
        of_authors = {user: self._start_look_up(user, Priority.PERSON, again(user)) for user in dict.fromkeys(authors)}
        of_mentioned = [self._start_look_up(user, Priority.LOOK_UP) for user in dict.fromkeys(mentioned)]
        waited_for = [each for each in (*of_authors.values(), *of_mentioned) if each is not None]
        if not waited_for:
            return
        for each in waited_for:
            each.waiting += 1
        try:
            await asyncio.wait([each.task for each in waited_for], timeout=within_s)
        finally:
            for each in waited_for:
                each.waiting -= 1
                if not each.waiting:
                    each.scope.cancel()
        for user, look_up in of_authors.items():
            if look_up is not None and not look_up.task.done():
                self._store(user, None, _RETRY_AFTER_S)  # the call may still complete and replace this

    def name_of(self, user: str) -> str | None:
        """Return the name of a user; `None`: it is unknown."""
        profile = self.profile(user)
        return None if profile is None else profile.name

    async def known_name_of(self, user: str | None) -> str:
        """Look up a user and return the name, or "someone" if it stays unknown."""
        if user in _NOT_IN_SLACK:
            return _NOT_IN_SLACK[user]
        if user is not None:
            await self.look_up((user,))
        return (user and self.name_of(user)) or "someone"

    def profile(self, user: str) -> Profile | None:
        """Return the profile of a user; `None`: it is unknown."""
        profile, _ = self._profiles.get(user, _UNKNOWN)
        return profile

    def is_unanswered(self, user: str) -> bool:
        """Return whether a user is unknown because Slack has not answered; it may do so at the next look-up."""
        profile, refresh_at_s = self._profiles.get(user, _UNKNOWN)
        return profile is None and refresh_at_s <= asyncio.get_running_loop().time() + _RETRY_AFTER_S

    def author(self, user: str) -> MessageAuthor:
        profile = self.profile(user)
        return MessageAuthor(user) if profile is None else MessageAuthor(user, profile.name or "", profile.tz)

    def author_of(self, message: SlackMessage) -> MessageAuthor:
        """Return the author of a message: a person, or an app under the name that it gives itself."""
        return (
            MessageAuthor(message.user, f"{message.app or 'unnamed'} · app")
            if message.bot
            else self.author(message.user)
        )

    def with_names(self, text: str) -> str:
        """Replace the ids in mentions by names, where these are known."""
        return _USER.sub(lambda mention: f"@{self.name_of(mention[1]) or mention[1]}", text)

    def with_ids(self, text: str) -> str:
        """Return a text for a model: like `with_names`, with the id after each name, because names are not unique."""
        return _USER.sub(lambda mention: _mention(mention[1], self.name_of(mention[1]) or ""), text)

    async def close(self) -> None:
        asking = [each.task for each in self._look_ups.values()]
        for task in asking:
            task.cancel()
        await asyncio.gather(*asking, return_exceptions=True)

    def _start_look_up(self, user: str, priority: Priority, is_due: bool = False) -> _LookUp | None:
        """Start a look-up if one is due. Return the one to wait for; `None`: none, or a profile is cached."""
        now_s = asyncio.get_running_loop().time()
        profile, refresh_at_s = self._profiles.get(user, _UNKNOWN)
        if now_s < refresh_at_s and not is_due:
            return None
        key = user, Priority.LOOK_UP if profile is not None else priority
        if key not in self._look_ups:
            if key[1] is Priority.LOOK_UP and len(self._look_ups) >= _MAX_LOOK_UPS:
                return None
            slot = CallSlot(key[1])
            self._look_ups[key] = _LookUp(asyncio.create_task(self._fetch_profile(user, slot)), slot.scope)
            self._look_ups[key].task.add_done_callback(lambda _: self._look_ups.pop(key, None))
        return self._look_ups[key] if profile is None else None

    async def _fetch_profile(self, user: str, slot: CallSlot) -> None:
        profile, refresh_after_s = self.profile(user), _REFRESH_AFTER_S
        try:
            found = (await self._client.call("users.info", {"user": user}, slot))["user"]
            name = found.get("profile", {}).get("display_name") or found.get("real_name") or found.get("name")
            is_guest = bool(found.get("is_restricted") or found.get("is_ultra_restricted"))
            facts = bool(found.get("is_stranger")), is_guest, found.get("tz") or "", bool(found.get("deleted"))
            profile = Profile(name, found.get("team_id"), *facts)
        except CallCancelled:
            return
        except (SlackCallFailed, KeyError) as e:
            log.info("slack.profile_unavailable", user=user, error=str(e))
            if isinstance(e, SlackCallFailed) and e.is_transient:
                refresh_after_s = _RETRY_AFTER_S
        self._store(user, profile, refresh_after_s)

    def _store(self, user: str, profile: Profile | None, refresh_after_s: float) -> None:
        self._profiles.pop(user, None)
        self._profiles[user] = profile, asyncio.get_running_loop().time() + refresh_after_s
        if len(self._profiles) > _MAX_PROFILES:
            del self._profiles[next(iter(self._profiles))]


def _mention(user: str, name: str) -> str:
    """Write a mention; drop characters from the name that could end it or imitate an id."""
    signs = normalize("NFKC", name[:_NAME_CHARS])
    kept = (sign if sign in ".'\u2019-_" or category(sign)[0] in "LMN" else " " for sign in signs)
    plain = " ".join("".join(kept).split())
    return f"@{plain} ({user})" if plain else f"@{user}"
