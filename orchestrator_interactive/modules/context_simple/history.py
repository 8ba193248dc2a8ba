"""The rows of a conversation and predicates on them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from orchestrator_interactive.json_limits import MAX_ROW_NESTING, bounded
from orchestrator_interactive.modules.context_simple.compression import compress, decompress
from orchestrator_interactive.transcript.rows import estimate, metadata_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    Row = dict[str, Any]


class MessageHistory:
    """Append-only rows. `sizes` are their token counts, computed once, and `tokens` is the sum."""

    def __init__(self, rows: Iterable[Row]) -> None:
        self._rows: list[Row] = []
        self._sizes: list[int] = []
        self._compressed: bytes | None = None
        self.tokens = 0
        for row in rows:
            self.append(row)

    @property
    def rows(self) -> list[Row]:
        self._decompress()
        return self._rows

    @property
    def sizes(self) -> list[int]:
        self._decompress()
        return self._sizes

    def append(self, row: Row) -> None:
        row = bounded(row, MAX_ROW_NESTING)
        size = estimate(row)
        self.rows.append(copy_of(row))
        self.sizes.append(size)
        self.tokens += size

    def compress(self) -> None:
        """Compress the rows in memory until their next use."""
        if self._compressed is None:
            self._compressed = compress((self._rows, self._sizes))
            if self._compressed is not None:
                self._rows, self._sizes = [], []

    def _decompress(self) -> None:
        if self._compressed is not None:
            self._rows, self._sizes = decompress(self._compressed)
            self._compressed = None


def is_from_user(row: Row) -> bool:
    """Return whether users wrote it: a prompt, or an injected message."""
    return row["role"] == "user" and not is_of_a_hook(row) and "results" not in metadata_of(row)


def is_result(row: Row) -> bool:
    """Return whether it holds tool results, regular or late."""
    return row["role"] == "tool" or "results" in metadata_of(row)


def is_system(row: Row) -> bool:
    return row["role"] in {"system", "developer"}


def is_of_the_model(row: Row) -> bool:
    return row["role"] == "assistant" and not is_of_a_hook(row)


def is_of_a_hook(row: Row) -> bool:
    return metadata_of(row).get("source") == "hook"


def copy_of(value: Any) -> Any:
    """Deep-copy JSON values, no deeper than a row may be; strings are shared."""
    if isinstance(value, dict):
        return {key: item if isinstance(item, str) else copy_of(item) for key, item in value.items()}
    if isinstance(value, list):
        return [copy_of(item) for item in value]
    return value
