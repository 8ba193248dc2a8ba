"""What a model's service refused to answer: the log keeps it, later requests leave it out.

Anthropic's API goes on refusing for as long as the turn that it refused is part of the request ("Handle streaming
refusals" on platform.claude.com).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from orchestrator_interactive.rows import user_row

if TYPE_CHECKING:
    from collections.abc import Sequence

    Row = dict[str, Any]

_DECLINED = "[No answer: the request was refused.]"
_LEFT_OUT = user_row("[What was said here is left out: it was refused.]")


def refused_row(row: Row) -> Row:
    """The row of an answer that was broken off by a refusal, as far as it came."""
    content = row["content"] or [{"type": "text", "text": _DECLINED}]
    return {**row, "content": content, "metadata": {**row.get("metadata", {}), "refused": True}}


def is_refused(row: Row) -> bool:
    metadata = row.get("metadata") if isinstance(row, dict) else None
    return isinstance(metadata, dict) and metadata.get("refused") is True


def without_refused(rows: Sequence[Row]) -> list[Row]:
    """The rows without refused answers and what led to each: everything from the last row of the user on."""
    kept: list[Row] = []
    for row in rows:
        if not is_refused(row):
            kept.append(row)
            continue
        begun = max((at for at, each in enumerate(kept) if each.get("role") == "user"), default=len(kept))
        kept[begun:] = [_LEFT_OUT]
    return kept
