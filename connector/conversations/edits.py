"""Apply edits and deletions: change a pending message in place; report a later change to the model as a new message."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from connector import texts
from connector.protocols import StateChanges
from connector.records import entries
from connector.records.entries import UnreadableEntry
from connector.records.inbox import PendingMessage
from connector.slack_api.errors import SlackCallFailed

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from connector.conversations.state import ConversationState
    from connector.protocols import End, InboxEntry

# How long the inbox may wait for Slack's history.
_LOOK_WITHIN_S = 1.0


class EditHandler:
    """Acts on edits and deletions in one conversation.

    Args:
        stop: stops the active run; called if the author deletes its first message.
    """

    def __init__(self, state: ConversationState, stop: Callable[[InboxEntry, str, float], Awaitable[None]]) -> None:
        self._state = state
        self._stop = stop
        # By message id, the ts of the latest known edit, applied by this process or an earlier owner.
        self._edited = _edited_in(state.lease.claim.entries)

    async def on_edit(self, entry: InboxEntry, edit: PendingMessage) -> None:
        """Replace the text of a pending message, or send the model a correction of a delivered one.

        Edits may arrive out of order; the latest one wins.
        """
        inbox, run, message_id = self._state.inbox, self._state.run, edit.message.id
        if edit.edited_ts < max(self._edited.get(message_id, ""), inbox.latest_edit(message_id)):
            await self._state.close(entry)
            return
        self._edited[message_id] = edit.edited_ts
        correction = replace(edit, prompt=texts.correction(edit.prompt))
        target = inbox.find(message_id)
        if target is None:
            await (self._on_late(entry, correction) if await self._is_latest(edit) else self._state.close(entry))
            return
        edited = replace(target, message=edit.message, prompt=edit.prompt, edited_ts=edit.edited_ts)
        if inbox.is_given(target) and (run is None or not run.edit(edited)):
            # After a takeover, not every edit is known here: compare with Slack.
            was_taken_over = run is not None and run.record.was_taken_over
            if was_taken_over and not await self._is_latest(edit):
                await self._state.close(entry)
            else:
                await self._queue_change(entry, replace(correction, instance=target.instance))
            return
        inbox.replace(edited)
        record = run.record.to_dict() if run is not None and run.first.id == edited.id else None
        closed: dict[int, End] = {**self._without_corrections(message_id), entry.seq: "done"}
        await self._state.lease.write(StateChanges(run=record, replaced={target.seq: edited.to_dict()}, closed=closed))

    async def on_deletion(self, entry: InboxEntry, deletion: PendingMessage) -> None:
        """Withdraw a pending message; stop the run if it is its first message; otherwise report it to the model."""
        inbox, run = self._state.inbox, self._state.run
        self._edited[deletion.message.id] = deletion.edited_ts
        target = inbox.find(deletion.message.id)
        taken_back = replace(deletion, prompt=texts.taken_back(deletion.prompt))
        if target is None:
            await self._on_late(entry, taken_back)
        elif not inbox.is_given(target) or (run is not None and run.withdraw(target)):
            closed: dict[int, End] = {target.seq: "withdrawn", entry.seq: "done"}
            closed |= self._without_corrections(target.id)
            inbox.remove((target,))
            await self._state.lease.write(StateChanges(closed=closed))
            if target.is_marked_accepted:
                self._state.workspace.background.unmark_accepted(target.message)
        elif run is not None and target.id == run.first.id and not run.is_over:
            await self._stop(entry, deletion.message.user, deletion.written_s)
        else:
            await self._queue_change(entry, replace(taken_back, instance=target.instance))

    async def _on_late(self, entry: InboxEntry, change: PendingMessage) -> None:
        """Report a change of a message that has left the inbox, if the model has read that message."""
        for agent in self._state.workspace.router.names(first=change.instance):
            if await self._state.delivered(agent, {change.message.id}):
                await self._queue_change(entry, replace(change, instance=agent))
                return
        # An entry with the message's own id is a change that arrived before the message, which it replaces for good.
        await self._state.close(entry, "withdrawn" if entry.id == change.message.id else "done")

    async def _queue_change(self, entry: InboxEntry, change: PendingMessage) -> None:
        """Queue a late change for the model: as an injection into the active run, or for the next run."""
        closed = self._without_corrections(change.message.id)
        data = {**change.to_dict(), "is_late": True}
        await self._state.lease.write(StateChanges(replaced={entry.seq: data}, closed=closed))
        self._state.inbox.add(change)
        if self._state.run is not None:
            self._state.run.add(change)

    def _without_corrections(self, message_id: str) -> dict[int, End]:
        """Drop pending corrections of the message that a newer change supersedes; return their closed entries."""
        inbox = self._state.inbox
        old = [each for each in inbox.waiting if each.is_late_change and each.message.id == message_id]
        inbox.remove(old)
        return {each.seq: "done" for each in old}

    async def _is_latest(self, edit: PendingMessage) -> bool:
        """Return whether Slack still has this version of the message; True if Slack does not answer in time."""
        try:
            async with asyncio.timeout(_LOOK_WITHIN_S):
                found = await self._state.workspace.background.client.history.message(
                    edit.message.channel, edit.message.ts
                )
        except (SlackCallFailed, TimeoutError):
            return True
        return found is None or found.get("text") == edit.message.text


def _edited_in(came: Iterable[InboxEntry]) -> dict[str, str]:
    """Return the ts of the latest edit or deletion in these entries, by message id."""
    edited: dict[str, str] = {}
    for entry in came:
        with suppress(UnreadableEntry):
            found = entries.parse_entry(entry)
            if isinstance(found, PendingMessage):
                edited[found.message.id] = max(edited.get(found.message.id, ""), found.edited_ts)
    return edited
