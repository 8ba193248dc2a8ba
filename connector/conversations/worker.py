"""One conversation for as long as this process owns it."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import structlog

from connector import texts
from connector.conversations.edits import EditHandler
from connector.conversations.state import ConversationState
from connector.conversations.stops import StopHandler
from connector.conversations.takeover import Takeover
from connector.events import SlackMessage, StopRequest
from connector.protocols import LeaseLost, StateChanges
from connector.records import entries
from connector.records.entries import ThreadCatchUp, UnreadableEntry
from connector.records.inbox import PendingMessage
from connector.records.pending_cleanup import Notice
from connector.records.run_record import RunRecord

if TYPE_CHECKING:
    from connector.protocols import ConversationLease, End, InboxEntry
    from connector.runs.background_tasks import WorkspaceContext
    from connector.runs.run_slots import RunSlot
    from connector.runs.slack_run import SlackRun

log = structlog.get_logger(__name__)

# How long the store does not report a conversation as due whose thread could not be read yet.
_REST_S = 30.0
# How long an urgent message waits for older ones from a thread that is being read.
_URGENT_WAIT_S = 1.0


class ConversationWorker:
    """Acts on what people do here, as it comes in; one run follows another.

    Only the owner of a conversation decides what an edit, a deletion or a stop has met: so nobody has to agree with
    anybody.
    """

    def __init__(self, lease: ConversationLease, workplace: WorkspaceContext) -> None:
        self._lease = lease
        self._id = lease.conversation_id
        self._desk = workplace.desk
        self._slots = workplace.slots
        self._owned = ConversationState(lease, workplace)
        self._inbox = self._owned.inbox
        self._aftermath = self._owned.aftermath
        self._succession = Takeover(self._owned)
        self._stops = StopHandler(self._owned)
        self._revisions = EditHandler(self._owned, self._stops.stop)
        # Messages whose authors know that they wait.
        self._told: set[str] = set()
        # Requests to read the thread that are not begun: the conversation is parked first, or many threads are read.
        self._catch_ups: list[tuple[InboxEntry, ThreadCatchUp]] = []
        # Requests that are done; the messages that were found are still to be fetched.
        self._caught_up: list[InboxEntry] = []
        self._seen = 0
        self._news = asyncio.Event()
        # Something has come in, or the end has.
        self._stirred = asyncio.Event()
        self._one_at_a_time = asyncio.Lock()
        self._is_closing = False
        # Whether it was given up: what is new from here on is for the next owner.
        self.is_over = False
        # Whether it was given up only because there is no slot for its run yet.
        self.is_parked = False

    @property
    def execution(self) -> SlackRun | None:
        """The run that is on."""
        return self._owned.execution

    @property
    def has_news(self) -> bool:
        """Whether it was nudged, and has not looked since."""
        return self._news.is_set()

    def nudge(self) -> None:
        """Look for news."""
        self._news.set()

    def suspend(self) -> None:
        """Have the run that is on end at its next boundary, and hand the conversation over."""
        self._is_closing = True
        self._stirred.set()
        if self._owned.execution is not None:
            self._owned.execution.suspend()

    def cut(self) -> None:
        """Have a run that was suspended end at once."""
        if self._owned.execution is not None:
            self._owned.execution.cut()

    async def work(self) -> None:
        """Act until there is nothing left to do, and give the conversation up.

        Raises:
            ExceptionGroup: of LeaseLost, where another process owns the conversation by now.
        """
        async with asyncio.TaskGroup() as tasks:
            beside = [tasks.create_task(self._end_if_lost()), tasks.create_task(self._read_on())]
            await self._act()
            for task in beside:
                task.cancel()

    async def _act(self) -> None:
        async with self._one_at_a_time:
            await self._take_in(await self._succession.take_up())
        while not self.is_over:
            self._stirred.clear()
            while not self._is_closing and (execution := self._next()) is not None:
                await self._run(execution)
            if not self._is_closing:
                await self._aftermath.done(self._stirred, with_catch_ups=not self._is_to_park)
            async with self._one_at_a_time:
                await self._give_up()

    async def _end_if_lost(self) -> None:
        await self._lease.lost()
        raise LeaseLost

    async def _read_on(self) -> None:
        while True:
            await self._news.wait()
            async with self._one_at_a_time:
                if self.is_over:
                    return
                self._news.clear()
                caught_up, self._caught_up = self._caught_up, []
                await self._take_in(await self._lease.fetch(self._seen))
                for entry in caught_up:
                    self._expect_no_more(entry.id)
                self._stirred.set()

    async def _give_up(self) -> None:
        """Give the conversation up, unless there is news."""
        if self._is_closing:
            await self._lease.hand_over()
            self.is_over = True
            return
        ticket = self._ticket()
        self._begin_catch_ups()
        # It came while we waited for our turn.
        if (
            self._caught_up
            or (ticket is not None and ticket.is_shown)
            or not self._aftermath.is_done(with_catch_ups=ticket is None)
        ):
            return
        await self._aftermath.cancel_catch_ups()
        await self._aftermath.keep()
        if ticket is not None:
            await self._park()
            self.is_over = True
            return
        if self._catch_ups:
            await self._lease.hand_over(_REST_S)
            self.is_over = True
            return
        # What corrects a message, or takes it back, starts no run: it goes with the next message.
        held = max((each.seq for each in self._inbox.waiting), default=0)
        if held > self._inbox.held:
            self._inbox.held = held
            await self._lease.write(StateChanges(held=held))
        self.is_over = await self._lease.release(self._seen)
        if not self.is_over:
            await self._take_in(await self._lease.fetch(self._seen))

    async def _take_in(self, came: tuple[InboxEntry, ...]) -> None:
        """Act on entries. A run begins when all of them are in: what came together is decided together."""
        for entry in came:
            self._seen = max(self._seen, entry.seq)
            kind = "message" if entry.data.get("is_late") else entry.kind
            try:
                found = entries.read(entry)
            except UnreadableEntry:
                log.exception("entry.unreadable", conversation=self._id, entry=entry.id)
                await self._succession.refuse(entry)
                continue
            match kind, found:
                case "message", PendingMessage():
                    self._on_message(found)
                case "edit", PendingMessage():
                    await self._revisions.on_edit(entry, found)
                case "withdrawal", PendingMessage():
                    await self._revisions.on_deletion(entry, found)
                case _, StopRequest():
                    await self._stops.on_stop(entry, found)
                case _, ThreadCatchUp():
                    self._inbox.expect(entry.id, found.since)
                    self._catch_ups.append((entry, found))
                case _, SlackMessage():
                    self._aftermath.tell(entry, found, texts.NO_TEXT)
        self._begin_catch_ups()

    def _begin_catch_ups(self) -> None:
        """Read the thread, unless the conversation is to be parked: its next owner does it then.

        What is here does not wait for threads that are not being read yet because there are too many.
        """
        while self._catch_ups and self._desk.may_catch_up and not self._is_to_park:
            entry, catch_up = self._catch_ups.pop(0)
            self._inbox.expect(entry.id, catch_up.since)
            self._aftermath.catch_up(entry, partial(self._catch_up, entry, catch_up))
        for entry, _ in self._catch_ups:
            self._expect_no_more(entry.id)

    async def _catch_up(self, entry: InboxEntry, catch_up: ThreadCatchUp) -> None:
        """Read the thread; newer messages are read after those that were found there."""
        patience = asyncio.get_running_loop().call_later(self._desk.older_first_s, self._expect_no_more, entry.id)
        try:
            await self._owned.workplace.catch_up(catch_up)
        finally:
            patience.cancel()
            self._caught_up.append(entry)
            self.nudge()

    def _expect_no_more(self, entry_id: str) -> None:
        """What is here does not wait any longer for older messages from the thread."""
        self._inbox.expect_no_more(entry_id)
        self._stirred.set()
        if self._owned.execution is not None:
            self._owned.execution.hand_in()

    def _on_message(self, inbound: PendingMessage) -> None:
        execution = self._owned.execution
        if execution is not None and inbound.id == execution.first.id:
            return  # of a run that goes on
        self._inbox.add(inbound)
        if execution is not None:
            self._add(execution, inbound)
        elif not self._inbox.may_be_read(inbound):
            self._told.add(inbound.id)
            self._desk.mark_accepted(inbound.message)
        if inbound.is_urgent:
            for entry_id in self._inbox.expected:
                asyncio.get_running_loop().call_later(_URGENT_WAIT_S, self._expect_no_more, entry_id)

    def _add(self, execution: SlackRun, inbound: PendingMessage) -> None:
        self._told.add(inbound.id)
        execution.add(inbound)

    def _next(self) -> SlackRun | None:
        """The run to go on with, or to begin: the oldest message is its prompt, and it is given the others."""
        if self._owned.execution is not None:
            return self._owned.execution
        ticket = self._ticket()
        if ticket is None or not ticket.is_shown:
            return None
        first, *others = self._inbox.waiting
        was_waiting = first.id in self._told or self._inbox.is_held(first)
        newest_ts = max((each.message.ts for each in (first, *others)), key=float)
        record = RunRecord.begun_with(
            first,
            was_waiting=was_waiting,
            newest_ts=newest_ts,
            is_marked=self._desk.takes_mark(first.message),
            leftovers=self._aftermath.leftovers,
        )
        execution = self._owned.start(record)
        execution.ticket = ticket
        for inbound in others:
            self._add(execution, inbound)
        return execution

    def _ticket(self) -> RunSlot | None:
        """The place in the queue for slots; `None`: nothing here starts a run, or not yet: then it keeps its place."""
        beginning = self._inbox.beginning
        if beginning is None:
            self._slots.leave(self._id)
            return None
        if not self._inbox.may_be_read(beginning):
            return None
        return self._slots.enter(self._id, beginning.message)

    @property
    def _is_to_park(self) -> bool:
        """Whether a run is to begin here and has to wait in the store for its slot."""
        if self._owned.execution is not None:
            return False
        ticket = self._ticket()
        return ticket is not None and not ticket.is_shown

    async def _park(self) -> None:
        """Wait for a slot without a lease; 📨 shows for each message that it waits."""
        waiting = [each for each in self._inbox.waiting if not each.is_told and not each.is_about_another]
        told = [replace(each, is_told=True) for each in waiting]
        if told:
            await self._lease.write(StateChanges(replaced={each.seq: each.written() for each in told}))
        for each in told:
            self._inbox.replace(each)
            self._desk.mark_accepted(each.message)
        self.is_parked = True
        await self._lease.hand_over(self._slots.rest_s)

    async def _run(self, execution: SlackRun) -> None:
        where = {"conversation": self._id, "run_id": execution.record.id}
        log.info("run.started", **where, instance=execution.instance.name)
        try:
            await execution.go()
            if execution.was_suspended:
                log.info("run.suspended", **where)
                self._is_closing = True
                return
            async with self._one_at_a_time:
                await self._settle(execution)
        except BaseException:
            self._desk.leaves_mark(execution.first.message)
            raise
        # One that another process had ended tells nothing of that here.
        ending = execution.ending
        told = {"status": ending.status, "reason": ending.reason, **ending.usage} if ending is not None else {}
        log.info("run.ended", **where, **told)
        await self._aftermath.tidied()
        self._slots.leave(self._id)

    async def _settle(self, execution: SlackRun) -> None:
        """Close what the log has, and give back what it has not."""
        inbox, first = self._inbox, execution.first
        given = inbox.given
        read = await self._owned.delivered(first.instance, {each.id for each in given})
        closed: dict[int, End] = {each.seq: "" for each in given if each.id in read}
        if first.id not in read and not execution.comes_back:
            closed[first.seq] = "withdrawn" if execution.record.stopped_by else "refused"
        inbox.remove([each for each in given if each.seq in closed])
        inbox.take_back()
        late = self._succession.refused_late()
        closed.update(dict.fromkeys(late, "refused"))
        notices = (*self._held_back(execution), *late.values())
        self._owned.execution = None
        await self._aftermath.end_run(closed, traces=execution.view.traces, notices=notices)
        for message_id in read - execution.read - {first.id}:  # the loop was cut before it could tell
            self._desk.mark_read(message_id)

    def _held_back(self, execution: SlackRun) -> tuple[Notice, ...]:
        """What is to be said of messages that a stop has held back when the run had said its last word."""
        unnamed = [] if self._inbox.starts_a_run else self._inbox.unnamed
        if not unnamed:
            return ()
        self._inbox.name_all()
        return (Notice(unnamed[-1].message, f"{execution.record.id}:held", texts.held_back(len(unnamed))),)
