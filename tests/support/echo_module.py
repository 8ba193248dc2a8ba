"""A test module: a model that answers at once with the messages of users, and a hook that records events.

Option `file`: the file for the starts and ends of its session, one per line. Option `last`: the number of trailing
characters that it repeats (default: all).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from orchestrator_interactive.kernel import HookResult, ModuleCoordinator
from orchestrator_interactive.kernel.contracts.messages import ChatRequest, ChatResponse
from orchestrator_interactive.testing import MockProvider

ECHO_MODULE = Path(__file__)


class EchoProvider(MockProvider):
    """An echo provider that keeps no requests."""

    last = 0

    async def complete(self, request: ChatRequest, **more: Any) -> ChatResponse:
        self.requests.clear()
        said = " | ".join(str(message.content) for message in request.messages if message.role == "user")
        self.default = said[-self.last :]
        return await super().complete(request, **more)


async def mount(coordinator: ModuleCoordinator, config: dict[str, Any]) -> None:
    provider = EchoProvider()
    provider.last = config.get("last", 0)
    await coordinator.mount("providers", provider, name="quick")

    async def note(event: str, _data: dict[str, Any]) -> HookResult:
        _add(Path(config["file"]), event)
        return HookResult()

    if "file" in config:
        for event in ("session:start", "session:resume", "session:end"):
            coordinator.hooks.register(event, note)


def _add(file: Path, line: str) -> None:
    with file.open("a", encoding="utf-8") as lines:
        lines.write(f"{line}\n")
