"""The worker of one conversation, from the claim of its lease to the release."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack
from dataclasses import asdict, replace
from functools import partial
from typing import TYPE_CHECKING
from uuid import uuid4

import structlog
from structlog.contextvars import bound_contextvars

from connector.conversations import changes
from connector.conversations.log_commands import apply_command
from connector.conversations.state import ConversationState
from connector.events import Consent, RequestClick, StopRequest
from connector.protocols import EndedRun, LeaseLost, StateChanges, Usage
from connector.records import (
    LogCommand,
    PendingMessage,
    RunRecord,
    RunSummary,
    ThreadCatchUp,
    ThreadNotice,
    UnreadableEntry,
    parse_entry,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from connector.observer import RunReport
    from connector.protocols import ConversationLease, InboxEntry
    from connector.runs.run_slots import RunSlot
    from connector.runs.slack_run import SlackRun
    from connector.runs.workspace import WorkspaceContext

log = structlog.get_logger(__name__)

# Delay before the store reports a conversation as due whose thread has not been read yet.
_DUE_IN_S = 30.0
# How long an urgent message waits for older messages while its thread is being read.
_URGENT_WAIT_S = 1.0


class ConversationWorker:
    """Processes the inbox entries of one conversation in order, one run at a time.

    Only the owner of the lease decides how an edit, a deletion or a stop takes effect, so that no two processes have to
    agree.
    """

    def __init__(self, lease: ConversationLease, workspace: WorkspaceContext) -> None:
        self._lease = lease
        self._id = lease.conversation_id
        self._background = workspace.background
        self._slots = workspace.slots
        self.state = ConversationState(lease, workspace)
        self._inbox = self.state.inbox
        self._cleanup = self.state.cleanup
        # Ids of messages that already have 📨 or are handed to a run.
        self._marked_ids: set[str] = set()
        # Catch-ups not started yet: the conversation is to be parked, or too many threads are being read.
        self._catch_ups: list[tuple[InboxEntry, ThreadCatchUp]] = []
        # Finished catch-ups whose messages are in the inbox but not fetched yet.
        self._caught_up: list[InboxEntry] = []
        # Commands on the log that arrived after the last text of a run, before its end was stored.
        self._after_run: list[InboxEntry] = []
        self._seen = 0
        # Set to fetch new entries.
        self.news = asyncio.Event()
        # Set when entries arrive or the worker is to close.
        self._changed = asyncio.Event()
        self._lock = asyncio.Lock()
        self._is_closing = False
        # The lease is released; new entries are for the next owner.
        self.is_over = False
        # The lease is released only because the next run has no slot yet.
        self.is_parked = False

    def suspend(self) -> None:
        """End the active run at its next boundary, then hand the conversation over."""
        self._is_closing = True
        self._changed.set()
        if self.state.run is not None:
            self.state.run.suspend()

    def cancel(self) -> None:
        """End a suspended run at once."""
        if self.state.run is not None:
            self.state.run.cancel()

    async def work(self) -> None:
        """Work until nothing is left to do, then release the conversation.

        Raises:
            ExceptionGroup: contains LeaseLost if another process owns the conversation.
        """
        async with asyncio.TaskGroup() as tasks:
            watchers = [tasks.create_task(self._end_if_lost()), tasks.create_task(self._process_news())]
            async with self._lock:
                await self._process(await self.state.take_over())
            while not self.is_over:
                self._changed.clear()
                while not self._is_closing and (run := self._next()) is not None:
                    await self._run(run)
                if not self._is_closing:
                    await self._cleanup.done(self._changed, with_catch_ups=not self._is_to_park)
                async with self._lock:
                    await self._release()
            for task in watchers:
                task.cancel()

    async def _end_if_lost(self) -> None:
        await self._lease.lost()
        raise LeaseLost

    async def _process_news(self) -> None:
        while True:
            await self.news.wait()
            async with self._lock:
                if self.is_over:
                    return
                self.news.clear()
                caught_up, self._caught_up = self._caught_up, []
                with bound_contextvars(**self.state.log_fields):
                    await self._process(await self._lease.fetch(self._seen))
                for entry in caught_up:
                    self._expect_no_more(entry.id)
                self._changed.set()

    async def _release(self) -> None:
        """Release the conversation, unless new work has arrived."""
        if self._is_closing:
            await self._lease.hand_over()
            self.is_over = True
            return
        if self._inbox.run_starter is None:
            await self.state.drop_asides()
        await self.state.announce_held()
        slot = self._enter_queue()
        self._begin_catch_ups()
        # New work arrived while this call waited for the lock.
        if (
            self._caught_up
            or (slot is not None and slot.is_shown)
            or not self._cleanup.is_done(with_catch_ups=slot is None)
        ):
            return
        await self._cleanup.keep()
        if slot is not None:
            await self._park()
        elif self._catch_ups:
            await self._lease.hand_over(_DUE_IN_S)
        else:
            # Only held messages, late changes and notes are left. The next message's run delivers them.
            held_seq = max((each.seq for each in self._inbox.waiting.values()), default=0)
            if held_seq > self._inbox.held_seq:
                self._inbox.held_seq = held_seq
                await self._lease.write(StateChanges(held_seq=held_seq))
            if not await self._lease.release(self._seen):
                await self._process(await self._lease.fetch(self._seen))
                return
        self.is_over = True

    async def _process(self, came: Iterable[InboxEntry]) -> None:  # noqa: C901 - a case for each kind
        """Process entries. A run begins only after all of them are processed."""
        for entry in came:
            self._seen = max(self._seen, entry.seq)
            kind = "message" if entry.data.get("is_late") else entry.kind
            try:
                found = parse_entry(entry)
            except UnreadableEntry:
                log.exception("entry.unreadable", conversation=self._id, entry=entry.id)
                await self.state.refuse(entry)
                continue
            match kind, found:
                case "aside", PendingMessage() if await self._is_outdated(found):
                    await self.state.close(entry)  # the next run reads it as talk, as it is then
                case "message" | "note" | "aside", PendingMessage():
                    await self._on_message(found)
                case "edit", PendingMessage():
                    await changes.apply_edit(self.state, entry, found)
                case "withdrawal", PendingMessage():
                    await changes.apply_deletion(self.state, entry, found)
                case _, StopRequest() | Consent() | RequestClick():
                    await changes.apply(self.state, entry, found)
                case _, LogCommand() if self.state.run is not None and self.state.run.is_over:
                    self._after_run.append(entry)
                case _, LogCommand():
                    if (again := await apply_command(self.state, entry, found)) is not None:
                        await self._on_message(again)
                case _, ThreadCatchUp():
                    self._inbox.unread_since[entry.id] = float(found.since)
                    self._catch_ups.append((entry, found))
                case _, ThreadNotice():
                    self._cleanup.answer(entry, found)
        await self.state.drop_stopped_order()
        self._mark_held()
        self._begin_catch_ups()

    def _begin_catch_ups(self) -> None:
        """Start catch-ups, unless the conversation is to be parked: then its next owner runs them.

        Messages do not wait for a catch-up that cannot start because too many are running.
        """
        while self._catch_ups and self._background.may_catch_up and not self._is_to_park:
            entry, catch_up = self._catch_ups.pop(0)
            self._inbox.unread_since[entry.id] = float(catch_up.since)
            self._cleanup.catch_up(entry, partial(self._catch_up, entry, catch_up))
        for entry, _ in self._catch_ups:
            self._expect_no_more(entry.id)
        self._cleanup.has_waiting_catch_ups = bool(self._catch_ups)

    async def _catch_up(self, entry: InboxEntry, catch_up: ThreadCatchUp) -> None:
        """Read the thread. Newer messages wait until the older ones are found, at most `older_first_s`."""
        timer = asyncio.get_running_loop().call_later(self._background.older_first_s, self._expect_no_more, entry.id)
        try:
            await self.state.workspace.catch_up(catch_up)
        finally:
            timer.cancel()
            task = asyncio.current_task()
            if task is None or not task.cancelling():  # cancelled: the next owner of the parked conversation reads it
                self._caught_up.append(entry)
                self.news.set()

    async def _is_outdated(self, aside: PendingMessage) -> bool:
        """Return whether a message was edited or deleted before it arrived."""
        thread = await self.state.workspace.runs.thread_of(self._id)
        return thread.changed(aside.message.ts) > aside.edited_ts

    def _expect_no_more(self, entry_id: str) -> None:
        """Stop delaying messages for older ones from the thread."""
        self._inbox.unread_since.pop(entry_id, None)
        self._changed.set()
        if self.state.run is not None:
            self.state.run.steering.flush()

    async def _on_message(self, inbound: PendingMessage) -> None:
        run = self.state.run
        if run is not None and inbound.id == run.first.id:
            return  # the first message of the resumed run
        self._inbox.add(inbound)
        if inbound.is_note:
            return
        if run is not None:
            self._marked_ids.add(inbound.id)
            await run.steering.insert(inbound)
        elif not inbound.starts_no_run and not self._inbox.may_be_read(inbound):
            self._mark(inbound)
        if inbound.is_urgent:
            for entry_id in tuple(self._inbox.unread_since):
                asyncio.get_running_loop().call_later(_URGENT_WAIT_S, self._expect_no_more, entry_id)

    def _mark_held(self) -> None:
        """Mark the messages that a stop holds, also those that came before it."""
        for each in self._inbox.waiting.values():
            if self._inbox.is_held(each) and not each.starts_no_run and each.id not in self._marked_ids:
                self._mark(each)

    def _mark(self, inbound: PendingMessage) -> None:
        self._marked_ids.add(inbound.id)
        self._background.mark_accepted(inbound.message)

    def _next(self) -> SlackRun | None:
        """Return the active run, or begin one: the oldest message is its prompt, the others become injections."""
        if self.state.run is not None:
            return self.state.run
        slot = self._enter_queue()
        if slot is None or not slot.is_shown:
            return None
        pending = [each for each in self._inbox.waiting.values() if not each.is_note]
        first = next(each for each in pending if not each.is_aside)
        others = [each for each in pending if each is not first]
        worker = first.message.worker
        record = RunRecord(
            uuid4().hex[len(worker) :] + worker,
            first,
            was_waiting=first.id in self._marked_ids or self._inbox.is_held(first),
            newest_ts=max((each.message.ts for each in (first, *others)), key=float),
            has_hourglass=self._background.reserve_hourglass(first.message),
            pending_cleanup=self._cleanup.pending,
            announced_seq=self._inbox.announced_seq,
            gap=next((each.gap for each in (first, *others) if each.gap is not None), None),
        )
        self._marked_ids.discard(first.id)  # ⏳ replaces a queued 📨
        run = self.state.start(record)
        run.slot = slot
        for inbound in others:
            self._marked_ids.add(inbound.id)
            run.steering.add(inbound)
        return run

    def _enter_queue(self) -> RunSlot | None:
        """Enter the queue for run slots; `None`: no message starts a run, or not yet (then the slot is kept)."""
        starter = self._inbox.run_starter
        if starter is None:
            self._slots.leave(self._id)
            return None
        if not self._inbox.may_be_read(starter):
            return None
        return self._slots.enter(self._id, starter.message)

    @property
    def _is_to_park(self) -> bool:
        """Whether the next run has to wait for its slot without a lease."""
        if self.state.run is not None:
            return False
        slot = self._enter_queue()
        return slot is not None and not slot.is_shown

    async def _park(self) -> None:
        """Hand the conversation over until a slot is free; mark each pending message with 📨."""
        waiting = [
            each for each in self._inbox.waiting.values() if not each.is_marked_accepted and not each.starts_no_run
        ]
        marked = [replace(each, is_marked_accepted=True) for each in waiting]
        if marked:
            await self._lease.write(StateChanges(replaced={each.seq: asdict(each) for each in marked}))
        for each in marked:
            self._inbox.replace(each)
            self._background.mark_accepted(each.message)
        await self._lease.hand_over(self._slots.due_in_s)
        self.is_parked = True

    async def _run(self, run: SlackRun) -> None:
        observed = self.state.workspace.observer.run(run.record.id, self._id, run.instance.name, run.first.id)
        with bound_contextvars(**self.state.log_fields), observed as report:
            await self._work_on(run, report)

    async def _work_on(self, run: SlackRun, report: RunReport) -> None:
        where = {"conversation": self._id, "run_id": run.record.id}
        log.info("run.started", **where, instance=run.instance.name)
        with ExitStack() as on_failure:
            on_failure.callback(self._background.release_hourglass, run.place.channel, run.first.message.ts)
            self._show_at_home(run)
            await run.go()
            if not run.was_suspended:
                await self._keep(run)
                async with self._lock:
                    await self.state.end(run)
                    after_run, self._after_run = self._after_run, []
                    await self._process(after_run)
            on_failure.pop_all()
        self._show_at_home(run)
        if run.was_suspended:
            report.outcome = "suspended"
            log.info("run.suspended", **where)
            self._is_closing = True
            return
        # `None` for a run that another process finished.
        summary = run.summary
        report.outcome = "delivered" if summary is None else summary.status
        fields = {"status": summary.status, "reason": summary.reason, **summary.usage} if summary is not None else {}
        log.info("run.ended", **where, **fields)
        await self._cleanup.recent_done()
        self._slots.leave(self._id)

    async def _keep(self, run: SlackRun) -> None:
        """Keep the run for the person who began it, before its end is stored: a crash in between repeats this."""
        if (records := self.state.workspace.records) is None:
            return
        message, summary = run.first.message, run.summary or RunSummary("success")
        used, times = summary.usage, (run.first.written_s, self._background.now_s())
        cost = None if used.get("cost_usd") is None else float(used["cost_usd"])
        read, written, cached = (
            int(used.get(name) or 0) for name in ("input_tokens", "output_tokens", "cache_read_tokens")
        )
        usage = Usage(read, written, cost, cached)
        ended = EndedRun(run.record.id, self._id, run.instance.name, *times, summary.status, usage)
        await records.add_run(message.team, run.first.owner, ended)

    def _show_at_home(self, run: SlackRun) -> None:
        if (home := self.state.workspace.home) is not None:
            home.changed(run.first.owner)
            if run.record.requests:
                home.asked(run.record)
