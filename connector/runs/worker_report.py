"""The report of a worker: it is kept, and the agent of the thread reads it as a note with its next message."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from connector.protocols import InboxEntry
from connector.records import PendingMessage

if TYPE_CHECKING:
    from connector.runs.workspace import WorkspaceContext

# Of a report that a model reads; the thread has all of it.
_MOST_CHARS = 16_000


async def report(workspace: WorkspaceContext, order: PendingMessage, status: str, text: str, *, fence: int) -> None:
    """Report the end of a worker's run, once, before the end is stored: a crash in between repeats this.

    `order`: the first message of the run. `status` is as of the `complete` event; `text`: its answer. `fence`: the
    fencing token of the conversation's lease.
    """
    place, now_s = order.message.place, workspace.background.now_s()
    if workspace.workers is None or not place.worker:
        return
    thread, name = place.thread, order.worker_name
    said = text if len(text) <= _MOST_CHARS else f"{text[:_MOST_CHARS]}… (of {len(text)} characters)"
    read = (
        f"{name} has ended: {status}. The thread has its report:\n\n{said}" if said else f"{name} has ended: {status}."
    )
    note = PendingMessage(thread.message(f"{now_s:.6f}", read), order.instance, read, "", is_note=True)
    entry = InboxEntry(f"note:{order.instance}:{place.worker}:{order.id}", "note", asdict(note))
    await workspace.runs.admit(thread.conversation_id, entry)
    await workspace.workers.ended(place.conversation_id, status, text, now_s, fence=fence)
