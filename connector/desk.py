"""What all conversations of a workspace share: the wire, the names, and the marks on people's messages."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from connector.names import Names
from connector.protocols import LeaseLost
from connector.view import best_effort

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from types import TracebackType

    from connector.inbound.routing import Router
    from connector.messages import Message
    from connector.outbound.wire import Wire
    from connector.protocols import SessionManager

ENVELOPE = "incoming_envelope"
EYES = "eyes"
_CLOSE_WITHIN_S = 1.0


class Desk:
    """Owns the tasks that speak to Slack beside the runs; none of them can harm another, or hold the end up."""

    def __init__(self, wire: Wire) -> None:
        self.wire = wire
        self.names = Names(wire)
        self._tasks: set[asyncio.Task[None]] = set()
        self._accepting: dict[str, asyncio.Task[None]] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=_CLOSE_WITHIN_S)
        self.names.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def spawn(self, coroutine: Coroutine[Any, Any, object]) -> asyncio.Task[None]:
        task = asyncio.create_task(_beside(coroutine))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def mark_accepted(self, message: Message) -> None:
        """📨: the message is with us, and will be read."""
        marking = self.spawn(self.wire.react(message.channel, message.ts, ENVELOPE))
        self._accepting[message.id] = marking
        marking.add_done_callback(lambda _: self._accepting.pop(message.id, None))

    def take_back(self, message: Message) -> None:
        """The message is not accepted after all."""
        self.spawn(self._take_back(message, self._accepting.get(message.id)))

    async def _take_back(self, message: Message, marking: asyncio.Task[None] | None) -> None:
        # A mark that is still on its way would arrive after it had been taken away.
        if marking is not None:
            await asyncio.wait((marking,))
        await self.wire.unreact(message.channel, message.ts, ENVELOPE)

    def mark_read(self, message_id: str) -> None:
        """👀: the model has the message before it. What a module handed to the loop has an id of another form."""
        match message_id.split(":"):
            case [_team, channel, ts]:
                self.spawn(self.wire.react(channel, ts, EYES))

    def tell(self, message: Message, text: str) -> None:
        """Answer a message that starts no run and goes into none."""
        self.spawn(self.wire.post(message.place, text, f"{message.id}:reply"))

    async def told(self, message: Message, text: str) -> None:
        """Answer such a message, unless a process that is dead has done so, and wait for Slack to have the answer."""
        await best_effort(self.wire.post(message.place, text, f"{message.id}:reply", in_doubt=True))


async def _beside(call: Coroutine[Any, Any, object]) -> None:
    """What is done beside the runs: that a conversation was lost concerns only those."""
    with suppress(LeaseLost):
        await best_effort(call)


@dataclass(frozen=True, slots=True)
class Workplace:
    """Where conversations are worked at: whom to ask, what to write with, and who is who."""

    sessions: SessionManager
    desk: Desk
    router: Router
