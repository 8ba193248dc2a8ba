"""The model and the tool of the first table, as modules that the service mounts by their path."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from benchmarks.loops import TOOL
from benchmarks.loops.ours import Look, Model

if TYPE_CHECKING:
    from orchestrator_interactive.kernel import ModuleCoordinator
    from orchestrator_interactive.kernel.contracts.messages import ChatRequest, ChatResponse


class CountingModel(Model):
    """Counts the turns of the current run from the messages of the request."""

    def __init__(self, turns: int) -> None:
        super().__init__()
        self._turns = turns

    async def complete(self, request: ChatRequest, **kwargs: Any) -> ChatResponse:
        roles = [message.role for message in request.messages]
        self.turns_left = self._turns - roles[::-1].index("user") // 2
        return await super().complete(request, **kwargs)


async def mount(coordinator: ModuleCoordinator, config: dict[str, Any]) -> None:
    """Mount the model with `turns` turns per run; without `turns`, mount the tool."""
    if "turns" in config:
        await coordinator.mount("providers", CountingModel(config["turns"]), name="model")
    else:
        await coordinator.mount("tools", Look(), name=TOOL)
