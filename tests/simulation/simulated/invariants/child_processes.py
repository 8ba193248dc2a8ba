"""No process that a tool has started outlives the run, or, where the tool is deaf, the tool."""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    from simulated.scenario import Scenario


class Children:
    """The processes that tools have started: each number with the task of its tool."""

    def __init__(self, scene: Scenario) -> None:
        self._scene = scene
        self._count = 0
        self._alive: dict[int, asyncio.Task[Any] | None] = {}

    @contextmanager
    def child(self) -> Iterator[int]:
        """A process that its tool kills, whichever way the tool ends."""
        self._count += 1
        number = self._count
        self._alive[number] = asyncio.current_task()
        self._scene.count("child process")
        self._scene.tell("child", f"process {number} starts")
        try:
            yield number
        finally:
            self._alive.pop(number, None)
            self._scene.tell("child", f"process {number} is gone")

    def returned(self) -> None:
        """The run is over."""
        for number, task in self._alive.items():
            if task not in self._scene.deaf:
                self._scene.blame(f"The process {number} of a tool has outlived the run.")

    def forget(self) -> None:
        """They died with the agent's process."""
        self._alive.clear()

    def all_over(self) -> None:
        for number in self._alive:
            self._scene.blame(f"The process {number} is left at the very end.")
