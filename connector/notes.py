"""Notes: events that the thread sees at once and the agent's next run reads."""

from __future__ import annotations

import re
import time
from dataclasses import asdict
from typing import TYPE_CHECKING
from uuid import uuid4

from connector.events import SlackMessage, checked_ts
from connector.protocols import InboxEntry
from connector.records import PendingMessage, ThreadNotice

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    Admit = Callable[[str, InboxEntry], Awaitable[object]]

_ID = re.compile(r"[A-Za-z0-9]{1,40}")


async def admit_note(admit: Admit, instance: str, conversation_id: str, text: str, note_id: str | None = None) -> None:
    """Store a note: `admit(conversation_id, entry)` adds an entry to the inbox. It is durable on return.

    A `note_id` that the conversation knows is a duplicate and is ignored, so that a failed call can be repeated.

    Raises:
        ValueError: the text is blank, or the conversation is no id of the form `team:channel:thread_ts`.
    """
    if not text.strip():
        raise ValueError("A note needs some text.")
    place, key = _message(conversation_id, text), note_id or uuid4().hex
    note = PendingMessage(place, instance, text, "", is_note=True)
    # The thread first: the agent must not read what nobody has seen.
    await admit(conversation_id, InboxEntry(f"notice:{key}", "notice", asdict(ThreadNotice(place, f"📝 {text}"))))
    await admit(conversation_id, InboxEntry(f"note:{key}", "note", asdict(note)))


def _message(conversation_id: str, text: str) -> SlackMessage:
    """Return a message that gives a note its place and time."""
    match conversation_id.split(":"):
        case [team, channel, thread] if _ID.fullmatch(team) and _ID.fullmatch(channel):
            is_dm = thread == "dm"
            thread_ts = None if is_dm else checked_ts(thread)
            return SlackMessage(team, channel, f"{time.time():.6f}", thread_ts, "", text, (), direct=is_dm)
    raise ValueError(f"{conversation_id!r} is no conversation; its id has the form team:channel:thread_ts.")
