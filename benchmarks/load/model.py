"""A model that costs nothing: it holds each run open until the driver lets it end."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections import Counter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from benchmarks.load.facts import Facts

_RUN = re.compile(r"\brun-\d+\b")
_NOTE = re.compile(r"\bnote-\d+\b")


class HeldModel:
    """Answers the requests of a run once it may end; a request makes its run `asked`.

    A prompt contains the name of its run, such as run-7, and a steering message its own, such as note-7.
    """

    def __init__(self, facts: Facts) -> None:
        self.holds = True
        self.notes: dict[str, Counter[str]] = {}
        self._facts = facts
        self._may_end: dict[str, asyncio.Event] = {}

    async def on_request(self, asked: dict[str, Any]) -> None:
        text = json.dumps(asked["messages"])
        found = _RUN.search(text)
        run = found[0] if found else ""
        # A run's requests contain all messages so far: the last one shows what has arrived, and how often.
        self.notes[run] = Counter(_NOTE.findall(text))
        self._facts.note("asked", run, time.time())
        if self.holds:
            await self._may_end.setdefault(run, asyncio.Event()).wait()

    def end(self, run: str) -> None:
        self._may_end.setdefault(run, asyncio.Event()).set()
