"""Resume a conversation whose owner died or handed it over."""

from __future__ import annotations

from html import unescape
from typing import TYPE_CHECKING

import structlog

from connector import texts as phrases
from connector.events import SlackMessage
from connector.protocols import RunFailed, StateChanges
from connector.records import run_record
from connector.records.entries import UNREADABLE, UnreadableEntry
from connector.records.pending_cleanup import Notice, PendingCleanup
from connector.records.run_record import RunRecord
from connector.runs.post import Post, noted
from connector.runs.start_mode import Finished, New, Resumed, StartMode, Unrecoverable

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from connector.conversations.state import ConversationState
    from connector.protocols import End, InboxEntry

log = structlog.get_logger(__name__)


class Takeover:
    """Resumes the run and the cleanup that are stored with the lease."""

    def __init__(self, owned: ConversationState) -> None:
        self._owned = owned
        # Notices about refused entries that came after the run's last post and before its end is stored.
        self._late: dict[int, Notice] = {}

    async def take_up(self) -> tuple[InboxEntry, ...]:
        """Resume the interrupted run and pending cleanup; return the entries that are not delivered yet.

        If another version stored a run that this one cannot read, post a notice.
        """
        claim = self._owned.lease.claim
        try:
            standing = run_record.read(claim.run or {})
        except UnreadableEntry:
            log.exception("run.unreadable", conversation=self._owned.id)
            return await self._give_up(claim.run or {})
        match standing:
            case RunRecord():
                return await self._go_on(standing)
            case PendingCleanup():
                self._owned.aftermath.go_on(standing)
                return claim.entries

    async def refuse(self, entry: InboxEntry) -> None:
        """Close an entry that this version cannot read; post a notice if it is a message."""
        owned = self._owned
        if entry.kind != "message":
            await owned.close(entry)
            return
        closed: dict[int, End] = {entry.seq: "refused"}
        told = Notice(self._somewhere, f"{entry.id}:refused", phrases.UNREADABLE_MESSAGE)
        if owned.execution is None:
            await owned.aftermath.end_run(closed, notices=(told,))
        elif owned.execution.view.is_silent:
            self._late[entry.seq] = told
        else:
            notice = noted(f"refused:{entry.id}", phrases.UNREADABLE_MESSAGE)
            await owned.execution.view.post(*notice, closed=closed)

    def refused_late(self) -> dict[int, Notice]:
        """Return the notices for entries refused after the run's last post, by sequence number, and forget them."""
        late, self._late = self._late, {}
        return late

    async def _go_on(self, record: RunRecord) -> tuple[InboxEntry, ...]:
        owned, entries = self._owned, self._owned.lease.claim.entries
        log.info("run.taken_up", conversation=owned.id, run_id=record.id)
        owned.aftermath.go_on(record.leftovers)
        owned.inbox.add(record.first)
        owned.inbox.named = record.named
        beginning = await self._beginning(record, {record.first.id, *(entry.id for entry in entries)})
        owned.start(record, beginning)
        read = beginning.read if isinstance(beginning, Resumed | Finished) else frozenset()
        return await self._without(read - {record.first.id}, entries)

    async def _beginning(self, record: RunRecord, ids: set[str]) -> StartMode:
        try:
            read = await self._owned.in_log(record.first.instance, ids)
        except RunFailed as e:
            return Finished() if record.is_over else Unrecoverable(e)
        if record.is_over:
            return Finished(read)
        return Resumed(read) if record.first.id in read else New()

    async def _give_up(self, run: Mapping[str, Any]) -> tuple[InboxEntry, ...]:
        """Abandon an unreadable run: post its pending outbox, and a notice that asks people to repeat the request."""
        owned, entries = self._owned, self._owned.lease.claim.entries
        run_id, where = str(run.get("id") or owned.lease.claim.token), self._somewhere
        # Inherited: the previous owner may have posted some of them.
        pending = [
            Notice(where, f"{run_id}:{post.part}:{number}", unescape(text), is_inherited=True)
            for post in self._pending()
            for number, text in enumerate(post.texts)
        ]
        told = Notice(where, f"{run_id}:unreadable", phrases.UNREADABLE_RUN)
        await owned.aftermath.end_run({}, notices=(*pending, told))
        for agent in owned.workplace.router.names():
            entries = await self._without(await owned.delivered(agent, {entry.id for entry in entries}), entries)
        return entries

    def _pending(self) -> list[Post]:
        posts = []
        for part, data in self._owned.lease.claim.posts.items():
            try:
                posts += [Post.read(part, data)] if data else []
            except UNREADABLE:
                log.exception("post.unreadable", conversation=self._owned.id, part=part)
        return sorted(posts, key=lambda post: post.number)

    async def _without(self, read: frozenset[str], entries: tuple[InboxEntry, ...]) -> tuple[InboxEntry, ...]:
        """Close the delivered entries and return the others."""
        done = [entry for entry in entries if entry.id in read]
        if done:
            await self._owned.lease.write(StateChanges(closed={entry.seq: "" for entry in done}))
        for entry in done:
            self._owned.workplace.desk.mark_read(entry.id)
        return tuple(entry for entry in entries if entry.id not in read)

    @property
    def _somewhere(self) -> SlackMessage:
        """A placeholder message that gives notices their place in this conversation."""
        team, channel, ts = self._owned.id.split(":")
        is_dm = ts == "dm"
        return SlackMessage(team, channel, "" if is_dm else ts, None if is_dm else ts, "", "", (), direct=is_dm)
