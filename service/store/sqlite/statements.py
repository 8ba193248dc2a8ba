"""Operations on the run tables of an SQLite file; each function is one transaction."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from connector.protocols import Claim, InboxEntry
from orchestrator_interactive.storage.sqlite import writing
from service.store.base import Admission
from service.store.serialization import GRACE_S, KEPT_ENTRIES, as_json, data_of, lost, posts_of, run_of
from service.store.sqlite.schema import WORKSPACE, forget_ids

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Mapping

    from connector.protocols import StateChanges

_FIND = "SELECT id, seq, held_seq, token, owner, until, todo FROM run_conversations WHERE conversation = ?"
_BEGIN = "INSERT INTO run_conversations (conversation, changed) VALUES (?, ?) RETURNING id"
_ADD = "INSERT OR IGNORE INTO run_entries VALUES (?, ?, ?, ?, ?, NULL) RETURNING seq"
_GROW = """UPDATE run_conversations SET seq = ?, agent = coalesce(?, agent), todo = ?, due = iif(?, ?, due), changed = ?
    WHERE id = ?"""
_CLAIM = "UPDATE run_conversations SET token = ?, owner = ?, until = ?, due = ? WHERE id = ?"
_RENEW = """UPDATE run_conversations SET until = ?, due = ?
    WHERE conversation = ? AND token = ? AND owner IS NOT NULL RETURNING seq"""
_OWNED = "SELECT id, seq FROM run_conversations WHERE conversation = ? AND token = ? AND owner IS NOT NULL"
_RELEASE = "UPDATE run_conversations SET owner = NULL, until = 0, back = token, due = ? WHERE id = ?"
_WAITING = """SELECT seq, id, kind, data FROM run_entries
    WHERE conversation = ? AND seq > ? AND "end" IS NULL ORDER BY seq"""
_REPLACE = 'UPDATE run_entries SET data = ? WHERE conversation = ? AND seq = ? AND "end" IS NULL'
_CLOSE = 'UPDATE run_entries SET "end" = ?, data = NULL WHERE conversation = ? AND seq = ? AND "end" IS NULL'
_LOOK = """UPDATE run_conversations SET changed = ?, todo = run IS NOT NULL OR EXISTS (
        SELECT 1 FROM run_entries AS entry
        WHERE entry.conversation = run_conversations.id AND "end" IS NULL AND entry.seq > held_seq)
    WHERE id = ?"""
_DUE = f"""SELECT conversation FROM run_conversations WHERE {WORKSPACE} = ? AND todo AND due <= ?
    ORDER BY due, id LIMIT ?"""  # noqa: S608 - no part is user input


def admit(
    file: sqlite3.Connection, now: float, conversation_id: str, entry: InboxEntry, agent: str | None
) -> Admission:
    with writing(file):
        row = file.execute(_FIND, (conversation_id,)).fetchone()
        if row is None:
            row = (*file.execute(_BEGIN, (conversation_id, now)).fetchone(), 0, 0, 0, None, 0.0, 0)
        number, last, held_seq, _, owner, until, todo = row
        valid = owner if until > now else None
        seq = last + 1
        if file.execute(_ADD, (number, seq, entry.id, entry.kind, as_json(entry.data))).fetchone() is None:
            return Admission(is_new=False, owner=valid)
        has_grace = valid is None and not todo
        file.execute(_GROW, (seq, agent, todo or seq > held_seq, has_grace, now + GRACE_S, now, number))
    return Admission(is_new=True, owner=valid)


def claim(file: sqlite3.Connection, now: float, conversation_id: str, owner: str, lease_s: float) -> Claim | None:
    with writing(file):
        row = file.execute(_FIND, (conversation_id,)).fetchone()
        if row is None:
            row = (*file.execute(_BEGIN, (conversation_id, now)).fetchone(), 0, 0, 0, None, 0.0, 0)
        number, _, held_seq, token, current, until, _ = row
        if current not in (None, owner) and until > now:
            return None
        # Time-based, so that tokens keep increasing if the conversation is deleted and recreated.
        token = max(token + 1, int(now * 1_000_000))
        file.execute(_CLAIM, (token, owner, now + lease_s, now + lease_s, number))
        ((run,),) = file.execute("SELECT run FROM run_conversations WHERE id = ?", (number,))
        posts = file.execute("SELECT part, content FROM run_posts WHERE conversation = ?", (number,)).fetchall()
        entries = _waiting(file, number, 0)
    return Claim(token, run_of(run), posts_of(posts), held_seq, entries)


def renew(file: sqlite3.Connection, now: float, conversation_id: str, token: int, lease_s: float) -> int:
    with writing(file):
        row = file.execute(_RENEW, (now + lease_s, now + lease_s, conversation_id, token)).fetchone()
    if row is None:
        raise lost(conversation_id)
    seq: int = row[0]
    return seq


def fetch(file: sqlite3.Connection, conversation_id: str, token: int, after: int) -> tuple[InboxEntry, ...]:
    number, _ = _owned(file, conversation_id, token)
    return _waiting(file, number, after)


def write(file: sqlite3.Connection, now: float, conversation_id: str, token: int, changes: StateChanges) -> None:
    with writing(file):
        number, last = _owned(file, conversation_id, token)
        _write_posts(file, number, changes.posts)
        if changes.run is not None:
            run = as_json(changes.run) if changes.run else None
            file.execute("UPDATE run_conversations SET run = ? WHERE id = ?", (run, number))
        if changes.deletes_posts:
            file.execute("DELETE FROM run_posts WHERE conversation = ?", (number,))
        if changes.held_seq is not None:
            file.execute("UPDATE run_conversations SET held_seq = ? WHERE id = ?", (changes.held_seq, number))
        for seq, data in changes.replaced.items():
            file.execute(_REPLACE, (as_json(data), number, seq))
        for seq, end in changes.closed.items():
            file.execute(_CLOSE, (end, number, seq))
        if changes.closed and last > KEPT_ENTRIES:
            forget_ids(file, "conversation = ? AND seq <= ?", number, last - KEPT_ENTRIES)
        file.execute(_LOOK, (now, number))


def release(  # noqa: PLR0913, PLR0917 - one argument per column
    file: sqlite3.Connection, now: float, conversation_id: str, token: int, seen: int | None, due_in_s: float = 0.0
) -> bool:
    """Release the lease, unless an entry is pending after `seen`; with `None`, unconditionally.

    The conversation is due after `due_in_s`.
    """
    with writing(file):
        if file.execute(
            "SELECT 1 FROM run_conversations WHERE conversation = ? AND back = ?", (conversation_id, token)
        ).fetchone():
            return True
        number, _ = _owned(file, conversation_id, token)
        if seen is not None and file.execute(_WAITING, (number, seen)).fetchone():
            return False
        file.execute(_RELEASE, (now + due_in_s, number))
    return True


def due(file: sqlite3.Connection, now: float, workspace: str, most: int) -> list[str]:
    return [name for (name,) in file.execute(_DUE, (workspace, now, most))]


def forget(file: sqlite3.Connection, now: float, conversation_id: str) -> bool:
    with writing(file):
        row = file.execute(_FIND, (conversation_id,)).fetchone()
        if row is None:
            return False
        number, _, _, _, owner, until, todo = row
        if todo or (owner is not None and until > now):
            return False
        file.execute("DELETE FROM run_conversations WHERE id = ?", (number,))
        file.execute("DELETE FROM run_entries WHERE conversation = ?", (number,))
        file.execute("DELETE FROM run_posts WHERE conversation = ?", (number,))
        file.execute("DELETE FROM run_forgotten WHERE conversation = ?", (number,))
    return True


def _owned(file: sqlite3.Connection, conversation_id: str, token: int) -> tuple[int, int]:
    """Return a conversation's row id and the last sequence number in its inbox.

    Raises:
        LeaseLost: the fencing token is stale.
    """
    row = file.execute(_OWNED, (conversation_id, token)).fetchone()
    if row is None:
        raise lost(conversation_id)
    number, last = row
    return number, last


def _waiting(file: sqlite3.Connection, number: int, after: int) -> tuple[InboxEntry, ...]:
    rows: list[Any] = file.execute(_WAITING, (number, after)).fetchall()
    return tuple(InboxEntry(name, kind, data_of(data), seq) for seq, name, kind, data in rows)


def _write_posts(file: sqlite3.Connection, number: int, posts: Mapping[str, Any]) -> None:
    for part, content in posts.items():
        file.execute("REPLACE INTO run_posts VALUES (?, ?, ?)", (number, part, as_json(content)))
