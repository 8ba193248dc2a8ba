"""Files of messages. Slack sends them late or not at all; all processes store them in the same folders."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, ClassVar

import aiohttp

from simulated.simulation import Simulation, rng_for

_HANGS_S = 60.0


class Files:
    """The files that people send. `stored` are those of each conversation, as its id and that of the file."""

    def __init__(self, sim: Simulation):
        self.stored: set[tuple[str, str]] = set()
        self._sim = sim
        self._rng = rng_for(sim.seed, "files")
        self._numbers = itertools.count(1)

    def draw(self) -> tuple[dict[str, Any], ...]:
        """Return the files of a new message, in Slack's form."""
        if "files" not in self._sim.features or self._rng.random() < 0.5:
            return ()
        return tuple(self._new() for _ in range(self._rng.choice([1, 1, 2])))

    def _new(self) -> dict[str, Any]:
        self._sim.count("file sent")
        file_id = f"F{next(self._numbers)}"
        url = f"https://files.slack.com/files-pri/T1-{file_id}/download/a.txt"
        return {
            "id": file_id,
            "name": f"{file_id}.txt",
            "size": 1,
            "mimetype": "text/plain",
            "url_private_download": url,
        }

    @asynccontextmanager
    async def get(self, _url: str, **_options: Any) -> AsyncIterator[_Download]:
        """Download a file."""
        sim = self._sim
        await asyncio.sleep(_HANGS_S if sim.occurs("failing Slack", 0.05) else sim.delay_s(0.02, 0.2, 1))
        if sim.occurs("failing Slack", 0.2):
            sim.count("download failed")
            raise aiohttp.ServerDisconnectedError
        yield _Download()


class _Download:
    """The response to a download, and its content."""

    status = 200
    headers: ClassVar[dict[str, str]] = {}
    content_type = "text/plain"
    content_length = 1

    @property
    def content(self) -> _Download:
        return self

    async def iter_chunked(self, _size: int) -> AsyncIterator[bytes]:
        yield b"x"
