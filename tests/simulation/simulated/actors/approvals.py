"""Who is asked, and what people are shown."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from orchestrator_interactive.kernel.contracts.errors import ApprovalTimeoutError
from simulated.scenario import InjectedFault

if TYPE_CHECKING:
    from simulated.scenario import Scenario


class Approvals:
    """Somebody who allows, denies, takes their time, never answers, or cannot be asked."""

    def __init__(self, scene: Scenario) -> None:
        self._scene = scene

    async def request_approval(self, prompt: str, options: list[str], timeout: float, default: str) -> str:  # noqa: ASYNC109
        scene = self._scene
        scene.count("approval asked for")
        with scene.at("waiting for an approval"):
            scene.tell("people", f"are asked: {prompt}")
            if scene.chance.random() < 0.7:
                await asyncio.sleep(scene.some_s(0.2, 2, 30))
        answer = scene.chance.choice([*options, "Allow", "Deny", "Maybe", "late", "broken"])
        scene.tell("people", f"answer: {answer}")
        if answer == "late":
            raise ApprovalTimeoutError("Nobody answered.")
        if answer == "broken":
            raise InjectedFault("the approval system broke")
        return answer

    def show_message(self, message: str, level: str, source: str = "hook") -> Any:
        self._scene.tell("people", f"read ({level}): {message}")
        if self._scene.happens("broken hooks", 0.2):
            raise InjectedFault("the display broke")
