"""Logs that do not keep what they are given."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from simulated.actors import Log

    Row = dict[str, Any]


class _LogLike:
    def __init__(self, log: Log) -> None:
        self._log = log
        self._rows = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)


class LogThatInterrupts(_LogLike):
    """Puts a row between a call and its result."""

    async def add_message(self, row: Row) -> None:
        await self._log.add_message(row)
        if row.get("tool_calls"):
            await self._log.add_message({"role": "user", "content": "Meanwhile."})


class LogThatLosesResults(_LogLike):
    async def add_message(self, row: Row) -> None:
        if row["role"] != "tool":
            await self._log.add_message(row)


class LogThatLosesLateRows(_LogLike):
    async def add_message(self, row: Row) -> None:
        if not _is_late(row):
            await self._log.add_message(row)


class LogThatDoublesLateRows(_LogLike):
    async def add_message(self, row: Row) -> None:
        for _ in range(2 if _is_late(row) else 1):
            await self._log.add_message(row)


class LogThatMixesResultsUp(_LogLike):
    """Gives a call the result of the one before it."""

    _content: Any = "nothing"

    async def add_message(self, row: Row) -> None:
        if row["role"] == "tool":
            row, self._content = {**row, "content": self._content}, row["content"]
        await self._log.add_message(row)


class LogThatRewrites(_LogLike):
    """Keeps the number of rows in the first of them, where every provider's prompt cache would break."""

    async def get_messages_for_request(self, **where: Any) -> list[Row]:
        rows = await self._log.get_messages_for_request(**where)
        return [{**rows[0], "content": f"{rows[0]['content']} ({len(rows)} rows)"}, *rows[1:]] if rows else rows


class LogThatForgetsRefusals(_LogLike):
    """Gives rows back without what was kept beside them."""

    async def get_messages_for_request(self, **where: Any) -> list[Row]:
        rows = await self._log.get_messages_for_request(**where)
        return [{key: value for key, value in row.items() if key != "metadata"} for row in rows]


class LogThatHangs(_LogLike):
    async def add_message(self, row: Row) -> None:
        await self._log.add_message(row)
        self._rows += 1
        if self._rows == 7:
            await asyncio.Event().wait()


def _is_late(row: Row) -> bool:
    return "results" in (row.get("metadata") or {})
