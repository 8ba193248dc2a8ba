"""Who may use the bot, and where: asked before anything else is done with what people do."""

from __future__ import annotations

import time
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING

import structlog

if TYPE_CHECKING:
    from collections.abc import Callable

    from connector.slack_api.users import Profile, Users

log = structlog.get_logger(__name__)

_ASK_WITHIN_S = 1.0
_TELL_AGAIN_AFTER_S = 3600.0
_REMEMBERED = 10_000


@dataclass(frozen=True, slots=True)
class AccessRules:
    """Who may use the bot, and in which channels; `None`: everybody, everywhere.

    Direct messages are not bound by `channels`. `external`: people of other workspaces, in shared channels, too.
    `guests`: those of this workspace, too.
    """

    users: frozenset[str] | None = None
    channels: frozenset[str] | None = None
    external: bool = False
    guests: bool = True


@dataclass(frozen=True, slots=True)
class Actor:
    """Who does something, and where.

    Args:
        home: the workspace that they belong to, or the organisation; `None`: Slack has not named it.
        is_shared: whether the channel is shared with another workspace; `None`: Slack has not said it.
    """

    user: str
    channel: str
    home: str | None = None
    is_shared: bool | None = False

    @property
    def is_direct(self) -> bool:
        return self.channel.startswith("D")


class AccessPolicy:
    """Lets in whom the policy allows, and says to the others why not; that, once an hour in each channel."""

    def __init__(  # noqa: PLR0913 - the last three have defaults
        self,
        policy: AccessRules,
        team: str,
        names: Users,
        *,
        enterprise: str = "",
        now_s: Callable[[], float] = time.monotonic,
        ask_within_s: float = _ASK_WITHIN_S,
    ) -> None:
        self._policy = policy
        self._ours = (team, enterprise)
        self._names = names
        self._now_s = now_s
        self._ask_within_s = ask_within_s
        self._told_s: OrderedDict[tuple[str, str], float] = OrderedDict()

    async def refusal(self, visitor: Actor) -> str | None:
        """Why somebody may not use the bot here, in a sentence for them; `None`: they may."""
        policy = self._policy
        if policy.users is not None and visitor.user not in policy.users:
            return "You may not use me: whoever runs me has said who may. Ask them to add you."
        if policy.channels is not None and not visitor.is_direct and visitor.channel not in policy.channels:
            return "I may not be used in this channel: whoever runs me has said in which. Ask them to add it."
        if not policy.external and await self._comes_from_elsewhere(visitor):
            return "I work for the people of another workspace only. Ask whoever runs me there to let you in."
        if not policy.guests:
            profile = await self._profile(visitor.user)
            if profile is None:
                return "Guests may not use me, and Slack does not say just now whether you are one. Write again later."
            if profile.is_guest and not self._is_external(profile):
                return "Guests of this workspace may not use me. Ask whoever runs me to let you in."
        return None

    def is_to_be_told(self, visitor: Actor) -> bool:
        """Whether they have not been told in this hour. They count as told from here on."""
        now_s, key = self._now_s(), (visitor.user, visitor.channel)
        if now_s - self._told_s.get(key, -_TELL_AGAIN_AFTER_S) < _TELL_AGAIN_AFTER_S:
            return False
        self._told_s[key] = now_s
        self._told_s.move_to_end(key)
        if len(self._told_s) > _REMEMBERED:
            self._told_s.popitem(last=False)
        return True

    async def _comes_from_elsewhere(self, visitor: Actor) -> bool:
        if visitor.home is not None:
            return visitor.home not in self._ours
        if visitor.is_shared is False:
            return False
        profile = await self._profile(visitor.user)
        return visitor.is_shared is True if profile is None else self._is_external(profile)

    def _is_external(self, profile: Profile) -> bool:
        return profile.is_stranger or profile.team not in (None, *self._ours)

    async def _profile(self, user: str) -> Profile | None:
        """Return what Slack says of a user; `None`: it does not answer in time, or knows no such user."""
        await self._names.learn((user,), within_s=self._ask_within_s)
        profile = self._names.profile(user)
        if profile is None:
            log.info("gate.unknown", user=user)
        return profile
