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
class _Putting:
    """A mark on its way. Once it `is_sent` it may be there, whatever we hear of it."""

    need: CancelScope = field(default_factory=CancelScope)
    is_sent: bool = False
    is_done: asyncio.Event = field(default_factory=asyncio.Event)


class Reactions:
    """Puts marks on messages and takes them away; what was not sent yet when it is taken away never is."""

    def __init__(self, wire: SlackClient) -> None:
        self._wire = wire
        self._putting: dict[ReactionKey, _Putting] = {}

    async def put(self, mark: ReactionKey, run: str, confirm: Callable[[], Awaitable[None]] | None = None) -> bool:
        """Put a mark; whether it may be there. What `confirm` raises keeps it from being put.

        Raises:
            SlackCallFailed: Slack did not take it.
        """
        putting = self._putting[mark] = _Putting()

        async def send() -> None:
            if confirm is not None:
                await confirm()
            putting.need.check()
            putting.is_sent = True

        try:
            await self._wire.react(*mark, CallSlot(run=run, need=putting.need), send)
        except CallCancelled:
            return putting.is_sent
        finally:
            putting.is_done.set()
            if self._putting.get(mark) is putting:
                del self._putting[mark]
        return True

    def forget(self, mark: ReactionKey) -> bool:
        """Do not put a mark any more, nor wait for its turn; whether it is certain that it was never sent."""
        putting = self._putting.get(mark)
        if putting is None:
            return False
        putting.need.forget()
        return not putting.is_sent

    async def take(self, mark: ReactionKey) -> None:
        """Take a mark away; one that is on its way is waited for, so that it does not come afterwards.

        Raises:
            SlackCallFailed: Slack did not do it.
        """
        putting = self._putting.get(mark)
        if self.forget(mark):
            return
        if putting is not None:
            await putting.is_done.wait()
        await self._wire.unreact(*mark)
