"""One run as Slack sees it: the messages it reads, and the traces it leaves."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import structlog

from connector import phrases
from connector.ending import Ending
from connector.names import mentioned_in
from connector.outbound.content import Content
from connector.outbound.scheduler import Turn
from connector.protocols import Changes, LeaseLost, Refused, RunFailed, Steer
from connector.view import View

if TYPE_CHECKING:
    from connector.desk import Workplace
    from connector.inbox import Inbound, Inbox
    from connector.messages import Place
    from connector.protocols import Lease
    from connector.run_record import RunRecord

log = structlog.get_logger(__name__)


class Execution:
    """A run from its first message to its last trace.

    Messages wait in the conversation's inbox until the loop listens, and go in, in their order, as soon as they are
    ready. What the loop does not read any more leads the next run.
    """

    def __init__(
        self,
        record: RunRecord,
        lease: Lease,
        inbox: Inbox,
        workplace: Workplace,
        read: frozenset[str] | RunFailed = frozenset(),
    ) -> None:
        """Of a run whose process died, `read` are the ids of the messages that the log has, or why nobody knows."""
        sessions, desk = workplace.sessions, workplace.desk
        instance = workplace.router.instance(record.first.instance)
        self.record = record
        self.instance = instance
        self.place: Place = record.first.message.place
        self.view = View(desk, lease, record, instance.persona, self)
        self.ending: Ending | None = None
        self._lease = lease
        self._inbox = inbox
        self._sessions = sessions
        self._desk = desk
        self._key = (instance.name, self.place.conversation_id)
        self._parts = 0
        self._lost = RunFailed(record.failed) if record.failed else read if isinstance(read, RunFailed) else None
        self.read = set() if isinstance(read, RunFailed) else set(read)
        self._has_begun = self.first.id in self.read
        self._listening = self._was_read = self._over = False
        self._is_suspending = self.was_suspended = False
        self._stops = 0 if record.stopped_by is None else 1
        self._is_closed = False
        if self._stops:
            self.view.stop()

    @property
    def first(self) -> Inbound:
        return self.record.first

    def add(self, inbound: Inbound) -> None:
        """Take note of a message that waits for this run, or for the one after it."""
        self._desk.spawn(self._settle(inbound))

    async def _settle(self, inbound: Inbound) -> None:
        await self._inbox.get_ready(inbound)
        self._hand_in()
        if self._inbox.find(inbound.id) is not None:
            self._mark_accepted(inbound)

    @property
    def is_over(self) -> bool:
        """Whether its loop has ended; what it said may still be on its way."""
        return self._over

    @property
    def can_be_stopped(self) -> bool:
        """Whether a stop changes anything: the run, or what follows it by itself."""
        return not self._over or self._stops > 0 or self._inbox.starts_a_run

    def is_meant(self, at: str, ts: str | None, run_id: str | None) -> bool:
        """Whether a stop means this run: it is not older, and names none, its status, or what it began with."""
        if float(at) < float(self.record.newest_ts):
            return False
        if run_id is not None:
            return run_id == self.record.id
        return ts is None or ts == self.first.message.ts or self.view.is_status(ts)

    def stop(self, user: str) -> None:
        """Stop gracefully; asked again, immediately."""
        if self._over:
            return
        self._stops += 1
        self.view.stop()
        self.record = replace(self.record, stopped_by=self.record.stopped_by or user)
        # Where the session has not begun yet, it hears of it when it does, or does not begin: see `_execute`.
        self._sessions.stop(*self._key, immediate=self._stops > 1)

    def suspend(self) -> None:
        """End at the next boundary, for another process to go on."""
        if not self._is_suspending:
            self._is_suspending = True
            self._sessions.suspend(*self._key)

    def cut(self) -> None:
        """End at once what did not come to a boundary in time."""
        self._sessions.stop(*self._key, immediate=True)

    def edit(self, inbound: Inbound) -> bool:
        """Put a message in the place of the one with its id. False: the model has that already."""
        if inbound.id == self.first.id:
            if self._has_begun:
                return False
            self.record = replace(self.record, first=inbound)
            return True
        try:
            return self._sessions.edit(*self._key, inbound.id, self._desk.names.readable(inbound.prompt))
        except Refused:
            return False

    def withdraw(self, inbound: Inbound) -> bool:
        """Take back what the loop was given. False: the model has it already."""
        return self._sessions.withdraw(*self._key, inbound.id)

    async def keep_status(self, ts: str) -> None:
        """Remember which message is the status."""
        self.record = replace(self.record, status_ts=ts)
        await self._lease.write(Changes(run=self.record.written()))

    def on_closed(self, error: str) -> None:
        """Slack does not let us write here (any more): nobody would read what the run says, so it ends."""
        if self._is_closed:
            return
        self._is_closed = True
        log.error("conversation.closed", conversation=self.place.conversation_id, error=error)
        self._stops += 1
        self.cut()
        message = self.first.message
        if not message.direct:
            # There is no looking it up in a channel that nobody has opened: told twice is better than not at all.
            text = Content(phrases.closed(message.channel, error)).arguments()
            arguments = {"channel": message.user, **text, "unfurl_links": False, "unfurl_media": False}
            self._desk.spawn(self._desk.wire.call("chat.postMessage", arguments, Turn(run=self.place.conversation_id)))

    async def go(self) -> None:
        """Run to the end, telling the thread how it ended; where the process is to end, as far as that.

        Raises:
            LeaseLost: another process owns the conversation.
        """
        await self._lease.write(Changes(run=self.record.written()))
        async with self.view.shown():
            try:
                await self._tell(await self._execute())
            except RunFailed as e:
                await self._tell_failure(str(e))
            except LeaseLost:
                raise
            except asyncio.CancelledError:
                task = asyncio.current_task()
                if task is not None and task.cancelling():
                    raise
                log.exception("run.cancelled_inside", conversation=self.place.conversation_id)
                await self._tell_failure(phrases.UNEXPECTED)
            except Exception:  # a Slack handler's border: whatever happens, the thread hears of it
                log.exception("run.crashed", conversation=self.place.conversation_id)
                await self._tell_failure(phrases.UNEXPECTED)
            await self.view.posted()
            self._say_last_word()

    async def _execute(self) -> str:
        fence = self._lease.claim.token
        await self._desk.names.learn(mentioned_in(self.first.prompt))
        try:
            if self._lost is not None:
                raise self._lost
            if self._is_suspending:
                return ""
            if self._has_begun:
                return await self._sessions.resume(*self._key, self._on_progress, fence=fence)
            if self._stops:
                self.ending = Ending("cancelled")
                return ""
            self._has_begun = True
            prompt = self._desk.names.readable(self.first.prompt)
            return await self._sessions.execute(
                *self._key, prompt, self._on_progress, message_id=self.first.id, fence=fence
            )
        finally:
            self._over = True

    async def _tell(self, answer: str) -> None:
        if self._is_suspending and (self.ending is None or self.ending.status == "suspended"):
            self.was_suspended = True
            self.view.suspend()
            return
        ending = self.ending = self.ending or Ending("success")
        cut = ending.status == "cancelled"
        part = ending.part or self._parts + 1
        said = self.view.say(str(part), f"{answer.strip()} …" if cut and answer.strip() else answer)
        if cut:
            notice = phrases.stopped(await self._name_of_stopper(), ending, self._name_waiting())
        elif ending.status == "incomplete" or self._stops:
            notice = phrases.incomplete(ending, self._name_waiting())
        else:
            notice = ""
        if notice or not said:
            self.view.notice("end", notice or phrases.NO_ANSWER)

    async def _tell_failure(self, sentence: str) -> None:
        # Written down first: whoever goes on with a run that has failed only tells it.
        self.record = replace(self.record, failed=sentence)
        await self._lease.write(Changes(run=self.record.written()))
        self.ending = self.ending or Ending()
        self.view.notice("end", phrases.failed(sentence, self.ending, self._name_waiting()))

    async def _name_of_stopper(self) -> str:
        stopper = self.record.stopped_by
        if stopper is None:
            return "someone"
        await self._desk.names.learn((stopper,))
        return self._desk.names.of(stopper) or "someone"

    @property
    def comes_back(self) -> bool:
        """Whether the message that it begins with waits again, if it was not read.

        Its author was told that it will be taken along, or it says what has become of another one; a fresh message is
        what was stopped.
        """
        was_held = self.record.was_waiting and not self._was_read and self.record.stopped_by is not None
        return was_held or self.first.is_about_another

    def _name_waiting(self) -> int:
        """How many messages a stop holds back, for the next run to take along; they count as named."""
        return self._inbox.name_held(self.read if self.comes_back else self.read | {self.first.id})

    def _say_last_word(self) -> None:
        """Of messages that will not be read by themselves, when all else has been said."""
        if not self.was_suspended and not self._inbox.starts_a_run and (unnamed := self._inbox.unnamed):
            self._inbox.name_all()
            self.view.notice("last", phrases.held_back(len(unnamed)))

    async def _listen(self) -> None:
        """The loop reads what it is given from here on, and hears of what it could not be told before."""
        self._listening = True
        if self._stops:
            self._sessions.stop(*self._key, immediate=self._stops > 1)
        if self._is_suspending:
            self._sessions.suspend(*self._key)
        await self._inbox.get_all_ready()
        self._hand_in()

    def _hand_in(self) -> None:
        """Give the loop what is ready, oldest first, for as long as it listens."""
        for inbound in self._inbox.ready_for(self.instance):
            is_deaf = not self._listening or self._over or self._stops or self._is_suspending
            if is_deaf or not self._offer(inbound):
                return

    def _offer(self, inbound: Inbound) -> bool:
        """Whether the loop still reads."""
        names, message = self._desk.names, inbound.message
        steer = Steer(inbound.id, names.readable(inbound.prompt), names.of(message.user) or message.user, message.files)
        try:
            taken = self._sessions.inject(*self._key, steer)
        except Refused as e:
            self._inbox.remove((inbound,))
            self._desk.spawn(self._refuse(inbound, str(e)))
            return True
        if taken:
            self._inbox.give(inbound)
            self._mark_accepted(inbound)
        return taken

    def _mark_accepted(self, inbound: Inbound) -> None:
        if not inbound.is_about_another:  # what was read has been marked so
            self._desk.mark_accepted(inbound.message)

    async def _refuse(self, inbound: Inbound, why: str) -> None:
        self._desk.take_back(inbound.message)
        self.view.notice(f"refused:{inbound.id}", phrases.refused(inbound.prompt, why))
        await self._lease.write(Changes(closed={inbound.seq: "refused"}))

    async def _on_progress(self, event: str, data: dict[str, Any]) -> None:
        match event:
            case "executing":
                await self._listen()
            case "thinking" if not self._was_read:
                self._was_read = True
                if self.record.was_waiting:
                    self._desk.mark_read(self.first.id)
            case "injection:applied":
                for message_id in data.get("ids", ()):
                    self.read.add(message_id)
                    self._desk.mark_read(message_id)
            case "resumed":
                if notice := phrases.resumed(data.get("unknown", ())):
                    self.view.notice(f"resumed:{self._lease.claim.token}", notice)
            case "text":
                self._parts = data.get("part", self._parts + 1)
                self.view.say(str(self._parts), f"{data['text'].rstrip()} …" if data.get("cut") else data["text"])
            case "complete":
                self.ending = Ending.of(data)
        self.view.hear(event, data)
