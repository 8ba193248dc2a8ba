"""The state of a conversation that this process owns, and how it is taken over from the previous owner."""

from __future__ import annotations

import asyncio
from html import unescape
from typing import TYPE_CHECKING

import structlog

from connector import texts
from connector.conversations.cleanup import Cleanup
from connector.events import StopRequest, ThreadAddress
from connector.protocols import InboxEntry, RunFailed, StateChanges
from connector.records import (
    UNREADABLE,
    Notice,
    PendingMessage,
    RunRecord,
    UnreadableEntry,
    parse_run_record,
    stop_entry,
)
from connector.runs.inbox import Inbox
from connector.runs.posts import service_post, stored_post
from connector.runs.slack_run import Finished, New, Resumed, SlackRun, StartMode, Unrecoverable
from connector.runs.worker_report import report
from connector.slack_api.errors import error_boundary

if TYPE_CHECKING:
    from collections.abc import Mapping
    from collections.abc import Set as AbstractSet
    from typing import Any

    from connector.events import SlackMessage
    from connector.protocols import ConversationLease, End, Worker
    from connector.runs.workspace import WorkspaceContext

log = structlog.get_logger(__name__)


class ConversationState:
    """A conversation with its lease, inbox, active run, and pending cleanup of earlier runs."""

    def __init__(self, lease: ConversationLease, workspace: WorkspaceContext) -> None:
        self.id = lease.conversation_id
        self.lease = lease
        self.workspace = workspace
        self.inbox = Inbox(workspace.background.users, lease.claim.held_seq, lease.claim.stopped_s)
        self.cleanup = Cleanup(lease, workspace.background)
        self.run: SlackRun | None = None
        # Sequence numbers of the entries of forks and exports that are being carried out.
        self.copying: set[int] = set()
        # Notices, and the entries they close, after the run's last post and before its end is stored.
        self._late_notices: list[Notice] = []
        self._late_closed: dict[int, End] = {}

    @property
    def log_fields(self) -> dict[str, str]:
        """The fields of log lines about this conversation and its active run."""
        of_run = {"run_id": self.run.record.id, "instance": self.run.instance.name} if self.run is not None else {}
        return {"conversation": self.id, **of_run}

    async def close(self, entry: InboxEntry, end: End = "done") -> None:
        """Close an entry that is fully processed."""
        await self.lease.write(StateChanges(closed={entry.seq: end}))

    def start(self, record: RunRecord, start_mode: StartMode = New()) -> SlackRun:  # noqa: B008 - it is frozen
        """Create the active run; its first message must be in the inbox."""
        self.inbox.give(record.first)
        self.run = SlackRun(
            record, self.lease, self.inbox, self.workspace, start_mode, self._may_stream, self.cleanup.answered
        )
        return self.run

    def _may_stream(self) -> bool:
        return not self.cleanup.may_find_streams

    async def end(self, run: SlackRun) -> None:
        """Close the entries of delivered messages, return the other ones to the queue, and start the cleanup."""
        inbox, first = self.inbox, run.first
        run.has_ended = True
        read = await self.delivered(first.instance, set(inbox.given))
        closed: dict[int, End] = {each.seq: "" for each in inbox.given.values() if each.id in read}
        if first.id not in read and not run.is_requeued:
            closed[first.seq] = "withdrawn" if run.record.stopped_by else "refused"
            with error_boundary("file.not_dropped", conversation=self.id):
                await run.files.drop(inbox.only_in(first, first.message.files))
        for aside in await self._asides():
            closed.setdefault(aside.seq, "done")
            if aside.id not in read:
                self.workspace.background.unmark_accepted(aside.message)
        if first.id in read:
            run.report_first()
        unreported_ids = read - run.delivered_ids - {first.id}
        unreported = [each for each in inbox.given if each in unreported_ids]
        inbox.remove([each for each in (*inbox.given.values(), *inbox.waiting.values()) if each.seq in closed])
        inbox.take_back()
        late, self._late_notices = self._late_notices, []
        closed.update(self._late_closed)
        self._late_closed = {}
        notices = self.notices_of_held()
        self.run = None
        if run.is_in_doubt:
            self.cleanup.expect_late_calls()
        await self.cleanup.end_run(
            closed, (run.artifacts, *run.requests.unsettled, *notices, *late), held_seq=inbox.held_seq
        )
        for message_id in unreported:  # the loop was cancelled before it reported them
            self.workspace.background.mark_delivered(message_id)

    async def stop_workers(self, run: RunRecord) -> None:
        """Stop the workers below a stopped run, as often as it was stopped; each request counts once.

        A worker between them may have ended, so its own stop is not relied on; both store the same requests.
        """
        for each in await self._workers_below(run.id):
            for number in range(1, run.stops + 1):
                await self._stop(each, _passed_down(each, number), run.stopped_by or "", run.newest_ts)

    async def stop_all_workers(self, stop: StopRequest) -> int:
        """Stop the workers below all runs of this conversation, and return their number."""
        workers = await self._workers_below()
        at_work = {each.conversation_id for each in workers}
        for each in workers:
            # A worker above it that is at work passes its own stop down; both requests count as one.
            request = _passed_down(each, 1) if each.parent in at_work else f"{stop.id}:{each.id}"
            await self._stop(each, request, stop.user, stop.at)
        return len(workers)

    async def _workers_below(self, run_id: str = "") -> list[Worker]:
        """Return the workers at work that a run has dispatched (blank: any run of this conversation), and theirs."""
        workers = self.workspace.workers
        found = await workers.of_thread(self.id) if workers is not None else ()
        level = [each for each in found if each.parent == self.id and run_id in {"", each.parent_run}]
        below: list[Worker] = []
        while level:
            below += level
            above = {each.conversation_id for each in level}
            level = [each for each in found if each.parent in above]
        return [each for each in below if not each.ended_s]

    async def _stop(self, worker: Worker, request_id: str, user: str, at: str) -> None:
        # A worker began by the clock of a machine, which may be ahead of Slack's.
        at = f"{max(float(at), self.workspace.background.now_s()):.6f}"
        stop = StopRequest(request_id, user, at)
        await self.workspace.runs.admit(worker.conversation_id, stop_entry(stop))

    async def drop_stopped_order(self) -> None:
        """Withdraw the order of a worker that was stopped before its order was stored."""
        waiting = self.inbox.waiting.values()
        for order in [each for each in waiting if each.message.worker and each.message.key]:
            if self.run is None and self.inbox.is_held(order):
                self.inbox.remove((order,))
                await report(self.workspace, order, "cancelled", "", fence=self.lease.claim.token)
                await self.lease.write(StateChanges(closed={order.seq: "withdrawn"}))

    async def drop_asides(self) -> None:
        """Close the messages that only an active run would have read; the next run reads them as talk."""
        if asides := await self._asides():
            self.inbox.remove(asides)
            await self.lease.write(StateChanges(closed={each.seq: "done" for each in asides}))

    async def _asides(self) -> list[PendingMessage]:
        return await self.inbox.asides_now(self.workspace.router, self.workspace.runs, self.id)

    async def hold(self, stopped_s: float) -> None:
        """Keep messages written up to the time of a stop from starting a run, also those that arrive later."""
        if self.inbox.hold(stopped_s):
            await self.lease.write(StateChanges(stopped_s=stopped_s))

    async def announce_held(self) -> None:
        """Post a notice about messages that arrived after the stop that holds them, if there are any."""
        if notices := self.notices_of_held():
            await self.cleanup.end_run({}, notices, held_seq=self.inbox.held_seq)

    def notices_of_held(self) -> list[Notice]:
        """Return the notices to post; `held_seq`, stored with them, tells the next owner which messages they count."""
        held = self.inbox.announce_held_back()
        return [Notice(held[-1].message, f"{held[-1].id}:held", texts.held_back(len(held)))] if held else []

    async def delivered(self, agent: str, ids: set[str]) -> frozenset[str]:
        """Return which messages this agent has read; none if its log is unreadable, which the run's notice reports."""
        name, token = self.workspace.router.instance(agent).name, self.lease.claim.token
        try:
            return await self.workspace.sessions.delivered(name, self.id, ids, fence=token)
        except RunFailed as e:
            log.error("log.unreadable", conversation=self.id, error=str(e))  # noqa: TRY400 - a sentence
            return frozenset()

    async def refuse(self, entry: InboxEntry) -> None:
        """Close an entry that this version cannot read; post a notice if it is a message or a command."""
        if entry.kind not in {"message", "note", "command"}:
            await self.close(entry)
            return
        notice = Notice(self.somewhere, f"{entry.id}:refused", texts.UNREADABLE_MESSAGE)
        await self.announce(notice, {entry.seq: "refused"})

    async def announce(self, notice: Notice, closed: Mapping[int, End]) -> None:
        """Store in one step that entries are closed and that a notice about them is to be posted."""
        if self.run is None:
            await self.cleanup.end_run(closed, (notice,))
        elif self.run.outbox.is_finished:
            self._late_notices.append(notice)
            self._late_closed.update(closed)
        else:
            await self.run.outbox.add(*service_post(notice.key, notice.text), closed=closed)

    async def take_over(self) -> tuple[InboxEntry, ...]:
        """Resume the interrupted run and pending cleanup; return the entries that are not delivered yet.

        If another version stored a run that this one cannot read, post a notice.
        """
        claim = self.lease.claim
        try:
            stored = parse_run_record(claim.run or {})
        except UnreadableEntry:
            log.exception("run.unreadable", conversation=self.id)
            return await self._abandon(claim.run or {})
        if isinstance(stored, RunRecord):
            return await self._resume(stored)
        if claim.run is not None:
            self.cleanup.resume(stored)
        return claim.entries

    async def _resume(self, record: RunRecord) -> tuple[InboxEntry, ...]:
        log.info("run.taken_over", conversation=self.id, run_id=record.id, instance=record.first.instance)
        entries = self.lease.claim.entries
        self.cleanup.resume(record.pending_cleanup)
        self.inbox.add(record.first)
        self.inbox.announced_seq = record.announced_seq
        name, ids = self.workspace.router.instance(record.first.instance).name, {each.id for each in entries}
        start_mode: StartMode
        delivered_ids: frozenset[str] = frozenset()
        try:
            delivered_ids = await self.workspace.sessions.delivered(
                name, self.id, ids | {record.first.id}, fence=self.lease.claim.token
            )
        except RunFailed as e:
            start_mode = Finished() if record.is_over else Unrecoverable(e)
        else:
            resumed = Resumed(delivered_ids) if record.first.id in delivered_ids else New()
            start_mode = Finished(delivered_ids) if record.is_over else resumed
        self.start(record, start_mode)
        if record.stops:
            await self.stop_workers(record)
        return await self._without(delivered_ids - {record.first.id}, entries)

    async def _abandon(self, run: Mapping[str, Any]) -> tuple[InboxEntry, ...]:
        """Abandon an unreadable run: post its pending outbox, and a notice that asks people to repeat the request."""
        claim, where = self.lease.claim, self.somewhere
        run_id, posts = str(run.get("id") or claim.token), []
        for part, data in claim.posts.items():
            try:
                posts += [stored_post(part, data)] if data else []
            except UNREADABLE:
                log.exception("post.unreadable", conversation=self.id, part=part)
        # Inherited: the previous owner may have posted some of them.
        pending = [
            Notice(where, f"{run_id}:{post.part}:{key}", unescape(text), is_inherited=True)
            for post in sorted(posts, key=lambda post: post.number)
            for key, text in await asyncio.to_thread(post.as_texts)  # may take seconds
        ]
        await self.cleanup.end_run({}, (*pending, Notice(where, f"{run_id}:unreadable", texts.UNREADABLE_RUN)))
        entries = claim.entries
        for agent in self.workspace.router.names():
            entries = await self._without(await self.delivered(agent, {entry.id for entry in entries}), entries)
        return entries

    async def _without(
        self, delivered_ids: AbstractSet[str], entries: tuple[InboxEntry, ...]
    ) -> tuple[InboxEntry, ...]:
        """Close the delivered entries and return the others."""
        done = [entry for entry in entries if entry.id in delivered_ids]
        if done:
            await self.lease.write(StateChanges(closed={entry.seq: "" for entry in done}))
        for entry in done:
            self.workspace.background.mark_delivered(entry.id)
        return tuple(entry for entry in entries if entry.id not in delivered_ids)

    @property
    def somewhere(self) -> SlackMessage:
        """A placeholder message that gives notices their place in this conversation."""
        place = ThreadAddress.parse(self.id)
        return place.message(place.thread_ts or "0")


def _passed_down(worker: Worker, number: int) -> str:
    """Return the id of the request that passes a stop, by its number, of a run to a worker that it dispatched."""
    return f"{worker.parent_run}:stop{number}:{worker.id}"
