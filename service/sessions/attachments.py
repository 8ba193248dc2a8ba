"""Stub until merge."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from connector.protocols import MessageFile


async def keep(
    folder: Path,
    file_id: str,
    name: str,
    data: bytes | Path,
    *,
    declared: str = "",
    limits: Mapping[str, int] | None = None,
) -> MessageFile:
    at = folder / "files" / file_id
    at.mkdir(parents=True, exist_ok=True)
    if not (at / name).exists():
        (at / name).write_bytes(data if isinstance(data, bytes) else data.read_bytes())
    return MessageFile(name, f"{name}: stored as files/{file_id}/{name}")


def image_block(folder: Path, attachment: MessageFile) -> dict[str, Any] | None:
    return None


def drop(folder: Path, file_id: str) -> None:
    import shutil

    shutil.rmtree(folder / "files" / file_id, ignore_errors=True)
