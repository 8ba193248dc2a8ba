"""Emojis of ours on people's messages. Slack lets few of them through: what is not true any more is not put there."""

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
    """A reaction on its way. Once it `is_sent` it may be there, whatever we hear of it."""

    scope: CancelScope = field(default_factory=CancelScope)
    is_sent: bool = False
    is_done: asyncio.Event = field(default_factory=asyncio.Event)


class Reactions:
    """Puts marks on messages and takes them away; what was not sent yet when it is taken away never is."""

    def __init__(self, client: SlackClient) -> None:
        self._client = client
        self._pending: dict[ReactionKey, _PendingReaction] = {}

    async def put(self, reaction: ReactionKey, run: str, confirm: Callable[[], Awaitable[None]] | None = None) -> bool:
        """Put a reaction; whether it may be there. What `confirm` raises keeps it from being put.

        Raises:
            SlackCallFailed: Slack did not take it.
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

    def forget(self, reaction: ReactionKey) -> bool:
        """Do not put a reaction any more, nor wait for its turn; whether it is certain that it was never sent."""
        pending = self._pending.get(reaction)
        if pending is None:
            return False
        pending.scope.forget()
        return not pending.is_sent

    async def take(self, reaction: ReactionKey) -> None:
        """Take a reaction away; one that is on its way is waited for, so that it does not come afterwards.

        Raises:
            SlackCallFailed: Slack did not do it.
        """
        pending = self._pending.get(reaction)
        if self.forget(reaction):
            return
        if pending is not None:
            await pending.is_done.wait()
        await self._client.unreact(*reaction)
