"""How what a run store keeps is written, and what its errors say."""

from __future__ import annotations

import json
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from connector.protocols import InboxEntry, LeaseLost
from orchestrator_interactive.interactions.errors import DamagedLog

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

# For how long nobody else is told of a conversation without an owner to which something was admitted, in seconds.
GRACE_S = 2.0
# For how long a conversation that is handed over may rest before it is due, in seconds.
LONGEST_REST_S = 60.0
# Of entries that were closed, so many of a conversation's newest are known again when they come once more,
KEPT_ENTRIES = 10_000
# and for so long after its last change, in seconds.
KEPT_S = 7 * 24 * 60 * 60

_UNREADABLE = object()

as_json = json.JSONEncoder(separators=(",", ":")).encode


def run_of(text: str | bytes | None) -> Mapping[str, Any] | None:
    """A run as it was written, `None`: none was; one that cannot be read has an `id` and nothing else."""
    if text is None:
        return None
    run = _read(text)
    return run if isinstance(run, dict) else {"id": "unreadable"}


def posts_of(written: Iterable[tuple[str, str | bytes]]) -> dict[str, Any]:
    """The posts of a run, without those that cannot be read."""
    posts = {part: _read(content) for part, content in written}
    return {part: content for part, content in posts.items() if content is not _UNREADABLE}


def data_of(text: str | bytes | None) -> Mapping[str, Any]:
    """The data of an entry; empty where they cannot be read."""
    data = _read(text)
    return data if isinstance(data, dict) else {}


def is_readable(text: str | bytes | None) -> bool:
    return _read(text) is not _UNREADABLE


def _read(text: str | bytes | None) -> Any:
    try:
        return _UNREADABLE if text is None else json.loads(text)
    except (ValueError, TypeError, RecursionError):
        return _UNREADABLE


def raw_entry_of(raw: bytes) -> tuple[int, str, Any, bytes]:
    """Place, id, kind and data of an entry of an inbox in Redis: it has place, kind, length of the id; id and data."""
    seq, kind, length, rest = raw.split(b"\n", 3)
    at = int(length)
    return int(seq), rest[:at].decode(), kind.decode(), rest[at:]


def entry_of(raw: bytes) -> InboxEntry:
    """An entry, as the inbox in Redis has it."""
    seq, name, kind, data = raw_entry_of(raw)
    return InboxEntry(name, kind, data_of(data), seq)


@contextmanager
def readable(conversation_id: str) -> Iterator[None]:
    """Report stored data that cannot be read within this context in a sentence.

    Raises:
        DamagedLog: the data are damaged.
    """
    try:
        yield
    except (TypeError, ValueError, ArithmeticError, LookupError, AttributeError) as e:
        raise DamagedLog(
            f"What is stored of the inbox of conversation {conversation_id} is damaged: restore it from a backup."
        ) from e


def lost(conversation_id: str) -> LeaseLost:
    return LeaseLost(
        f"Another process owns the conversation {conversation_id} by now, this one has given it back, or the store "
        "knows nothing of it any more."
    )
