"""What becomes of edits and deletions: in time it is as if it had never been otherwise, later the model is told."""

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

# How long the inbox may wait for Slack.
_LOOK_WITHIN_S = 1.0


class EditHandler:
    """Acts on edits and deletions in one conversation.

    Args:
        stop: stops the run that is on, for whoever has deleted what it began with.
    """

    def __init__(self, owned: ConversationState, stop: Callable[[InboxEntry, str, float], Awaitable[None]]) -> None:
        self._owned = owned
        self._stop = stop
        # By message, the latest that is known, whoever has acted on it; the log may have that by now.
        self._edited = _edited_in(owned.lease.claim.entries)

    async def on_edit(self, entry: InboxEntry, edit: PendingMessage) -> None:
        """Another text for a message that waits; a correction of one that the model has.

        Edits may overtake each other on the way to us: the latest counts.
        """
        inbox, execution, message_id = self._owned.inbox, self._owned.execution, edit.message.id
        if edit.edited_ts < max(self._edited.get(message_id, ""), inbox.latest_edit(message_id)):
            await self._owned.close(entry)
            return
        self._edited[message_id] = edit.edited_ts
        correction = replace(edit, prompt=texts.correction(edit.prompt))
        target = inbox.find(message_id)
        if target is None:
            await (self._on_late(entry, correction) if await self._is_latest(edit) else self._owned.close(entry))
            return
        edited = replace(target, message=edit.message, prompt=edit.prompt, edited_ts=edit.edited_ts)
        if inbox.is_given(target) and (execution is None or not execution.edit(edited)):
            # Of what another process has acted on we do not know every edit.
            is_taken_up = execution is not None and execution.record.is_taken_up
            if is_taken_up and not await self._is_latest(edit):
                await self._owned.close(entry)
            else:
                await self._tell(entry, replace(correction, instance=target.instance))
            return
        inbox.replace(edited)
        run = execution.record.written() if execution is not None and execution.first.id == edited.id else None
        closed: dict[int, End] = {**self._without_corrections(message_id), entry.seq: "done"}
        await self._owned.lease.write(StateChanges(run=run, replaced={target.seq: edited.written()}, closed=closed))

    async def on_deletion(self, entry: InboxEntry, deletion: PendingMessage) -> None:
        """Take a message back that waits; the one that a run began with stops it, and the model is told of others."""
        inbox, execution = self._owned.inbox, self._owned.execution
        self._edited[deletion.message.id] = deletion.edited_ts
        target = inbox.find(deletion.message.id)
        taken_back = replace(deletion, prompt=texts.taken_back(deletion.prompt))
        if target is None:
            await self._on_late(entry, taken_back)
        elif not inbox.is_given(target) or (execution is not None and execution.withdraw(target)):
            closed: dict[int, End] = {target.seq: "withdrawn", entry.seq: "done"}
            closed |= self._without_corrections(target.id)
            inbox.remove((target,))
            await self._owned.lease.write(StateChanges(closed=closed))
            if target.is_told:
                self._owned.workplace.desk.take_back(target.message)
        elif execution is not None and target.id == execution.first.id and not execution.is_over:
            await self._stop(entry, deletion.message.user, deletion.written_s)
        else:
            await self._tell(entry, replace(taken_back, instance=target.instance))

    async def _on_late(self, entry: InboxEntry, change: PendingMessage) -> None:
        """Tell the model of what has become of a message that is not here any more, if it has it."""
        for agent in self._owned.workplace.router.names(first=change.instance):
            if await self._owned.delivered(agent, {change.message.id}):
                await self._tell(entry, replace(change, instance=agent))
                return
        # Under the id of the message stands what has overtaken it: it never comes any more.
        await self._owned.close(entry, "withdrawn" if entry.id == change.message.id else "done")

    async def _tell(self, entry: InboxEntry, change: PendingMessage) -> None:
        """Tell the model of a change that came too late: now, or with the next run."""
        closed = self._without_corrections(change.message.id)
        data = {**change.written(), "is_late": True}
        await self._owned.lease.write(StateChanges(replaced={entry.seq: data}, closed=closed))
        self._owned.inbox.add(change)
        if self._owned.execution is not None:
            self._owned.execution.add(change)

    def _without_corrections(self, message_id: str) -> dict[int, End]:
        """What it was corrected to before, and nobody has read, does not count any more; returns how that is closed."""
        inbox = self._owned.inbox
        old = [each for each in inbox.waiting if each.is_about_another and each.message.id == message_id]
        inbox.remove(old)
        return {each.seq: "done" for each in old}

    async def _is_latest(self, edit: PendingMessage) -> bool:
        """Whether the message still reads so in Slack; where that cannot be told soon, it does."""
        try:
            async with asyncio.timeout(_LOOK_WITHIN_S):
                found = await self._owned.workplace.desk.wire.history.message(edit.message.channel, edit.message.ts)
        except (SlackCallFailed, TimeoutError):
            return True
        return found is None or found.get("text") == edit.message.text


def _edited_in(came: Iterable[InboxEntry]) -> dict[str, str]:
    """When messages were changed last, or taken back, as far as these entries say."""
    edited: dict[str, str] = {}
    for entry in came:
        with suppress(UnreadableEntry):
            found = entries.read(entry)
            if isinstance(found, PendingMessage):
                edited[found.message.id] = max(edited.get(found.message.id, ""), found.edited_ts)
    return edited
