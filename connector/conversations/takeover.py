"""Resume a conversation whose owner died or handed it over."""

from __future__ import annotations

from html import unescape
from typing import TYPE_CHECKING

import structlog

from connector import texts
from connector.events import SlackMessage
from connector.protocols import RunFailed, StateChanges
from connector.records import run_record
from connector.records.entries import UNREADABLE, UnreadableEntry
from connector.records.pending_cleanup import Notice, PendingCleanup
from connector.records.run_record import RunRecord
from connector.runs.post import Post, service_post
from connector.runs.start_mode import Finished, New, Resumed, StartMode, Unrecoverable

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from connector.conversations.state import ConversationState
    from connector.protocols import End, InboxEntry

log = structlog.get_logger(__name__)


class Takeover:
    """Resumes the run and the cleanup that are stored with the lease."""

    def __init__(self, state: ConversationState) -> None:
        self._state = state
        # Notices about refused entries that came after the run's last post and before its end is stored.
        self._late: dict[int, Notice] = {}

    async def take_over(self) -> tuple[InboxEntry, ...]:
        """Resume the interrupted run and pending cleanup; return the entries that are not delivered yet.

        If another version stored a run that this one cannot read, post a notice.
        """
        claim = self._state.lease.claim
        try:
            stored = run_record.parse_run_record(claim.run or {})
        except UnreadableEntry:
            log.exception("run.unreadable", conversation=self._state.id)
            return await self._abandon(claim.run or {})
        match stored:
            case RunRecord():
                return await self._resume(stored)
            case PendingCleanup():
                self._state.cleanup.resume(stored)
                return claim.entries

    async def refuse(self, entry: InboxEntry) -> None:
        """Close an entry that this version cannot read; post a notice if it is a message."""
        state = self._state
        if entry.kind != "message":
            await state.close(entry)
            return
        closed: dict[int, End] = {entry.seq: "refused"}
        notice = Notice(self._somewhere, f"{entry.id}:refused", texts.UNREADABLE_MESSAGE)
        if state.run is None:
            await state.cleanup.end_run(closed, notices=(notice,))
        elif state.run.view.is_silent:
            self._late[entry.seq] = notice
        else:
            posts = service_post(f"refused:{entry.id}", texts.UNREADABLE_MESSAGE)
            await state.run.view.post(*posts, closed=closed)

    def refused_late(self) -> dict[int, Notice]:
        """Return the notices for entries refused after the run's last post, by sequence number, and forget them."""
        late, self._late = self._late, {}
        return late

    async def _resume(self, record: RunRecord) -> tuple[InboxEntry, ...]:
        state, entries = self._state, self._state.lease.claim.entries
        log.info("run.taken_over", conversation=state.id, run_id=record.id)
        state.cleanup.resume(record.pending_cleanup)
        state.inbox.add(record.first)
        state.inbox.announced_seq = record.announced_seq
        start_mode = await self._start_mode(record, {record.first.id, *(entry.id for entry in entries)})
        state.start(record, start_mode)
        delivered_ids = start_mode.delivered_ids if isinstance(start_mode, Resumed | Finished) else frozenset()
        return await self._without(delivered_ids - {record.first.id}, entries)

    async def _start_mode(self, record: RunRecord, ids: set[str]) -> StartMode:
        try:
            delivered_ids = await self._state.in_log(record.first.instance, ids)
        except RunFailed as e:
            return Finished() if record.is_over else Unrecoverable(e)
        if record.is_over:
            return Finished(delivered_ids)
        return Resumed(delivered_ids) if record.first.id in delivered_ids else New()

    async def _abandon(self, run: Mapping[str, Any]) -> tuple[InboxEntry, ...]:
        """Abandon an unreadable run: post its pending outbox, and a notice that asks people to repeat the request."""
        state, entries = self._state, self._state.lease.claim.entries
        run_id, where = str(run.get("id") or state.lease.claim.token), self._somewhere
        # Inherited: the previous owner may have posted some of them.
        pending = [
            Notice(where, f"{run_id}:{post.part}:{number}", unescape(text), is_inherited=True)
            for post in self._pending()
            for number, text in enumerate(post.texts)
        ]
        notice = Notice(where, f"{run_id}:unreadable", texts.UNREADABLE_RUN)
        await state.cleanup.end_run({}, notices=(*pending, notice))
        for agent in state.workspace.router.names():
            entries = await self._without(await state.delivered(agent, {entry.id for entry in entries}), entries)
        return entries

    def _pending(self) -> list[Post]:
        posts = []
        for part, data in self._state.lease.claim.posts.items():
            try:
                posts += [Post.from_dict(part, data)] if data else []
            except UNREADABLE:
                log.exception("post.unreadable", conversation=self._state.id, part=part)
        return sorted(posts, key=lambda post: post.number)

    async def _without(self, delivered_ids: frozenset[str], entries: tuple[InboxEntry, ...]) -> tuple[InboxEntry, ...]:
        """Close the delivered entries and return the others."""
        done = [entry for entry in entries if entry.id in delivered_ids]
        if done:
            await self._state.lease.write(StateChanges(closed={entry.seq: "" for entry in done}))
        for entry in done:
            self._state.workspace.background.mark_delivered(entry.id)
        return tuple(entry for entry in entries if entry.id not in delivered_ids)

    @property
    def _somewhere(self) -> SlackMessage:
        """A placeholder message that gives notices their place in this conversation."""
        team, channel, ts = self._state.id.split(":")
        is_dm = ts == "dm"
        return SlackMessage(team, channel, "" if is_dm else ts, None if is_dm else ts, "", "", (), direct=is_dm)
