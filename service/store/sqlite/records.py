"""Queries of run data in an SQLite file; each function reads one consistent snapshot."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from connector.protocols import InboxEntry
from orchestrator_interactive.storage.sqlite import reading
from service.store.base import ConversationRecord, Count
from service.store.serialization import as_json, data_of, is_readable, readable

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterator

_FIND = """SELECT id, agent, owner, until, seq, held_seq, run, todo FROM run_conversations WHERE conversation = ?"""
_ENTRIES = 'SELECT seq, id, kind, data, "end" FROM run_entries WHERE conversation = ? ORDER BY seq'
_POSTS = "SELECT part, content FROM run_posts WHERE conversation = ?"
_FORGOTTEN = 'SELECT "end", count FROM run_forgotten WHERE conversation = ?'
_ORPHANS = "SELECT id FROM run_entries WHERE conversation NOT IN (SELECT id FROM run_conversations) ORDER BY rowid"
_POSTED = as_json("")


def agent_of(file: sqlite3.Connection, conversation_id: str) -> str | None:
    row = file.execute("SELECT agent FROM run_conversations WHERE conversation = ?", (conversation_id,)).fetchone()
    return row[0] if row else None


def conversations(file: sqlite3.Connection) -> list[str]:
    names = file.execute("SELECT conversation FROM run_conversations ORDER BY id")
    return [name for (name,) in names if isinstance(name, str) and name]


def idle_since(file: sqlite3.Connection, since: float) -> list[str]:
    return [name for (name,) in file.execute("SELECT conversation FROM run_conversations WHERE changed < ?", (since,))]


def orphans(file: sqlite3.Connection) -> list[str]:
    return [name for (name,) in file.execute(_ORPHANS)]


def record_of(file: sqlite3.Connection, now: float, conversation_id: str) -> ConversationRecord | None:
    with reading(file):
        row = file.execute(_FIND, (conversation_id,)).fetchone()
        if row is None:
            return None
        entries = file.execute(_ENTRIES, row[:1]).fetchall()
        posts = file.execute(_POSTS, row[:1]).fetchall()
        forgotten = dict(file.execute(_FORGOTTEN, row[:1]).fetchall())
    with readable(conversation_id):
        return _record(now, row, entries, posts, forgotten)


def _record(
    now: float, row: Any, entries: list[Any], posts: list[Any], forgotten: dict[str, int]
) -> ConversationRecord:
    _, agent, owner, until, seq, held_seq, run, todo = row
    waiting = [each[:4] for each in entries if each[4] is None]
    ends = {name: end for _, name, _, _, end in entries if end is not None}
    found = ConversationRecord(
        agent=agent,
        owner=owner,
        is_owned=owner is not None and until > now,
        has_run=run is not None,
        posts=sum(content != _POSTED for _, content in posts),
        held_seq=held_seq,
        waiting=tuple(InboxEntry(name, kind, data_of(data), place) for place, name, kind, data in waiting),
        ends=ends,
        order=tuple(each[1] for each in entries),
        count=Count(seq, Counter(ends.values()) + Counter(forgotten), sum(forgotten.values())),
        damaged=tuple(_damaged(run, posts, waiting)),
    )
    return replace(found, is_overlooked=found.has_something_to_do and not todo)


def _damaged(run: Any, posts: list[Any], waiting: list[Any]) -> Iterator[str]:
    if run is not None and not is_readable(run):
        yield "the record of its run cannot be read"
    yield from (f"the text {part} of its run cannot be read" for part, content in posts if not is_readable(content))
    yield from (f"entry {name} of its inbox cannot be read" for _, name, _, data in waiting if not is_readable(data))
