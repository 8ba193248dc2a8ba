"""The rows of a conversation, compressed in memory while idle, and predicates on them."""

from __future__ import annotations

import io
import pickle
from typing import TYPE_CHECKING, Any, NoReturn

import zstandard

from orchestrator_interactive.json_limits import MAX_ROW_NESTING, bounded
from orchestrator_interactive.transcript.rows import estimate, is_of_hook, metadata_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    Row = dict[str, Any]

_LEVEL = 1


class MessageHistory:
    """Append-only rows, owned by the history. `sizes` are their token counts, and `tokens` is the sum."""

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
        size = estimate(row)
        self.rows.append(row)
        self.sizes.append(size)
        self.tokens += size

    def compress(self) -> None:
        """Compress the rows in memory until their next use, unless they contain other types than JSON's."""
        if self._compressed is not None:
            return
        buffer = io.BytesIO()
        try:
            _Pickler(buffer, pickle.HIGHEST_PROTOCOL).dump((self._rows, self._sizes))
        except (pickle.PicklingError, RecursionError):
            return
        # Copied to the exact size: the library's buffer has room for incompressible data.
        self._compressed = bytes(memoryview(zstandard.compress(buffer.getbuffer(), _LEVEL)))
        self._rows, self._sizes = [], []

    def _decompress(self) -> None:
        if self._compressed is not None:
            # The data never left this process.
            self._rows, self._sizes = pickle.loads(zstandard.decompress(self._compressed))  # noqa: S301
            self._compressed = None


class _Pickler(pickle.Pickler):
    """Pickles only types that are fast and round-trip exactly: numbers, strings, lists and dictionaries."""

    def reducer_override(self, value: Any) -> NoReturn:
        raise pickle.PicklingError(f"{type(value).__name__} is not a plain value")


def is_from_user(row: Row) -> bool:
    """Return whether users wrote it: a prompt, or an injected message."""
    return row["role"] == "user" and not is_of_hook(row) and "results" not in metadata_of(row)


def is_result(row: Row) -> bool:
    """Return whether it holds tool results, regular or late."""
    return row["role"] == "tool" or "results" in metadata_of(row)


def is_system(row: Row) -> bool:
    return row["role"] in {"system", "developer"}


def is_of_the_model(row: Row) -> bool:
    return row["role"] == "assistant" and not is_of_hook(row)


def own_row(row: Row) -> Row:
    """Return a copy of a row from outside, with a bounded nesting."""
    copy: Row = copy_of(bounded(row, MAX_ROW_NESTING))
    return copy


def checked_row(message: Row) -> Row:
    """Return a row that is to be appended.

    Raises:
        ValueError: it has no role.
    """
    if not message.get("role"):
        raise ValueError("A message needs a 'role': user, assistant, tool or system.")
    return message


def copy_of(value: Any) -> Any:
    """Deep-copy JSON values, no deeper than a row may be; strings are shared."""
    if isinstance(value, dict):
        return {key: item if isinstance(item, str) else copy_of(item) for key, item in value.items()}
    if isinstance(value, list):
        return [copy_of(item) for item in value]
    return value
