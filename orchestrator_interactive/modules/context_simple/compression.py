"""Compress rows in memory."""

from __future__ import annotations

import io
import pickle
from typing import Any, NoReturn

import zstandard

# Rows and their token counts.
SizedRows = tuple[list[dict[str, Any]], list[int]]

_LEVEL = 1


def compress(counted: SizedRows) -> bytes | None:
    """Compress rows; `None` if they contain other types than JSON's."""
    buffer = io.BytesIO()
    try:
        _Pickler(buffer, pickle.HIGHEST_PROTOCOL).dump(counted)
    except (pickle.PicklingError, RecursionError):
        return None
    # Copied to the exact size: the library's buffer has room for incompressible data.
    return bytes(memoryview(zstandard.compress(buffer.getbuffer(), _LEVEL)))


def decompress(data: bytes) -> SizedRows:
    counted: SizedRows = pickle.loads(zstandard.decompress(data))  # noqa: S301 - the data never left this process
    return counted


class _Pickler(pickle.Pickler):
    """Pickles only types that are fast and round-trip exactly: numbers, strings, lists and dictionaries."""

    def reducer_override(self, value: Any) -> NoReturn:
        raise pickle.PicklingError(f"{type(value).__name__} is not a plain value")
