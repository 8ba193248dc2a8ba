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


@dataclass(frozen=True, slots=True)
class Policy:
    """Who may use the bot, and in which channels; `None`: everybody, everywhere.

    Direct messages are not bound by `channels`. `external`: people of other workspaces, in shared channels, too.
    """

    users: frozenset[str] | None = None
    channels: frozenset[str] | None = None
    external: bool = False


@dataclass(frozen=True, slots=True)
class Visitor:
    """Who does something, and where.

    Args:
        home: the workspace that they belong to, as far as Slack has said it.
        is_shared: whether the channel is shared with another workspace; `None`: Slack has not said it.
    """

    user: str
    channel: str
    home: str | None = None
    is_shared: bool | None = False

    @property
    def is_direct(self) -> bool:
        return self.channel.startswith("D")


class Gate:
    """Lets in whom the policy allows, and says to the others why not; that, once an hour in each channel."""

    def __init__(
        self,
        policy: Policy,
        team: str,
        wire: Wire,
        *,
        now_s: Callable[[], float] = time.monotonic,
        ask_within_s: float = _ASK_WITHIN_S,
    ) -> None:
        self._policy = policy
        self._team = team
        self._wire = wire
        self._now_s = now_s
        self._ask_within_s = ask_within_s
        self._is_external: OrderedDict[str, bool] = OrderedDict()
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
            return visitor.home != self._team
        if visitor.is_shared is False:
            return False
        if visitor.user not in self._is_external:
            answer = await self._ask(visitor.user)
            if answer is None:
                return visitor.is_shared is True
            _remember(self._is_external, visitor.user, answer)
        return self._is_external[visitor.user]

    async def _ask(self, user: str) -> bool | None:
        """Whether somebody belongs to another workspace; `None`: Slack does not say so."""
        try:
            async with asyncio.timeout(self._ask_within_s):
                told = (await self._wire.call("users.info", {"user": user}, Turn()))["user"]
        except (SlackCallFailed, TimeoutError, KeyError) as e:
            log.info("gate.unknown", user=user, error=str(e))
            return None
        return bool(told.get("is_stranger")) or told.get("team_id", self._team) != self._team


def _remember(known: OrderedDict[K, V], key: K, value: V) -> None:
    known[key] = value
    known.move_to_end(key)
    if len(known) > _REMEMBERED:
        known.popitem(last=False)
