"""What a model's service refused to answer: the log keeps it, later requests leave it out.

Anthropic's API goes on refusing for as long as the turn that it refused is part of the request ("Handle streaming
refusals" on platform.claude.com).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from orchestrator_interactive.rows import metadata_of, user_row

if TYPE_CHECKING:
    from collections.abc import Sequence

    Row = dict[str, Any]

_DECLINED = "[No answer: the request was refused.]"
_BESIDE_A_PROMPT = {"injections", "notices", "results"}
_LEFT_OUT = user_row("[What was said here is left out: it was refused.]")


def refused_row(row: Row) -> Row:
    """The row of an answer that was broken off by a refusal, as far as it came."""
    content = row["content"] or [{"type": "text", "text": _DECLINED}]
    return {**row, "content": content, "metadata": {**row.get("metadata", {}), "refused": True}}


def is_refused(row: Row) -> bool:
    return metadata_of(row).get("refused") is True


def without_refused(rows: Sequence[Row]) -> list[Row]:
    """The rows without refused answers, and without the task that led to each.

    Nobody says which of its rows was refused: the prompt, what people wrote meanwhile, or what a tool brought.
    """
    kept: list[Row] = []
    for row in rows:
        if is_refused(row):
            kept[_begin_of_task(kept) :] = [_LEFT_OUT]
        else:
            kept.append(row)
    return kept


def _begin_of_task(rows: Sequence[Row]) -> int:
    """Where the last task begins: its prompt, and what an earlier run left unread for it."""
    begin = len(rows)
    while begin > 0 and not _is_prompt(rows[begin - 1]):
        begin -= 1
    begin = max(begin - 1, 0)
    while begin > 0 and _is_of_user(rows[begin - 1]) and not _is_prompt(rows[begin - 1]):
        begin -= 1
    return begin


def _is_prompt(row: Row) -> bool:
    metadata = metadata_of(row)
    return _is_of_user(row) and metadata.get("source") != "hook" and not metadata.keys() & _BESIDE_A_PROMPT


def _is_of_user(row: Row) -> bool:
    return isinstance(row, dict) and row.get("role") == "user"
