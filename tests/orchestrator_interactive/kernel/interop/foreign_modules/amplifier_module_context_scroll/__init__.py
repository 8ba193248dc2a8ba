"""A context manager for amplifier_core that shows only its last rows."""

from typing import Any

from amplifier_core import ModuleCoordinator

__amplifier_module_type__ = "context"


class ScrollContext:
    def __init__(self, longest: int) -> None:
        self.longest = longest
        self.messages: list[dict[str, Any]] = []
        self.windows: list[int | None] = []

    async def add_message(self, message: dict[str, Any]) -> None:
        self.messages.append(message)

    async def get_messages_for_request(
        self, token_budget: int | None = None, provider: Any | None = None
    ) -> list[dict[str, Any]]:
        self.windows.append(provider.get_info().defaults.get("context_window") if provider else token_budget)
        return self.messages[-self.longest :]

    async def get_messages(self) -> list[dict[str, Any]]:
        return list(self.messages)

    async def set_messages(self, messages: list[dict[str, Any]]) -> None:
        self.messages = list(messages)

    async def clear(self) -> None:
        self.messages = []


async def mount(coordinator: ModuleCoordinator, config: dict[str, Any] | None = None) -> None:
    await coordinator.mount("context", ScrollContext((config or {}).get("longest", 100)))
