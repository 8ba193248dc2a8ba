"""One conversation for as long as this process owns it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import structlog

from connector import phrases
from connector.aftermath import Aftermath
from connector.ending import Ending
from connector.execution import Execution
from connector.inbox import Inbound, Inbox
from connector.messages import Message
from connector.owned import Owned
from connector.protocols import Changes, LeaseLost, RunFailed
from connector.revisions import Revisions
from connector.run_record import RunRecord

if TYPE_CHECKING:
    from collections.abc import Mapping

    from connector.desk import Workplace
    from connector.protocols import End, Entry, Lease

log = structlog.get_logger(__name__)

# What another version has written.
_UNREADABLE = (KeyError, TypeError, ValueError)


class Conversation:
    """Acts on what people do here, in the order of its acceptance; one run follows another.

    Only the owner of a conversation decides what an edit, a deletion or a stop has met: so nobody has to agree with
    anybody.
    """

    def __init__(self, lease: Lease, workplace: Workplace) -> None:
        self._lease = lease
        self._id = lease.conversation_id
        self._desk = workplace.desk
        self._inbox = Inbox(workplace.desk.names, lease.claim.held)
        self._owned = Owned(lease, workplace, self._inbox)
        self._revisions = Revisions(self._owned, self._stop)
        self._aftermath = Aftermath(lease, workplace.desk)
        # Messages whose authors know that they wait.
        self._told: set[str] = set()
        self._seen = 0
        self._news = asyncio.Event()
        # Something has come in, or the end has.
        self._stirred = asyncio.Event()
        self._one_at_a_time = asyncio.Lock()
        self._is_closing = False
        # Whether it was given up: what is new from here on is for the next owner.
        self.is_over = False

    @property
    def execution(self) -> Execution | None:
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
            await self._take_in(await self._taken_up())
        while not self.is_over:
            self._stirred.clear()
            while not self._is_closing and (execution := self._next()) is not None:
                await self._run(execution)
            if not self._is_closing:
                await self._aftermath.done(self._stirred)
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
                await self._take_in(await self._lease.fetch(self._seen))
                self._stirred.set()

    async def _give_up(self) -> None:
        """Give the conversation up, unless there is news."""
        if self._is_closing:
            await self._lease.hand_over()
            self.is_over = True
            return
        if self._inbox.starts_a_run or not self._aftermath.is_done:  # it came while we waited for our turn
            return
        await self._aftermath.keep()
        # What corrects a message, or takes it back, starts no run: it goes with the next message.
        held = max((each.seq for each in self._inbox.waiting), default=0)
        if held > self._inbox.held:
            self._inbox.held = held
            await self._lease.write(Changes(held=held))
        self.is_over = await self._lease.release(self._seen)
        if not self.is_over:
            await self._take_in(await self._lease.fetch(self._seen))

    async def _take_in(self, entries: tuple[Entry, ...]) -> None:
        """Act on entries. A run begins when all of them are in: what came together is decided together."""
        for entry in entries:
            self._seen = max(self._seen, entry.seq)
            kind = "message" if entry.data.get("is_late") else entry.kind
            try:
                inbound = None if kind == "stop" else Inbound.read(entry.data, entry.id, entry.seq)
            except _UNREADABLE:
                log.exception("entry.unreadable", conversation=self._id, entry=entry.id)
                await self._owned.close(entry, "refused" if kind == "message" else "done")
                continue
            match kind, inbound:
                case "message", Inbound():
                    self._on_message(inbound)
                case "edit", Inbound():
                    await self._revisions.on_edit(entry, inbound)
                case "withdrawal", Inbound():
                    await self._revisions.on_deletion(entry, inbound)
                case _:
                    await self._on_stop(entry)

    def _on_message(self, inbound: Inbound) -> None:
        execution = self._owned.execution
        if execution is not None and inbound.id == execution.first.id:
            return  # of a run that goes on
        self._inbox.add(inbound)
        if execution is not None:
            self._add(execution, inbound)

    def _add(self, execution: Execution, inbound: Inbound) -> None:
        self._told.add(inbound.id)
        execution.add(inbound)

    def _next(self) -> Execution | None:
        """The run to go on with, or to begin: the oldest message is its prompt, and it is given the others."""
        if self._owned.execution is not None or not self._inbox.starts_a_run:
            return self._owned.execution
        first, *others = self._inbox.waiting
        was_waiting = first.id in self._told or first.seq <= self._inbox.held
        newest_ts = max((each.message.ts for each in (first, *others)), key=float)
        traces = tuple(self._aftermath.kept().get("traces", ()))
        record = RunRecord.begun_with(first, was_waiting=was_waiting, newest_ts=newest_ts, traces=traces)
        execution = self._start(record)
        for inbound in others:
            self._add(execution, inbound)
        return execution

    async def _taken_up(self) -> tuple[Entry, ...]:
        """Take up the run whose process died, or handed it over; returns the entries that it has not read."""
        entries, run = self._lease.claim.entries, self._lease.claim.run
        if not run:
            return entries
        self._aftermath.go_on(run)
        if "id" not in run:  # none was on any more
            return entries
        try:
            record = RunRecord.read(run)
        except _UNREADABLE:
            log.exception("run.unreadable", conversation=self._id)
            await self._lease.write(Changes(run={}))
            return await self._without_read(entries)
        log.info("run.taken_up", conversation=self._id, run_id=record.id)
        self._inbox.add(record.first)
        try:
            read = await self._owned.in_log(record.first.instance, {entry.id for entry in entries})
        except RunFailed as e:
            self._start(record, e)
            return entries
        self._start(record, read)
        return await self._without(read - {record.first.id}, entries)

    async def _without_read(self, entries: tuple[Entry, ...]) -> tuple[Entry, ...]:
        """The entries that no log of an agent has."""
        for agent in self._owned.workplace.router.names():
            entries = await self._without(await self._delivered(agent, {entry.id for entry in entries}), entries)
        return entries

    async def _without(self, read: frozenset[str], entries: tuple[Entry, ...]) -> tuple[Entry, ...]:
        """Close what was read; returns the rest."""
        done = [entry for entry in entries if entry.id in read]
        if done:
            await self._lease.write(Changes(closed={entry.seq: "" for entry in done}))
        for entry in done:
            self._desk.mark_read(entry.id)
        return tuple(entry for entry in entries if entry not in done)

    def _start(self, record: RunRecord, read: frozenset[str] | RunFailed = frozenset()) -> Execution:
        self._inbox.give(record.first)
        execution = Execution(record, self._lease, self._inbox, self._owned.workplace, read)
        self._owned.execution = execution
        return execution

    async def _run(self, execution: Execution) -> None:
        where = {"conversation": self._id, "run_id": execution.record.id}
        log.info("run.started", **where, instance=execution.instance.name)
        await execution.go()
        if execution.was_suspended:
            log.info("run.suspended", **where)
            self._is_closing = True
            return
        await self._aftermath.tidy(execution.view.traces)
        async with self._one_at_a_time:
            await self._settle(execution)
        if (ending := execution.ending) is not None:
            log.info("run.ended", **where, status=ending.status, reason=ending.reason, **dict(ending.usage))

    async def _settle(self, execution: Execution) -> None:
        """Close what the log has, and give back what it has not."""
        given, first = self._inbox.given, execution.first
        read = await self._delivered(first.instance, {each.id for each in given})
        closed: dict[int, End] = {each.seq: "" for each in given if each.id in read}
        if first.id not in read and not execution.comes_back:
            closed[first.seq] = "withdrawn" if execution.record.stopped_by else "refused"
        await self._aftermath.end_run(closed)
        for message_id in read - execution.read - {first.id}:  # the loop was cut before it could tell
            self._desk.mark_read(message_id)
        self._inbox.remove([each for each in given if each.seq in closed])
        self._inbox.take_back()
        self._owned.execution = None
        if not self._inbox.starts_a_run and (unnamed := self._inbox.unnamed):
            self._inbox.name_all()  # a stop held them back when all had been said
            self._desk.tell(unnamed[-1].message, phrases.held_back(len(unnamed)))

    async def _delivered(self, agent: str, ids: set[str]) -> frozenset[str]:
        """Those of the messages that the log of this agent has; none where it cannot be read."""
        try:
            return await self._owned.in_log(agent, ids)
        except RunFailed as e:  # the thread has been told: what cannot be read has been lost
            log.error("log.unreadable", conversation=self._id, error=str(e))  # noqa: TRY400 - a sentence
            return frozenset()

    async def _on_stop(self, entry: Entry) -> None:
        """Stop the run that is on, or about to begin; what was written before the stop starts none by itself."""
        execution, data = self._owned.execution, entry.data
        # One that was accepted before the run's first message found another run, or none, and was told so.
        is_meant = (
            execution is not None
            and entry.seq > execution.first.seq
            and execution.is_meant(data["at"], data.get("ts"), data.get("run"))
        )
        if execution is not None and is_meant and execution.can_be_stopped:
            await self._stop(entry, data["user"])
        elif execution is None and (fresh := self._beginning(data)) is not None:
            await self._stop_beginning(entry, fresh)
        elif (word := data.get("message")) is not None and (execution is None or is_meant):
            said = Message(**{**word, "files": tuple(word["files"])})
            self._aftermath.tell(entry, said, phrases.NOTHING_RUNS)
        else:
            await self._owned.close(entry)

    async def _stop(self, entry: Entry, user: str) -> None:
        """Stop the run that is on."""
        execution = self._owned.execution
        if execution is not None:
            execution.stop(user)
            self._inbox.held = entry.seq
            changes = Changes(run=execution.record.written(), held=entry.seq, closed={entry.seq: "done"})
            await self._lease.write(changes)

    def _beginning(self, stop: Mapping[str, Any]) -> Inbound | None:
        """The message that would begin a run, if the stop means that."""
        fresh = self._inbox.beginning
        if fresh is None or float(stop["at"]) < float(fresh.message.ts):
            return None
        return fresh if stop.get("ts") in (None, fresh.message.ts) else None

    async def _stop_beginning(self, entry: Entry, fresh: Inbound) -> None:
        """Stop the run that would have begun with this message."""
        self._inbox.remove((fresh,))
        self._inbox.held = entry.seq
        await self._desk.names.learn((entry.data["user"],))
        by = self._desk.names.of(entry.data["user"]) or "someone"
        text = phrases.stopped(by, Ending("cancelled"), self._inbox.name_held(set()))
        await self._desk.told(fresh.message, text, self._lease.confirm)
        closed: dict[int, End] = {fresh.seq: "withdrawn", entry.seq: "done"}
        await self._lease.write(Changes(held=entry.seq, closed=closed))
