"""Serialization of run store data, and substitutes for unreadable data."""

from __future__ import annotations

import json
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from connector.protocols import InboxEntry, LeaseLost
from orchestrator_interactive.interactions.errors import DamagedLog
from service.store.base import ConversationRecord

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    Text = str | bytes | None
    # An entry as it is stored: sequence number, id, kind and data.
    Row = tuple[int, str, Any, Any]

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
_POSTED = as_json("")


def run_of(text: Text) -> Mapping[str, Any] | None:
    """Parse a run record; `None` if there is none. An unreadable one is replaced by a record with only an `id`."""
    if text is None:
        return None
    run = _parse_json(text)
    return run if isinstance(run, dict) else {"id": "unreadable"}


def posts_of(stored: Mapping[str, Text]) -> dict[str, Any]:
    """Parse the posts of a run, omitting unreadable ones."""
    posts = {part: _parse_json(content) for part, content in stored.items()}
    return {part: content for part, content in posts.items() if content is not _UNREADABLE}


def entry_of(row: Row) -> InboxEntry:
    """Parse a stored entry; its data are empty if unreadable."""
    seq, name, kind, text = row
    data = _parse_json(text)
    return InboxEntry(name, kind, data if isinstance(data, dict) else {}, seq)


def record_of(
    run: Text, posts: Mapping[str, Text], waiting: Sequence[Row], damaged: Sequence[str] = (), **fields: Any
) -> ConversationRecord:
    """Build a record from the stored run, posts and entries, and its remaining fields."""
    return ConversationRecord(
        has_run=run is not None,
        posts=sum(content not in (_POSTED, _POSTED.encode()) for content in posts.values()),
        waiting=tuple(map(entry_of, waiting)),
        damaged=(*damaged, *_damaged(run, posts, waiting)),
        **fields,
    )


def _damaged(run: Text, posts: Mapping[str, Text], waiting: Sequence[Row]) -> Iterator[str]:
    if run is not None and _parse_json(run) is _UNREADABLE:
        yield "the record of its run cannot be read"
    for part, content in posts.items():
        if _parse_json(content) is _UNREADABLE:
            yield f"the text {part} of its run cannot be read"
    for _, name, _, data in waiting:
        if _parse_json(data) is _UNREADABLE:
            yield f"entry {name} of its inbox cannot be read"


def _parse_json(text: Text) -> Any:
    try:
        return _UNREADABLE if text is None else json.loads(text)
    except (ValueError, TypeError, RecursionError):
        return _UNREADABLE


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
