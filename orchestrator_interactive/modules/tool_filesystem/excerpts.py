"""Excerpts of text files for a model."""

from __future__ import annotations

import codecs
from typing import TYPE_CHECKING, BinaryIO, NamedTuple

from orchestrator_interactive.modules.tool_filesystem.workspace import WorkspaceError

if TYPE_CHECKING:
    from collections.abc import Iterator

_LOOKED_AT_FOR_BINARY = 8_192
_SKIPPED_AT_ONCE = 65_536


class _Part(NamedTuple):
    data: bytes
    note: str = ""


def excerpt(file: BinaryIO, path: str, offset: int, limit: int | None, max_bytes: int) -> str:
    """Return as many lines as fit, from number `offset` on; a final note in brackets tells where to continue.

    Raises:
        WorkspaceError: a binary file, or an offset past its end.
    """
    if b"\0" in file.read(_LOOKED_AT_FOR_BINARY):
        raise WorkspaceError(f"'{path}' is a binary file; only text files can be read.")
    file.seek(0)
    skipped = _skip(file, offset - 1)
    if skipped < offset - 1:
        raise WorkspaceError(f"'{path}' has only {skipped} lines. Use an offset of at most {max(skipped, 1)}.")
    part = _take(file, offset, limit, max_bytes)
    text = codecs.getincrementaldecoder("utf-8")("replace").decode(part.data, final=not part.note)
    return text + part.note or "(The file is empty.)"


def _skip(file: BinaryIO, lines: int) -> int:
    skipped = 0
    while skipped < lines and (piece := file.readline(_SKIPPED_AT_ONCE)):
        skipped += piece.endswith(b"\n")
    return skipped


def _take(file: BinaryIO, first: int, limit: int | None, max_bytes: int) -> _Part:
    taken: list[bytes] = []
    room = max_bytes
    for number, line in _numbered(file, first, max_bytes):
        if limit is not None and number >= first + limit:
            return _Part(b"".join(taken), f"[… The file continues. Read on with offset={number}.]")
        if len(line) > room:
            if taken:
                return _Part(
                    b"".join(taken), f"[… Truncated after {max_bytes - room:,} bytes. Read on with offset={number}.]"
                )
            return _Part(
                line[:room],
                f"\n[… Line {number} is truncated after {room:,} bytes. Read on with offset={number + 1}.]",
            )
        taken.append(line)
        room -= len(line)
    return _Part(b"".join(taken))


def _numbered(file: BinaryIO, first: int, max_bytes: int) -> Iterator[tuple[int, bytes]]:
    number = first
    while line := file.readline(max_bytes + 1):
        yield number, line
        number += 1
