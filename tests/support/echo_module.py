"""A module of the tests: a model that answers at once with what people have said, and a hook that notes events.

Its option `file` is where the beginnings and ends of its session are noted, one in a line; `last` is how many
characters of what people have said it repeats, the last ones (all of them by default).
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from orchestrator_interactive.kernel import HookResult
from orchestrator_interactive.testing import MockProvider

if TYPE_CHECKING:
    from orchestrator_interactive.kernel import ModuleCoordinator
    from orchestrator_interactive.kernel.contracts.messages import ChatRequest, ChatResponse

ECHO_MODULE = Path(__file__)


class EchoProvider(MockProvider):
    """What it remembers does not grow."""

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
