"""What a model's service refused to answer: the log keeps it, later requests leave it out.

Anthropic's API goes on refusing for as long as the turn that it refused is part of the request ("Handle streaming
refusals" on platform.claude.com).
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
    """The row of an answer that was broken off by a refusal, as far as it came."""
    if not row["content"]:  # a row has to say something
        row = marked({**row, "content": [{"type": "text", "text": _DECLINED}]}, unsaid=True)
    return marked(row, refused=True)


def is_refused(row: Row) -> bool:
    return metadata_of(row).get("refused") is True


def without_refused(rows: Sequence[Row]) -> list[Row]:
    """The rows without refused answers, and without the task that led to each.

    Nobody says which of its rows was refused: the prompt, what people wrote meanwhile, or what a tool brought.
    """
    kept: list[Row] = []
    for row in rows:
        if is_refused(row):
            kept[_begin_of_task(kept) :] = [_IN_ITS_PLACE]
        else:
            kept.append(row)
    return kept


def _begin_of_task(rows: Sequence[Row]) -> int:
    """Where the last task begins: its prompt, and what an earlier run left unread for it.

    A view may show no prompt of it any more; what the view tells of the tasks before is none of it.
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
