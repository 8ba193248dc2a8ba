"""One run as Slack sees it: the messages it reads, and the traces it leaves."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import structlog

from connector import phrases
from connector.protocols import Refused, RunFailed, Steer
from connector.view import View

if TYPE_CHECKING:
    from collections.abc import Callable

    from connector.messages import Message, Place
    from connector.protocols import Instance, SessionManager
    from connector.wire import Wire

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Inbound:
    """A message that the gate let in: for whom it is, and what a model reads of it."""

    message: Message
    instance: Instance
    prompt: str
    author: str | None

    def steer(self) -> Steer:
        return Steer(self.message.id, self.prompt, self.author, self.message.files)


class Execution:
    """A run from its first message to its last trace.

    A message that arrives while the run is being set up waits here and goes in as soon as the loop listens; one that
    the loop no longer reads is left over and leads the next run.
    """

    def __init__(
        self, first: Inbound, sessions: SessionManager, wire: Wire, on_delivered: Callable[[str], None]
    ) -> None:
        self.place: Place = first.message.place
        self.first = first
        self.view = View(wire, first.message, first.instance.persona)
        self._sessions = sessions
        self._on_delivered = on_delivered
        self._early: list[Inbound] | None = []
        self._left_over: list[Inbound] = []
        self._stopped_by: str | None = None
        self._status = "error"
        self._waiting = 0
        self._executing: asyncio.Task[None] | None = None

    def add(self, inbound: Inbound) -> None:
        """Take a message for this run.

        Raises:
            Refused: too many are waiting, or it cannot be read at all.
        """
        if self._early is not None:
            self._early.append(inbound)
        elif self._left_over or inbound.instance != self.first.instance or not self._inject(inbound):
            self._left_over.append(inbound)

    def stop(self, by: str) -> bool:
        """Stop gracefully; asked again, immediately. False: there is nothing left to stop."""
        again = self._stopped_by is not None
        heard = self._sessions.stop(self.first.instance.name, self.place.conversation_id, immediate=again)
        if heard and not again:
            self._stopped_by = by
        return heard or again

    @property
    def unread(self) -> list[Inbound]:
        """The messages that this run did not read."""
        return [*(self._early or ()), *self._left_over]

    @property
    def goes_on(self) -> bool:
        """Whether what is unread starts a run by itself: after a stop, only what was written since."""
        return bool(self._left_over) or (bool(self._early) and self._stopped_by is None)

    async def go(self) -> None:
        """Run to the end, telling the thread how it ended."""
        async with self.view.shown():
            try:
                self._tell(await self._execute())
            except RunFailed as e:
                self.view.notice(phrases.failed(str(e), self._waiting))
            except asyncio.CancelledError:
                self.view.notice(phrases.stopped("the service, which is shutting down", self._waiting))
                raise
            except Exception:  # a Slack handler's border: whatever happens, the thread hears of it
                log.exception("run.crashed", conversation=self.place.conversation_id)
                self.view.notice(phrases.failed(phrases.UNEXPECTED, self._waiting))

    def abort(self) -> None:
        """Cancel the run; what it has to tell the thread is told all the same."""
        if self._executing is not None:
            self._executing.cancel()

    async def _execute(self) -> str:
        self._executing = asyncio.current_task()
        try:
            return await self._sessions.execute(
                self.first.instance.name, self.place.conversation_id, self.first.prompt, self._on_progress
            )
        finally:
            self._executing = None

    def _tell(self, answer: str) -> None:
        cut = self._status == "cancelled"
        if answer.strip():
            self.view.say(f"{answer} …" if cut else answer)
        if cut:
            self.view.notice(phrases.stopped(self._stopped_by or "the service", self._waiting))
        elif not answer.strip():
            self.view.notice(phrases.NO_ANSWER)

    def _inject(self, inbound: Inbound) -> bool:
        return self._sessions.inject(self.first.instance.name, self.place.conversation_id, inbound.steer())

    async def _on_progress(self, event: str, data: dict[str, Any]) -> None:
        match event:
            case "executing":
                self._flush_early()
            case "injection:applied":
                for message_id in data.get("ids", ()):
                    self._on_delivered(message_id)
            case "text":
                self.view.say(data["text"])
            case "complete":
                self._status, self._waiting = data.get("status", "success"), data.get("waiting", 0)
        self.view.hear(event, data)

    def _flush_early(self) -> None:
        early, self._early = self._early or [], None
        for inbound in early:
            try:
                self.add(inbound)
            except Refused as e:
                self.view.notice(str(e))
