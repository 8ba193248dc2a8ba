"""Entries from outside Slack: notes, which the thread sees at once and the next run reads, and an operator's stop."""

from __future__ import annotations

import time
from dataclasses import asdict
from typing import TYPE_CHECKING
from uuid import uuid4

from connector.events import OPERATOR, StopRequest, ThreadAddress
from connector.protocols import InboxEntry
from connector.records import PendingMessage, ThreadNotice, stop_entry

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from connector.events import SlackMessage
    from connector.records import RunRecord

    Admit = Callable[[str, InboxEntry], Awaitable[object]]

# What Slack shows as one message.
MAX_CHARS = 4_000


async def admit_note(admit: Admit, instance: str, conversation_id: str, text: str, note_id: str | None = None) -> None:
    """Store a note: `admit(conversation_id, entry)` adds an entry to the inbox. It is durable on return.

    A second note with this `note_id` to the same instance and conversation is a duplicate and is ignored, so that a
    failed call can be repeated.

    Raises:
        ValueError: the text is blank or too long, or the conversation is no id of the form `team:channel:thread_ts`.
    """
    if not text.strip():
        raise ValueError("A note needs some text.")
    if len(text) > MAX_CHARS:
        raise ValueError(f"A note has at most {MAX_CHARS} characters, and this one has {len(text)}: shorten it.")
    text = text.encode(errors="replace").decode()  # a lone surrogate is no character
    place, key = _message(conversation_id, text), f"{instance}:{note_id or uuid4().hex}"
    note = PendingMessage(place, instance, text, "", is_note=True)
    # The thread first: the agent must not read a note that no user has seen.
    await admit(conversation_id, InboxEntry(f"notice:{key}", "notice", asdict(ThreadNotice(place, f"📝 {text}"))))
    await admit(conversation_id, InboxEntry(f"note:{key}", "note", asdict(note)))


async def admit_stop(admit: Admit, conversation_id: str, run: RunRecord) -> None:
    """Store an operator's request to stop a run: gracefully, or immediately if it was requested before.

    It is durable on return. It has no effect on another run.
    """
    at = f"{max(time.time(), float(run.newest_ts)):.6f}"  # the clock of this machine may be slow
    stop = StopRequest(f"{OPERATOR}:{uuid4().hex}", OPERATOR, at, run=run.id)
    await admit(conversation_id, stop_entry(stop))


def _message(conversation_id: str, text: str) -> SlackMessage:
    """Return a message that gives a note its place and time."""
    try:
        return ThreadAddress.parse(conversation_id).message(f"{time.time():.6f}", text)
    except ValueError as e:
        problem = f"{conversation_id!r} is no conversation; its id has the form team:channel:thread_ts."
        raise ValueError(problem) from e
