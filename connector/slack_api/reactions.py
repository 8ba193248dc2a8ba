"""The bot's reactions on messages. Their rate limit is low, so outdated ones are cancelled before they are sent."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from connector.slack_api.rate_limiter import CallCancelled, CallSlot, CancelScope

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from connector.slack_api.client import SlackClient


class ReactionKey(NamedTuple):
    """An emoji on a message."""

    channel: str
    ts: str
    name: str


@dataclass(slots=True)
class _PendingReaction:
    """A reaction being added. Once it `is_sent` it may exist, even if the call fails."""

    scope: CancelScope = field(default_factory=CancelScope)
    is_sent: bool = False
    is_done: asyncio.Event = field(default_factory=asyncio.Event)


class Reactions:
    """Adds and removes reactions. Removing one that is not sent yet cancels it."""

    def __init__(self, client: SlackClient) -> None:
        self._client = client
        self._pending: dict[ReactionKey, _PendingReaction] = {}

    async def add(self, reaction: ReactionKey, run: str, confirm: Callable[[], Awaitable[None]] | None = None) -> bool:
        """Add a reaction; return whether it may exist. An exception from `confirm` prevents the call.

        Raises:
            SlackCallFailed: Slack refused it.
        """
        pending = self._pending[reaction] = _PendingReaction()

        async def send() -> None:
            if confirm is not None:
                await confirm()
            pending.scope.check()
            pending.is_sent = True

        try:
            await self._client.react(*reaction, CallSlot(run=run, scope=pending.scope), send)
        except CallCancelled:
            return pending.is_sent
        finally:
            pending.is_done.set()
            if self._pending.get(reaction) is pending:
                del self._pending[reaction]
        return True

    def cancel(self, reaction: ReactionKey) -> bool:
        """Cancel a reaction that waits to be sent. Return True if it certainly was never sent."""
        pending = self._pending.get(reaction)
        if pending is None:
            return False
        pending.scope.cancel()
        return not pending.is_sent

    async def remove(self, reaction: ReactionKey) -> None:
        """Remove a reaction. If it is being sent, wait for that first, so that it is not added afterwards.

        Raises:
            SlackCallFailed: Slack refused.
        """
        pending = self._pending.get(reaction)
        if self.cancel(reaction):
            return
        if pending is not None:
            await pending.is_done.wait()
        await self._client.unreact(*reaction)
