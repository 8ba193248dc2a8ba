"""Who watches the progress of a run."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from simulated.posts import named
from simulated.scenario import InjectedFault

if TYPE_CHECKING:
    from simulated.invariants import Invariants
    from simulated.scenario import Scenario


class Watcher:
    """Is told of progress; may take a while over it, or break."""

    def __init__(self, scene: Scenario, judges: Invariants) -> None:
        self._scene = scene
        self._judges = judges

    async def __call__(self, event: str, data: dict[str, Any]) -> None:
        scene = self._scene
        what = data.get("tool") or data.get("status") or named(data.get("ids"))
        if event == "executing":
            self._judges.run.id = data["run"]
        if event == "thinking":
            scene.turn("retrying", on=False)
        with scene.at("telling progress"):
            self._judges.progressed(event, data)
            scene.tell("progress", f"{event} {what}".rstrip())
            if scene.happens("slow sink", 0.3):
                await asyncio.sleep(scene.some_s(0.01, 0.3))
        if scene.happens("broken sink", 0.1):
            raise InjectedFault("the watcher broke")
