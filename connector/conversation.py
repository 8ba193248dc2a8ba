"""One conversation for as long as this process owns it."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

import structlog

from connector import phrases
from connector.execution import Execution
from connector.inbox import Inbound, Inbox
from connector.messages import Message
from connector.protocols import Changes, LeaseLost, RunFailed
from connector.run_record import RunRecord
from connector.wire import SlackCallFailed

if TYPE_CHECKING:
    from connector.desk import Workplace
    from connector.protocols import End, Entry, Lease

log = structlog.get_logger(__name__)

# How long the inbox may wait for Slack.
_LOOK_WITHIN_S = 1.0


class Conversation:
    """Acts on what people do here, in the order of its acceptance; one run follows another.

    Only the owner of a conversation decides what an edit, a deletion or a stop has met: so nobody has to agree with
    anybody.
    """

    def __init__(self, lease: Lease, workplace: Workplace) -> None:
        desk = workplace.desk
        self._lease = lease
        self._id = lease.conversation_id
        self._workplace = workplace
        self._sessions = workplace.sessions
        self._desk = desk
        self._inbox = Inbox(desk.names, lease.claim.held)
        self._execution: Execution | None = None
        self._seen = 0
        self._edited: dict[str, str] = {}
        self._news = asyncio.Event()
        self._one_at_a_time = asyncio.Lock()
        self._is_closing = False
        # Whether it was given up: what is new from here on is for the next owner.
        self.is_over = False

    @property
    def execution(self) -> Execution | None:
        """The run that is on."""
        return self._execution

    def nudge(self) -> None:
        """Look for news."""
        self._news.set()

    def suspend(self) -> None:
        """Have the run that is on end at its next boundary, and hand the conversation over."""
        self._is_closing = True
        if self._execution is not None:
            self._execution.suspend()

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
            entries = self._lease.claim.entries
            if self._lease.claim.run:
                entries = await self._take_up(RunRecord.read(self._lease.claim.run), entries)
            await self._take_in(entries)
        while True:
            while self._execution is not None and not self._is_closing:
                await self._run(self._execution)
            if self._is_closing:
                await self._lease.hand_over()
            if self._is_closing or await self._lease.release(self._seen):
                self.is_over = True
                return
            await self._read()

    async def _end_if_lost(self) -> None:
        await self._lease.lost()
        raise LeaseLost

    async def _read_on(self) -> None:
        while True:
            await self._news.wait()
            self._news.clear()
            await self._read()

    async def _read(self) -> None:
        async with self._one_at_a_time:
            await self._take_in(await self._lease.fetch(self._seen))

    async def _take_in(self, entries: tuple[Entry, ...]) -> None:
        for entry in entries:
            self._seen = max(self._seen, entry.seq)
            try:
                await self._act_on(entry)
            except (KeyError, TypeError, ValueError):  # what another version has written
                log.exception("entry.unreadable", conversation=self._id, entry=entry.id)
                await self._close(entry, "refused" if entry.kind == "message" else "done")

    async def _act_on(self, entry: Entry) -> None:
        match "message" if entry.data.get("is_late") else entry.kind:
            case "message":
                self._on_message(Inbound.read(entry.data, entry.id, entry.seq))
            case "stop":
                await self._on_stop(entry)
            case "edit":
                await self._on_edit(entry, Inbound.read(entry.data, entry.id, entry.seq))
            case "withdrawal":
                await self._on_withdrawal(entry, Inbound.read(entry.data, entry.id, entry.seq))
            case unknown:
                raise ValueError(unknown)

    def _on_message(self, inbound: Inbound) -> None:
        if self._execution is not None and inbound.id == self._execution.first.id:
            return  # of a run that goes on
        self._inbox.add(inbound)
        if self._execution is not None:
            self._execution.add(inbound)
        elif inbound.seq > self._inbox.held:
            self._begin(was_waiting=len(self._inbox.waiting) > 1)

    def _begin(self, *, was_waiting: bool) -> None:
        """A run from the messages that wait: the oldest is its prompt, and it is given the others when it reads."""
        first, *others = self._inbox.waiting
        execution = self._start(RunRecord.begun_with(first, was_waiting=was_waiting))
        for inbound in others:
            execution.add(inbound)

    async def _take_up(self, record: RunRecord, entries: tuple[Entry, ...]) -> tuple[Entry, ...]:
        """Go on with a run whose process died, or handed it over; returns the entries that it has not read."""
        log.info("run.taken_up", conversation=self._id, run_id=record.id)
        self._inbox.add(record.first)
        try:
            read = await self._in_log(record.first.instance, {entry.id for entry in entries})
        except RunFailed as e:
            self._start(record, e)
            return entries
        self._start(record, read)
        done = [entry for entry in entries if entry.id in read and entry.id != record.first.id]
        await self._lease.write(Changes(closed={entry.seq: "" for entry in done}))
        for entry in done:
            self._desk.mark_read(entry.id)
        return tuple(entry for entry in entries if entry not in done)

    def _start(self, record: RunRecord, read: frozenset[str] | RunFailed = frozenset()) -> Execution:
        self._inbox.give(record.first)
        self._execution = Execution(record, self._lease, self._inbox, self._workplace, read)
        return self._execution

    async def _run(self, execution: Execution) -> None:
        where = {"conversation": self._id, "run_id": execution.record.id}
        log.info("run.started", **where, instance=execution.instance.name)
        await execution.go()
        if execution.was_suspended:
            log.info("run.suspended", **where)
            self._is_closing = True
            return
        async with self._one_at_a_time:
            await self._settle(execution)
        if (ending := execution.ending) is not None:
            log.info("run.ended", **where, status=ending.status, reason=ending.reason, **dict(ending.usage))

    async def _settle(self, execution: Execution) -> None:
        """Close what the log has, give back what it has not, and begin the next run where something starts one."""
        given = self._inbox.given
        read = await self._delivered(execution.first.instance, {each.id for each in given})
        closed: dict[int, End] = {each.seq: "" for each in given if each.id in read}
        first = execution.first
        if first.id not in read and not execution.comes_back:
            closed[first.seq] = "withdrawn" if execution.record.stopped_by else "refused"
        await self._lease.write(Changes(run={}, closed=closed))
        for message_id in read - execution.read - {first.id}:  # the loop was cut before it could tell
            self._desk.mark_read(message_id)
        self._inbox.remove([each for each in given if each.seq in closed])
        self._inbox.take_back()
        self._execution = None
        if self._inbox.starts_a_run:
            self._begin(was_waiting=True)
        elif unnamed := self._inbox.unnamed:  # a stop held them back when all had been said
            self._inbox.name_all()
            self._desk.tell(unnamed[-1].message, phrases.held_back(len(unnamed)))

    async def _delivered(self, agent: str, ids: set[str]) -> frozenset[str]:
        """Those of the messages that the log of this agent has; none where it cannot be read."""
        try:
            return await self._in_log(agent, ids)
        except RunFailed as e:  # the thread has been told: what cannot be read has been lost
            log.error("log.unreadable", conversation=self._id, error=str(e))  # noqa: TRY400 - a sentence
            return frozenset()

    async def _in_log(self, agent: str, ids: set[str]) -> frozenset[str]:
        instance = self._workplace.router.instance(agent)
        return await self._sessions.delivered(instance.name, self._id, ids, fence=self._lease.claim.token)

    async def _on_stop(self, entry: Entry) -> None:
        """Stop the run that is on; what was written before the stop starts none by itself."""
        execution = self._execution
        user, ts, run_id = entry.data["user"], entry.data.get("ts"), entry.data.get("run")
        if execution is not None and execution.is_meant(ts, run_id) and execution.stop(user):
            self._inbox.held = entry.seq
            changes = Changes(run=execution.record.written(), held=entry.seq, closed={entry.seq: "done"})
            await self._lease.write(changes)
            return
        if (word := entry.data.get("message")) is not None:
            # Before it is closed: whoever owns the conversation next would not know of it.
            await self._desk.told(Message(**{**word, "files": tuple(word["files"])}), phrases.NOTHING_RUNS)
        await self._close(entry, "done")

    async def _on_edit(self, entry: Entry, edit: Inbound) -> None:
        """Another text for a message that waits; a correction of one that the model has.

        Edits may overtake each other on the way to us: the latest counts.
        """
        target = self._inbox.find(edit.message.id)
        if edit.edited_ts < max(self._edited.get(edit.message.id, ""), self._inbox.latest_edit(edit.message.id)):
            await self._close(entry, "done")
            return
        self._edited[edit.message.id] = edit.edited_ts
        correction = replace(edit, prompt=phrases.correction(edit.prompt))
        if target is None:
            await (self._on_late(entry, correction) if await self._is_latest(edit) else self._close(entry, "done"))
            return
        edited = replace(target, message=edit.message, prompt=edit.prompt, edited_ts=edit.edited_ts)
        execution = self._execution
        if self._inbox.is_given(target) and (execution is None or not execution.edit(edited)):
            await self._tell_of(entry, replace(correction, instance=target.instance))
            return
        self._inbox.replace(edited)
        run = execution.record.written() if execution is not None and execution.first.id == edited.id else None
        changes = Changes(run=run, replaced={target.seq: edited.written()}, closed={entry.seq: "done"})
        await self._lease.write(changes)

    async def _is_latest(self, edit: Inbound) -> bool:
        """Whether the message still reads so in Slack; where that cannot be told soon, it does."""
        try:
            async with asyncio.timeout(_LOOK_WITHIN_S):
                found = await self._desk.wire.message(edit.message.channel, edit.message.ts)
        except (SlackCallFailed, TimeoutError):
            return True
        return found is None or found.get("text") == edit.message.text

    async def _on_withdrawal(self, entry: Entry, deletion: Inbound) -> None:
        """Take a message back that waits; the one that a run began with stops it, and the model is told of others."""
        planned = self._execution if self._execution is not None and self._execution.is_only_planned else None
        if planned is not None:
            self._execution = None
            self._inbox.take_back()
        target, execution = self._inbox.find(deletion.message.id), self._execution
        taken_back = replace(deletion, prompt=phrases.taken_back(deletion.prompt))
        if target is None:
            await self._on_late(entry, taken_back)
        elif not self._inbox.is_given(target) or (execution is not None and execution.withdraw(target)):
            self._inbox.remove((target,))
            await self._lease.write(Changes(closed={target.seq: "withdrawn", entry.seq: "done"}))
        elif execution is not None and target.id == execution.first.id:
            await self._on_stop(replace(entry, data={"user": deletion.message.user}))
        else:
            await self._tell_of(entry, replace(taken_back, instance=target.instance))
        if self._execution is None and self._inbox.starts_a_run:
            self._begin(was_waiting=planned is not None and planned.record.was_waiting)

    async def _on_late(self, entry: Entry, change: Inbound) -> None:
        """Tell the model of what has become of a message that is not here any more, if it has it."""
        for agent in self._workplace.router.names(first=change.instance):
            if await self._delivered(agent, {change.message.id}):
                await self._tell_of(entry, replace(change, instance=agent))
                return
        await self._close(entry, "done")

    async def _tell_of(self, entry: Entry, change: Inbound) -> None:
        """Tell the model of a change that came too late: now, or with the next run."""
        held = entry.seq if self._execution is None else None
        await self._lease.write(Changes(held=held, replaced={entry.seq: {**change.written(), "is_late": True}}))
        self._inbox.add(change)
        if self._execution is not None:
            self._execution.add(change)
        else:
            self._inbox.held = entry.seq

    async def _close(self, entry: Entry, end: End) -> None:
        await self._lease.write(Changes(closed={entry.seq: end}))
