"""Decide which users may use the bot, and in which channels."""

from __future__ import annotations

import time
from collections import OrderedDict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeVar

import structlog

if TYPE_CHECKING:
    from collections.abc import Callable

    from connector.slack_api.users import Profile, Users

log = structlog.get_logger(__name__)

_PROFILE_TIMEOUT_S = 1.0
_NOTICE_INTERVAL_S = 3600.0
MAX_NAMES = 10_000
# The only refusal that may be another one, or none, a moment later.
CANNOT_CHECK = "Guests may not use me, and I cannot check right now whether you are one. Write again later."

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class AccessRules:
    """The users that may use the bot, and the channels for it; `None`: all.

    `channels` does not restrict direct messages. `external` also allows people of other workspaces, in shared channels.
    `guests` also allows guests of this workspace.
    """

    users: frozenset[str] | None = None
    channels: frozenset[str] | None = None
    external: bool = False
    guests: bool = True


class LatestEntries(OrderedDict[str, T]):
    """The entries added last, at most this many."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self._most = most

    def __setitem__(self, key: str, value: T) -> None:
        super().__setitem__(key, value)
        if len(self) > self._most:
            self.popitem(last=False)


@dataclass(frozen=True, slots=True)
class Actor:
    """The user behind an event, and its channel.

    Args:
        home: id of the user's workspace or organisation; `None`: not in the event.
        is_shared: whether the channel is shared with another workspace; `None`: not in the event.
        is_bot: whether it is another bot that is answered: the rules about users do not apply to it.
    """

    user: str
    channel: str
    home: str | None = None
    is_shared: bool | None = False
    is_bot: bool = False


class AccessPolicy:
    """Checks users against the access rules. A refused user gets the reason once an hour in each channel."""

    def __init__(  # noqa: PLR0913 - the last three have defaults
        self,
        policy: AccessRules,
        team: str,
        users: Users,
        *,
        enterprise: str = "",
        now_s: Callable[[], float] = time.monotonic,
        profile_timeout_s: float = _PROFILE_TIMEOUT_S,
    ) -> None:
        self.rules = policy
        self._own_ids = (team, enterprise)
        self._users = users
        self._now_s = now_s
        self._profile_timeout_s = profile_timeout_s
        self._notified_s: LatestEntries[float] = LatestEntries(MAX_NAMES)

    async def refusal(self, actor: Actor) -> str | None:
        """Return why a user may not use the bot here, as a sentence for that user; `None`: allowed."""
        policy = replace(self.rules, users=None, external=True, guests=True) if actor.is_bot else self.rules
        if policy.users is not None and actor.user not in policy.users:
            return "You may not use me: my operator allows only certain people. Ask my operator to add you."
        if policy.channels is not None and not actor.channel.startswith("D") and actor.channel not in policy.channels:
            return "I may not be used in this channel: my operator allows only certain ones. Ask my operator to add it."
        is_foreign: bool | None = actor.home not in self._own_ids if actor.home is not None else actor.is_shared
        if not policy.external and actor.home is None and actor.is_shared is not False:  # ask Slack
            profile = await self._profile(actor.user)
            is_foreign = actor.is_shared if profile is None else self._is_external(profile)
        if not policy.external and is_foreign:
            return "I work for the people of another workspace only. Ask my operator there to give you access."
        if not policy.guests:
            profile = await self._profile(actor.user)
            if profile is None:
                return CANNOT_CHECK
            if profile.is_guest and not self._is_external(profile):
                return "Guests of this workspace may not use me. Ask my operator to give you access."
        return None

    def should_notify(self, actor: Actor) -> bool:
        """Return whether the user got no notice in this channel within the last hour, and record a notice now."""
        now_s, key = self._now_s(), f"{actor.user} {actor.channel}"
        if now_s - self._notified_s.get(key, -_NOTICE_INTERVAL_S) < _NOTICE_INTERVAL_S:
            return False
        self._notified_s.pop(key, None)
        self._notified_s[key] = now_s
        return True

    def _is_external(self, profile: Profile) -> bool:
        return profile.is_stranger or profile.team not in (None, *self._own_ids)

    async def _profile(self, user: str) -> Profile | None:
        """Return a user's profile; `None`: Slack does not answer in time, or knows no such user."""
        await self._users.look_up((user,), within_s=self._profile_timeout_s)
        profile = self._users.profile(user)
        if profile is None:
            log.info("access.profile_unknown", user=user)
        return profile
