"""Serialization of run store data, and errors for data that cannot be read."""

from __future__ import annotations

import json
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from connector.protocols import InboxEntry, LeaseLost
from orchestrator_interactive.interactions.errors import DamagedLog

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

# Seconds until a conversation without an owner is due after an admission; the admitting process can claim it first.
GRACE_S = 2.0
# Maximum delay in seconds until a conversation that was handed over is due.
MAX_DUE_IN_S = 60.0
# Ids of closed entries are kept for duplicate detection: the newest of each conversation,
KEPT_ENTRIES = 10_000
# for this many seconds after its last change.
KEPT_S = 7 * 24 * 60 * 60

_UNREADABLE = object()

as_json = json.JSONEncoder(separators=(",", ":")).encode


def run_of(text: str | bytes | None) -> Mapping[str, Any] | None:
    """Parse a run record; `None` if there is none. An unreadable one is replaced by a record with only an `id`."""
    if text is None:
        return None
    run = _parse_json(text)
    return run if isinstance(run, dict) else {"id": "unreadable"}


def posts_of(stored: Iterable[tuple[str, str | bytes]]) -> dict[str, Any]:
    """Parse the posts of a run, omitting unreadable ones."""
    posts = {part: _parse_json(content) for part, content in stored}
    return {part: content for part, content in posts.items() if content is not _UNREADABLE}


def data_of(text: str | bytes | None) -> Mapping[str, Any]:
    """Parse the data of an entry; empty if unreadable."""
    data = _parse_json(text)
    return data if isinstance(data, dict) else {}


def is_readable(text: str | bytes | None) -> bool:
    return _parse_json(text) is not _UNREADABLE


def _parse_json(text: str | bytes | None) -> Any:
    try:
        return _UNREADABLE if text is None else json.loads(text)
    except (ValueError, TypeError, RecursionError):
        return _UNREADABLE


def raw_entry_of(raw: bytes) -> tuple[int, str, Any, bytes]:
    """Split a Redis inbox entry into sequence number, id, kind and data.

    Its lines: sequence number, kind, length of the id, id and data.
    """
    seq, kind, length, rest = raw.split(b"\n", 3)
    at = int(length)
    return int(seq), rest[:at].decode(), kind.decode(), rest[at:]


def entry_of(raw: bytes) -> InboxEntry:
    """Parse a Redis inbox entry."""
    seq, name, kind, data = raw_entry_of(raw)
    return InboxEntry(name, kind, data_of(data), seq)


@contextmanager
def readable(conversation_id: str) -> Iterator[None]:
    """Convert errors of parsing stored data to `DamagedLog`."""
    try:
        yield
    except (TypeError, ValueError, ArithmeticError, LookupError, AttributeError) as e:
        raise DamagedLog(
            f"The stored inbox of conversation {conversation_id} is damaged: restore it from a backup."
        ) from e


def lost(conversation_id: str) -> LeaseLost:
    return LeaseLost(
        f"The lease on the conversation {conversation_id} is lost: another process has claimed it, this one has "
        "released it, or it is no longer in the store."
    )
