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

    def __init__(self, state: ConversationState) -> None:
        self._state = state

    async def on_stop(self, entry: InboxEntry, stop: StopRequest) -> None:
        state, run = self._state, self._state.run
        # A stop accepted before the run's first message met no run; its author gets an answer that nothing runs.
        is_before = run is not None and entry.seq < run.first.seq
        is_meant = run is not None and not is_before and run.is_meant(stop)
        if run is not None and is_meant and run.can_be_stopped:
            await self.stop(entry, stop.user, float(stop.at))
        elif run is None and (starter := self._starter(stop)) is not None:
            await self._stop_starter(entry, stop, starter)
        elif stop.message is not None and (run is None or is_before or is_meant):
            state.cleanup.answer(entry, stop.message, texts.NOTHING_RUNS)
        else:
            await state.close(entry)

    async def stop(self, entry: InboxEntry, user: str, at_s: float) -> None:
        """Stop the active run for a request made by this user at this time, in seconds since the epoch."""
        run = self._state.run
        if run is not None:
            run.stop(user)
            held_seq = self._state.inbox.hold(at_s)
            changes = StateChanges(run=run.record.to_dict(), held_seq=held_seq, closed={entry.seq: "done"})
            await self._state.lease.write(changes)

    def _starter(self, stop: StopRequest) -> PendingMessage | None:
        """Return the message that would begin a run, if the stop applies to it."""
        starter = self._state.inbox.run_starter
        if starter is None or float(stop.at) < float(starter.message.ts):
            return None
        return starter if stop.ts in (None, starter.message.ts) else None

    async def _stop_starter(self, entry: InboxEntry, stop: StopRequest, starter: PendingMessage) -> None:
        """Stop a run before it begins with this message."""
        inbox, users = self._state.inbox, self._state.workspace.background.users
        inbox.remove((starter,))
        held_seq = inbox.hold(float(stop.at))
        if starter.is_marked_accepted:
            self._state.workspace.background.unmark_accepted(starter.message)
        await users.look_up((stop.user,))
        text = texts.stopped(users.name_of(stop.user) or "someone", RunSummary("cancelled"), inbox.announce_held(()))
        notice = Notice(starter.message, f"{starter.id}:stopped", text)
        closed: dict[int, End] = {starter.seq: "withdrawn", entry.seq: "done"}
        await self._state.cleanup.end_run(closed, notices=(notice,), held_seq=held_seq)
