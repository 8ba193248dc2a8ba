"""One run as Slack sees it: the messages it reads, and the traces it leaves."""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import structlog

from connector import phrases
from connector.desk import ENVELOPE, EYES
from connector.protocols import Refused, RunFailed, Steer
from connector.view import View

if TYPE_CHECKING:
    from connector.desk import Desk
    from connector.messages import Message, Place
    from connector.protocols import Instance, SessionManager

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Inbound:
    """A message that the gate let in: for whom it is, and what a model reads of it."""

    message: Message
    instance: Instance
    prompt: str


class Execution:
    """A run from its first message to its last trace.

    Messages wait here until the loop listens, in order of arrival, and go in as soon as their author's name is known
    or has been waited for long enough. What the loop does not read any more stays here and leads the next run.
    """

    def __init__(self, first: Inbound, sessions: SessionManager, desk: Desk, *, was_waiting: bool) -> None:
        self.place: Place = first.message.place
        self.first = first
        self.view = View(desk.wire, first.message, first.instance.persona)
        self._sessions = sessions
        self._desk = desk
        self._was_waiting = was_waiting
        self._arrived: deque[Inbound] = deque()
        self._handing_in = asyncio.Lock()
        self._listening = False
        self._over = False
        self._stopper: str | None = None
        self._held_back = 0
        self._named = 0
        self._aborted = False
        self._executing: asyncio.Task[None] | None = None
        self._status = "error"
        self._waiting = 0

    def add(self, inbound: Inbound) -> None:
        """Take a message for this run, or for the one after it. It is marked as accepted unless the loop refuses it."""
        self._arrived.append(inbound)
        self._desk.spawn(self._settle(inbound))

    async def _settle(self, inbound: Inbound) -> None:
        await self._hand_in()
        if inbound in self._arrived:
            self._desk.mark(inbound.message, ENVELOPE)

    def stop(self, user: str) -> bool:
        """Stop gracefully; asked again, immediately. False: there is nothing left to stop.

        What has been written until now does not start a run by itself.
        """
        again = self._stopper is not None
        self._held_back = len(self._arrived)
        if self._over:
            return again or bool(self._arrived)
        self._stopper = self._stopper or user
        # Where the session has not begun yet, it will not: see `_execute`.
        self._sessions.stop(self.first.instance.name, self.place.conversation_id, immediate=again)
        return True

    def abort(self) -> None:
        """End the run because the service ends; the thread is told."""
        self._aborted = True
        if self._executing is not None:
            self._executing.cancel()

    @property
    def unread(self) -> list[Inbound]:
        """The messages that this run did not read."""
        return list(self._arrived)

    @property
    def unnamed(self) -> list[Inbound]:
        """Those of the unread messages that no notice has spoken of."""
        return list(self._arrived)[self._named :]

    @property
    def goes_on(self) -> bool:
        """Whether what is unread starts a run by itself: after a stop, only what was written since."""
        return len(self._arrived) > self._held_back and not self._aborted

    async def go(self) -> None:
        """Run to the end, telling the thread how it ended."""
        async with self.view.shown(self._last_word):
            try:
                await self._tell(await self._execute())
            except RunFailed as e:
                self.view.notice(phrases.failed(str(e), self._name_waiting()))
            except asyncio.CancelledError:
                if self._is_cancelled():
                    self._named = len(self._arrived)
                    self.view.notice(phrases.shut_down(self._waiting + self._named))
                    raise
                log.exception("run.cancelled_inside", conversation=self.place.conversation_id)
                self.view.notice(phrases.failed(phrases.UNEXPECTED, self._name_waiting()))
            except Exception:  # a Slack handler's border: whatever happens, the thread hears of it
                log.exception("run.crashed", conversation=self.place.conversation_id)
                self.view.notice(phrases.failed(phrases.UNEXPECTED, self._name_waiting()))

    def _is_cancelled(self) -> bool:
        """Whether it is we who are cancelled, rather than something inside the run."""
        task = asyncio.current_task()
        return self._aborted or (task is not None and task.cancelling() > 0)

    def _last_word(self) -> str | None:
        """What is to be said, when all else has been, of messages that will not be read by themselves."""
        unnamed = self.unnamed
        if self.goes_on or not unnamed:
            return None
        self._named = len(self._arrived)
        return phrases.CLOSING if self._aborted else phrases.held_back(len(unnamed))

    def _name_waiting(self) -> int:
        """How many messages wait for the next run to take them along; they count as named."""
        self._named = self._held_back
        return self._waiting + self._held_back

    async def _execute(self) -> str:
        prompt = await self._desk.names.readable(self.first.prompt)
        if self._aborted:
            raise asyncio.CancelledError
        try:
            if self._stopper is not None:
                self._status = "cancelled"
                if self._was_waiting:
                    # Its author has been told that it will be taken along; a fresh one is what was stopped.
                    self._arrived.appendleft(self.first)
                    self._held_back += 1
                return ""
            self._executing = asyncio.current_task()
            return await self._sessions.execute(
                self.first.instance.name, self.place.conversation_id, prompt, self._on_progress
            )
        finally:
            self._executing, self._over = None, True

    async def _tell(self, answer: str) -> None:
        cut = self._status == "cancelled"
        said = self.view.say(f"{answer.strip()} …" if cut and answer.strip() else answer)
        if cut:
            by = await self._desk.names.of(self._stopper) if self._stopper else None
            self.view.notice(phrases.stopped(by or "someone", self._name_waiting()))
        elif self._waiting:
            self.view.notice(phrases.held_back(self._name_waiting()))
        elif not said:
            self.view.notice(phrases.NO_ANSWER)

    async def _hand_in(self) -> None:
        """Give the loop what has arrived, oldest first, for as long as it listens."""
        async with self._handing_in:
            while self._arrived and self._listening and self._stopper is None:
                inbound = self._arrived[0]
                if inbound.instance != self.first.instance:
                    return
                steer = await self._steer(inbound)
                if self._over or self._stopper is not None or not self._offer(inbound, steer):
                    return

    def _offer(self, inbound: Inbound, steer: Steer) -> bool:
        """Whether the loop still reads."""
        try:
            taken = self._sessions.inject(self.first.instance.name, self.place.conversation_id, steer)
        except Refused as e:
            self._arrived.popleft()
            self._desk.take_back(inbound.message)
            self.view.notice(str(e))
            return True
        if taken:
            self._arrived.popleft()
            self._desk.mark(inbound.message, ENVELOPE)
        return taken

    async def _steer(self, inbound: Inbound) -> Steer:
        author = await self._desk.names.of(inbound.message.user)
        text = await self._desk.names.readable(inbound.prompt)
        return Steer(inbound.message.id, text, author, inbound.message.files)

    async def _on_progress(self, event: str, data: dict[str, Any]) -> None:
        match event:
            case "executing":
                if self._was_waiting:
                    self._desk.mark(self.first.message, EYES)
                self._listening = True
                await self._hand_in()
            case "injection:applied":
                for message_id in data.get("ids", ()):
                    self._desk.mark_read(message_id)
            case "text":
                self.view.say(data["text"])
            case "complete":
                self._status, self._waiting = data.get("status", "success"), data.get("waiting", 0)
        self.view.hear(event, data)
