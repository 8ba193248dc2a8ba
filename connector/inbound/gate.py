"""Who may use the bot, and where: asked before anything else is done with what people do."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import structlog

from connector.outbound.errors import SlackCallFailed
from connector.outbound.scheduler import Turn

if TYPE_CHECKING:
    from collections.abc import Callable

    from connector.outbound.wire import Wire

log = structlog.get_logger(__name__)

K = TypeVar("K")
V = TypeVar("V")

_ASK_WITHIN_S = 1.0
_TELL_AGAIN_AFTER_S = 3600.0
_REMEMBERED = 10_000
# A member may become a guest, and a guest a member.
_KNOWN_FOR_S = 3600.0


@dataclass(frozen=True, slots=True)
class Policy:
    """Who may use the bot, and in which channels; `None`: everybody, everywhere.

    Direct messages are not bound by `channels`. `external`: people of other workspaces, in shared channels, too.
    `guests`: those of this workspace, too.
    """

    users: frozenset[str] | None = None
    channels: frozenset[str] | None = None
    external: bool = False
    guests: bool = True


@dataclass(frozen=True, slots=True)
class Visitor:
    """Who does something, and where.

    Args:
        home: the workspace that they belong to, or the organisation, as far as Slack has said it.
        is_shared: whether the channel is shared with another workspace; `None`: Slack has not said it.
    """

    user: str
    channel: str
    home: str | None = None
    is_shared: bool | None = False

    @property
    def is_direct(self) -> bool:
        return self.channel.startswith("D")


@dataclass(frozen=True, slots=True)
class _Profile:
    is_external: bool
    is_guest: bool
    read_s: float


class Gate:
    """Lets in whom the policy allows, and says to the others why not; that, once an hour in each channel."""

    def __init__(  # noqa: PLR0913 - the last three have defaults
        self,
        policy: Policy,
        team: str,
        wire: Wire,
        *,
        enterprise: str = "",
        now_s: Callable[[], float] = time.monotonic,
        ask_within_s: float = _ASK_WITHIN_S,
    ) -> None:
        self._policy = policy
        self._ours = (team, enterprise)
        self._wire = wire
        self._now_s = now_s
        self._ask_within_s = ask_within_s
        self._profiles: OrderedDict[str, _Profile] = OrderedDict()
        self._told_s: OrderedDict[tuple[str, str], float] = OrderedDict()

    async def refusal(self, visitor: Visitor) -> str | None:
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
            if profile.is_guest:
                return "Guests of this workspace may not use me. Ask whoever runs me to let you in."
        return None

    def is_to_be_told(self, visitor: Visitor) -> bool:
        """Whether they have not been told in this hour. They count as told from here on."""
        now_s, key = self._now_s(), (visitor.user, visitor.channel)
        if now_s - self._told_s.get(key, -_TELL_AGAIN_AFTER_S) < _TELL_AGAIN_AFTER_S:
            return False
        _remember(self._told_s, key, now_s)
        return True

    async def _comes_from_elsewhere(self, visitor: Visitor) -> bool:
        if visitor.home is not None:
            return visitor.home not in self._ours
        if visitor.is_shared is False:
            return False
        profile = await self._profile(visitor.user)
        return visitor.is_shared is True if profile is None else profile.is_external

    async def _profile(self, user: str) -> _Profile | None:
        """What Slack says of somebody; `None`: it does not say it in time. It is asked again an hour later."""
        known = self._profiles.get(user)
        if known is None or self._now_s() - known.read_s >= _KNOWN_FOR_S:
            try:
                async with asyncio.timeout(self._ask_within_s):
                    told = (await self._wire.call("users.info", {"user": user}, Turn()))["user"]
            except (SlackCallFailed, TimeoutError, KeyError) as e:
                log.info("gate.unknown", user=user, error=str(e))
                return None
            is_external = bool(told.get("is_stranger")) or told.get("team_id", self._ours[0]) not in self._ours
            is_guest = bool(told.get("is_restricted") or told.get("is_ultra_restricted"))
            known = _Profile(is_external, is_guest and not is_external, self._now_s())
            _remember(self._profiles, user, known)
        return known


def _remember(known: OrderedDict[K, V], key: K, value: V) -> None:
    known[key] = value
    known.move_to_end(key)
    if len(known) > _REMEMBERED:
        known.popitem(last=False)
