"""Apply stop requests to a conversation."""

from __future__ import annotations

from typing import TYPE_CHECKING

from connector import texts
from connector.protocols import StateChanges
from connector.records.pending_cleanup import Notice
from connector.records.run_summary import RunSummary

if TYPE_CHECKING:
    from connector.conversations.state import ConversationState
    from connector.events import StopRequest
    from connector.protocols import End, InboxEntry
    from connector.records.inbox import PendingMessage


class StopHandler:
    """Stops the active run, or the one about to begin. Messages older than the stop start no run by themselves."""

    def __init__(self, owned: ConversationState) -> None:
        self._owned = owned

    async def on_stop(self, entry: InboxEntry, stop: StopRequest) -> None:
        owned, execution = self._owned, self._owned.execution
        # A stop accepted before the run's first message met no run; its author gets an answer that nothing runs.
        is_before = execution is not None and entry.seq < execution.first.seq
        is_meant = execution is not None and not is_before and execution.is_meant(stop)
        if execution is not None and is_meant and execution.can_be_stopped:
            await self.stop(entry, stop.user, float(stop.at))
        elif execution is None and (fresh := self._beginning(stop)) is not None:
            await self._stop_beginning(entry, stop, fresh)
        elif stop.message is not None and (execution is None or is_before or is_meant):
            owned.aftermath.tell(entry, stop.message, texts.NOTHING_RUNS)
        else:
            await owned.close(entry)

    async def stop(self, entry: InboxEntry, user: str, at_s: float) -> None:
        """Stop the active run for a request made by this user at this time, in seconds since the epoch."""
        execution = self._owned.execution
        if execution is not None:
            execution.stop(user)
            held = self._owned.inbox.hold(at_s)
            changes = StateChanges(run=execution.record.written(), held=held, closed={entry.seq: "done"})
            await self._owned.lease.write(changes)

    def _beginning(self, stop: StopRequest) -> PendingMessage | None:
        """Return the message that would begin a run, if the stop applies to it."""
        fresh = self._owned.inbox.beginning
        if fresh is None or float(stop.at) < float(fresh.message.ts):
            return None
        return fresh if stop.ts in (None, fresh.message.ts) else None

    async def _stop_beginning(self, entry: InboxEntry, stop: StopRequest, fresh: PendingMessage) -> None:
        """Stop a run before it begins with this message."""
        inbox, names = self._owned.inbox, self._owned.workplace.desk.names
        inbox.remove((fresh,))
        held = inbox.hold(float(stop.at))
        if fresh.is_told:
            self._owned.workplace.desk.take_back(fresh.message)
        await names.learn((stop.user,))
        text = texts.stopped(names.of(stop.user) or "someone", RunSummary("cancelled"), inbox.name_held(()))
        notice = Notice(fresh.message, f"{fresh.id}:stopped", text)
        closed: dict[int, End] = {fresh.seq: "withdrawn", entry.seq: "done"}
        await self._owned.aftermath.end_run(closed, notices=(notice,), held=held)
