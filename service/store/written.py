"""How what a run store keeps is written, and what its errors say."""

from __future__ import annotations

import json
from typing import Any

from connector.protocols import Entry, LeaseLost

# For how long nobody else is told of a conversation without an owner to which something was admitted, in seconds.
GRACE_S = 2.0
# Of entries that were closed, so many of a conversation's newest are known again when they come once more,
KEPT_ENTRIES = 10_000
# and for so long after its last change, in seconds.
KEPT_S = 7 * 24 * 60 * 60

as_json = json.JSONEncoder(separators=(",", ":")).encode


def read(text: str | bytes | None) -> Any:
    """What was written; `None`: nothing was."""
    return None if text is None else json.loads(text)


def entry_of(raw: bytes) -> Entry:
    """An entry, as the inbox in Redis has it: place, kind, length of its id; id and data."""
    seq, kind, length, rest = raw.split(b"\n", 3)
    at = int(length)
    known: Any = kind.decode()  # it was one when it was written
    return Entry(rest[:at].decode(), known, read(rest[at:]), int(seq))


def lost(conversation_id: str) -> LeaseLost:
    return LeaseLost(f"Another process owns {conversation_id} by now, or this one has given it back.")
