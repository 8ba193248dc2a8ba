"""What all conversations of a workspace share: the wire, the names, and the marks on people's messages."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Self

from connector.best_effort import best_effort
from connector.names import Names
from connector.outbound.content import Content
from connector.outbound.links import escape
from connector.outbound.marks import Mark, Marks
from connector.outbound.native import NativeSessions
from connector.protocols import LeaseLost
from connector.status import take_away

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine
    from types import TracebackType

    from connector.inbound.routing import Router
    from connector.messages import Message
    from connector.outbound.wire import Wire
    from connector.protocols import SessionManager
    from connector.traces import Traces

ENVELOPE = "incoming_envelope"
EYES = "eyes"
HOURGLASS = "hourglass_flowing_sand"
_CLOSE_WITHIN_S = 1.0
# Slack lets twenty marks a minute be taken away: more hourglasses than half of that would stand long after their runs.
_MOST_HOURGLASSES = 10


class Desk:
    """Owns the tasks that speak to Slack beside the runs; none of them can harm another, or hold the end up."""

    def __init__(self, wire: Wire) -> None:
        self.wire = wire
        self.names = Names(wire)
        self._marks = Marks(wire)
        self._hourglasses: list[Mark] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self.native = NativeSessions(wire, self.spawn)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=_CLOSE_WITHIN_S)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.names.close()

    def spawn(self, coroutine: Coroutine[Any, Any, object]) -> asyncio.Task[None]:
        task = asyncio.create_task(_beside(coroutine))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def mark_accepted(self, message: Message) -> None:
        """📨: the message is with us, and will be read."""
        self.spawn(self._marks.put(Mark(message.channel, message.ts, ENVELOPE), message.place.conversation_id))

    def take_back(self, message: Message) -> None:
        """The message is not accepted after all."""
        self.spawn(self._marks.take(Mark(message.channel, message.ts, ENVELOPE)))

    def mark_read(self, message_id: str) -> None:
        """👀: the model has the message before it. What a module handed to the loop has an id of another form."""
        match message_id.split(":"):
            case [_team, channel, ts]:
                self._marks.forget(Mark(channel, ts, ENVELOPE))  # to say that it will be read is too late
                self.spawn(self._marks.put(Mark(channel, ts, EYES), message_id))

    async def mark_working(self, message: Message, confirm: Callable[[], Awaitable[None]]) -> bool:
        """⏳: a run has begun with the message. Where there are many, the status message alone says so.

        Returns whether the mark may be there; where this fails, it may be.

        Raises:
            SlackCallFailed: Slack did not take it.
        """
        if len(self._hourglasses) >= _MOST_HOURGLASSES:
            return False
        mark = Mark(message.channel, message.ts, HOURGLASS)
        self._hourglasses.append(mark)
        is_there = True
        try:
            is_there = await self._marks.put(mark, message.place.conversation_id, confirm)
        except LeaseLost:
            is_there = False  # whoever owns the conversation takes it away
            raise
        finally:
            if not is_there:
                self._hourglasses.remove(mark)
        return is_there

    def forgo_working(self, message: Message) -> None:
        """A run is over: the ⏳ that still waits for its turn is not put any more."""
        self._marks.forget(Mark(message.channel, message.ts, HOURGLASS))

    async def take_away(self, traces: Traces) -> None:
        """Take away what a run has left. Nobody else would do it later: where Slack is away, it is waited for."""
        for ts in traces.statuses:
            await best_effort(self.wire.insisting(partial(take_away, self.wire, traces.channel, ts)))
        if traces.is_marked:
            mark = Mark(traces.channel, traces.first_ts, HOURGLASS)
            await best_effort(self.wire.insisting(lambda: self._marks.take(mark)))
            if mark in self._hourglasses:  # else another process has put it there
                self._hourglasses.remove(mark)

    def tell(self, message: Message, text: str) -> None:
        """Answer a message that starts no run and goes into none, in plain words."""
        self.spawn(self.wire.post(message.place, Content(escape(text)), f"{message.id}:reply"))

    async def told(self, message: Message, text: str, confirm: Callable[[], Awaitable[None]]) -> None:
        """Answer such a message, unless a process that is dead has done so, and wait for Slack to have the answer.

        What `confirm` raises keeps it from being answered: another process does that.
        """
        key = f"{message.id}:reply"
        await best_effort(self.wire.post(message.place, Content(escape(text)), key, in_doubt=True, confirm=confirm))


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
