"""One run as Slack sees it: the messages it reads, and the traces it leaves."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import structlog

from connector import phrases
from connector.ending import Ending
from connector.inbox import Inbox
from connector.names import mentioned_in
from connector.protocols import Refused, RunFailed, Steer
from connector.view import View

if TYPE_CHECKING:
    from connector.desk import Desk
    from connector.inbox import Inbound
    from connector.messages import Place
    from connector.protocols import SessionManager

log = structlog.get_logger(__name__)


class Execution:
    """A run from its first message to its last trace.

    Messages wait here until the loop listens, and go in, in order of arrival, as soon as they are ready. What the loop
    does not read any more stays here and leads the next run.
    """

    def __init__(self, first: Inbound, sessions: SessionManager, desk: Desk, *, was_waiting: bool) -> None:
        self.place: Place = first.message.place
        self.first = first
        self.view = View(desk.wire, first.message, first.instance.persona)
        self._sessions = sessions
        self._desk = desk
        self._was_waiting = was_waiting
        self._inbox = Inbox(desk.names)
        self._listening = False
        self._was_read = False
        self._over = False
        self._stopper: str | None = None
        self._aborted = False
        self._executing: asyncio.Task[None] | None = None
        self._ending: Ending | None = None

    def add(self, inbound: Inbound) -> None:
        """Take a message for this run, or for the one after it. It is marked as accepted unless the loop refuses it."""
        self._inbox.add(inbound)
        self._desk.spawn(self._settle(inbound))

    async def _settle(self, inbound: Inbound) -> None:
        await self._inbox.get_ready(inbound)
        self._hand_in()
        if inbound in self._inbox:
            self._desk.mark_accepted(inbound.message)

    def stop(self, user: str) -> bool:
        """Stop gracefully; asked again, immediately. False: there is nothing left to stop.

        What has been written until now does not start a run by itself.
        """
        again = self._stopper is not None
        self._inbox.hold_back()
        if self._over:
            # The session may be in the next run by now: it is not asked.
            return again or len(self._inbox) > 0
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
    def ending(self) -> Ending:
        """How it ended, as its loop told."""
        return self._ending or Ending()

    @property
    def unread(self) -> list[Inbound]:
        """The messages that this run's loop was not given."""
        return self._inbox.messages

    @property
    def unnamed(self) -> list[Inbound]:
        """Those of the unread messages that no notice has spoken of."""
        return self._inbox.unnamed

    @property
    def waiting(self) -> int | None:
        """How many messages the loop was given and has not read; `None` where it has not told."""
        return self._ending.waiting if self._ending else None

    @property
    def goes_on(self) -> bool:
        """Whether what is unread starts a run by itself: after a stop, only what was written since."""
        return self._inbox.starts_a_run and not self._aborted

    def hand_over(self) -> list[Inbound]:
        """Give what is unread away, for the next run."""
        return self._inbox.hand_over()

    async def go(self) -> None:
        """Run to the end, telling the thread how it ended."""
        async with self.view.shown(self._last_word):
            try:
                await self._tell(await self._execute())
            except RunFailed as e:
                self._tell_failure(str(e))
            except asyncio.CancelledError:
                if self._is_cancelled():
                    self._tell_shut_down()
                    raise
                log.exception("run.cancelled_inside", conversation=self.place.conversation_id)
                self._tell_failure(phrases.UNEXPECTED)
            except Exception:  # a Slack handler's border: whatever happens, the thread hears of it
                log.exception("run.crashed", conversation=self.place.conversation_id)
                self._tell_failure(phrases.UNEXPECTED)

    def _is_cancelled(self) -> bool:
        """Whether it is we who are cancelled, rather than something inside the run."""
        task = asyncio.current_task()
        return self._aborted or (task is not None and task.cancelling() > 0)

    async def _execute(self) -> str:
        await self._desk.names.learn(mentioned_in(self.first.prompt))
        if self._aborted:
            raise asyncio.CancelledError
        try:
            if self._stopper is not None:
                self._ending = Ending("cancelled")
                return ""
            self._executing = asyncio.current_task()
            prompt = self._desk.names.readable(self.first.prompt)
            return await self._sessions.execute(
                self.first.instance.name, self.place.conversation_id, prompt, self._on_progress
            )
        finally:
            self._executing, self._over = None, True

    async def _tell(self, answer: str) -> None:
        ending = self._ending or Ending("success")
        cut = ending.status == "cancelled"
        said = self.view.say(f"{answer.strip()} …" if cut and answer.strip() else answer)
        if cut and self._was_waiting and not self._was_read:
            # Its author has been told that it will be taken along; a fresh one is what was stopped.
            self._inbox.take_back(self.first)
        if cut:
            notice = phrases.stopped(await self._name_of_stopper(), ending, self._name_waiting(ending))
        elif ending.status == "incomplete" or ending.waiting:
            notice = phrases.incomplete(ending, self._name_waiting(ending))
        else:
            notice = ""
        if notice or not said:
            self.view.notice(notice or phrases.NO_ANSWER)

    def _tell_failure(self, sentence: str) -> None:
        ending = self._ending or Ending()
        self.view.notice(phrases.failed(sentence, ending, self._name_waiting(ending)))

    def _tell_shut_down(self) -> None:
        ending = self._ending or Ending()
        self.view.notice(phrases.shut_down(ending, ending.waiting + self._inbox.name_all()))

    async def _name_of_stopper(self) -> str:
        if self._stopper is None:
            return "someone"
        await self._desk.names.learn((self._stopper,))
        return self._desk.names.of(self._stopper) or "someone"

    def _name_waiting(self, ending: Ending) -> int:
        """How many messages wait for the next run to take them along; they count as named."""
        return ending.waiting + self._inbox.name_held_back()

    def _last_word(self) -> str | None:
        """What is to be said, when all else has been, of messages that will not be read by themselves."""
        count = len(self.unnamed)
        if self.goes_on or not count:
            return None
        self._inbox.name_all()
        return phrases.CLOSING if self._aborted else phrases.held_back(count)

    def _hand_in(self) -> None:
        """Give the loop what is ready, oldest first, for as long as it listens."""
        for inbound in self._inbox.ready_for(self.first.instance):
            if not self._listening or self._over or self._stopper is not None or not self._offer(inbound):
                return

    def _offer(self, inbound: Inbound) -> bool:
        """Whether the loop still reads."""
        names, message = self._desk.names, inbound.message
        steer = Steer(message.id, names.readable(inbound.prompt), names.of(message.user) or message.user, message.files)
        try:
            taken = self._sessions.inject(self.first.instance.name, self.place.conversation_id, steer)
        except Refused as e:
            self._inbox.remove(inbound)
            self._desk.take_back(message)
            self.view.notice(phrases.refused(inbound.prompt, str(e)))
            return True
        if taken:
            self._inbox.remove(inbound)
            self._desk.mark_accepted(message)
        return taken

    async def _on_progress(self, event: str, data: dict[str, Any]) -> None:
        match event:
            case "executing":
                self._listening = True
                await self._inbox.get_all_ready()
                self._hand_in()
            case "thinking" if not self._was_read:
                self._was_read = True
                if self._was_waiting:
                    self._desk.mark_read(self.first.message.id)
            case "injection:applied":
                for message_id in data.get("ids", ()):
                    self._desk.mark_read(message_id)
            case "text":
                self.view.say(f"{data['text'].rstrip()} …" if data.get("cut") else data["text"])
            case "complete":
                self._ending = Ending.of(data)
        self.view.hear(event, data)
