"""What nobody needs just now, in few bytes."""

from __future__ import annotations

import io
import pickle
from typing import Any, NoReturn

import zstandard

# Rows, and their sizes.
Counted = tuple[list[dict[str, Any]], list[int]]

_LEVEL = 1


def packed(counted: Counted) -> bytes | None:
    """Rows, to be `unpacked` as they were; `None`: they hold more than plain values."""
    written = io.BytesIO()
    try:
        _Packer(written, pickle.HIGHEST_PROTOCOL).dump(counted)
    except (pickle.PicklingError, RecursionError):
        return None
    # Copied: what comes from the library has room for data that do not get smaller.
    return bytes(memoryview(zstandard.compress(written.getbuffer(), _LEVEL)))


def unpacked(data: bytes) -> Counted:
    counted: Counted = pickle.loads(zstandard.decompress(data))  # noqa: S301 - plain values, which never left this process
    return counted


class _Packer(pickle.Pickler):
    """Of pickle, only what is quick, and what comes back the same: numbers, texts, lists and dictionaries."""

    def reducer_override(self, value: Any) -> NoReturn:
        raise pickle.PicklingError(f"{type(value).__name__} is no plain value")
