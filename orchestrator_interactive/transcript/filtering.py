"""Remove refused turns from requests; the log keeps them.

Anthropic's API refuses every request that contains a refused turn ("Handle streaming refusals" on
platform.claude.com).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from orchestrator_interactive.transcript.framing import REFUSED
from orchestrator_interactive.transcript.rows import LEFT_OUT, is_prompt, marked, metadata_of, user_row

if TYPE_CHECKING:
    from collections.abc import Sequence

    Row = dict[str, Any]

_DECLINED = "[No answer: the request was refused.]"
_IN_ITS_PLACE = user_row(REFUSED)


def refused_row(row: Row) -> Row:
    """Mark the row of a refused answer, with its text up to the refusal."""
    if not row["content"]:  # a row needs content
        row = marked({**row, "content": [{"type": "text", "text": _DECLINED}]}, hidden=True)
    return marked(row, refused=True)


def is_refused(row: Row) -> bool:
    return isinstance(row, dict) and "metadata" in row and metadata_of(row).get("refused") is True


def without_refused(rows: Sequence[Row]) -> list[Row]:
    """Return the rows without refused answers and the tasks that led to them.

    The whole task is removed: the provider does not report whether it refused the prompt, an injection or a tool
    result.
    """
    kept: list[Row] = []
    for row in rows:
        if is_refused(row):
            kept[_begin_of_task(kept) :] = [_IN_ITS_PLACE]
        else:
            kept.append(row)
    return kept


def _begin_of_task(rows: Sequence[Row]) -> int:
    """Return the index of the last task's first row: its prompt, or pending messages of an earlier run before it.

    If compaction removed the prompt, the task begins after the note about the omitted rows.
    """
    begin = len(rows)
    while begin > 0 and not is_prompt(rows[begin - 1]) and not _is_note(rows[begin - 1]):
        begin -= 1
    if begin > 0 and is_prompt(rows[begin - 1]):
        begin -= 1
    while begin > 0 and _leads_a_prompt(rows[begin - 1]):
        begin -= 1
    return begin


def _leads_a_prompt(row: Row) -> bool:
    is_of_user = isinstance(row, dict) and row.get("role") == "user"
    return is_of_user and not is_prompt(row) and not _is_note(row)


def _is_note(row: Row) -> bool:
    return LEFT_OUT in metadata_of(row)
