"""Invariants of notes."""

from __future__ import annotations

from collections.abc import Iterator

from orchestrator_interactive.transcript.rows import delivered_ids_in
from simulated.service.notes import ReportedNote

from .evidence import Evidence, Row


def shown(case: Evidence) -> Iterator[str]:
    """A stored note is in the thread once."""
    for note in case.notes:
        count = sum(post.text.endswith(note.text) for post in case.notices)
        if count > 1 or (note.is_stored and not count):
            yield f"The note {note.id} is in the thread {count} times."


def read(case: Evidence, within_s: float) -> Iterator[str]:
    """The next run of its agent reads a note before its prompt; no other run reads it."""
    for note in case.notes:
        times = case.times_delivered(note.entry_id)
        if note.is_stored and not times and note.entry_id not in case.waiting:
            yield f"The note {note.id} is lost."
        if times > case.delivered.get(note.instance, []).count(note.entry_id):
            yield f"The note {note.id} was read by another agent."
        yield from _read_late(case, note, within_s)
        rows = case.rows.get(note.instance, [])
        for number, row in enumerate(rows):
            if note.entry_id in delivered_ids_in(row) and not _is_before_a_prompt(rows[number + 1 :]):
                yield f"The note {note.id} was read during a run."


def _read_late(case: Evidence, note: ReportedNote, within_s: float) -> Iterator[str]:
    ids = case.delivered.get(note.instance, [])
    stored_s = case.accepted_s.get(note.entry_id)
    for run in sorted(case.observed, key=lambda run: run.began_s):
        is_next = stored_s is not None and run.began_s > stored_s + within_s and run.first in ids
        if is_next and note.entry_id not in ids[: ids.index(run.first)]:
            yield f"The note {note.id} was stored at {stored_s:.3f}, and the run of {run.first} did not read it."


def _is_before_a_prompt(rows: list[Row]) -> bool:
    """Return whether no row of the model or of a tool comes before the next prompt."""
    for row in rows:
        if row["role"] != "user":
            return False
        if "message" in row.get("metadata", {}):
            return True
    return True
