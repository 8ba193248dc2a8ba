"""A hook module as others write them for amplifier_core: its configuration says what it wants at which event."""

from collections.abc import Callable
from typing import Any

from amplifier_core import HookResult, ModuleCoordinator

__amplifier_module_type__ = "hook"


class Guard:
    """Answers with one `HookResult`; `changes` are laid over the event's data."""

    def __init__(self, result: dict[str, Any], changes: dict[str, Any]) -> None:
        self.result = result
        self.changes = changes
        self.heard: list[dict[str, Any]] = []

    async def __call__(self, event: str, data: dict[str, Any]) -> HookResult:
        self.heard.append(data)
        if self.changes:
            return HookResult(action="modify", data={**data, **self.changes})
        return HookResult(**self.result)


async def mount(coordinator: ModuleCoordinator, config: dict[str, Any] | None = None) -> Callable[[], None]:
    config = config or {}
    guard = Guard(config.get("result", {}), config.get("changes", {}))
    unregister = coordinator.hooks.register(config.get("event", "tool:pre"), guard, priority=10, name="guard")
    coordinator.register_capability("guard.heard", guard.heard)

    def cleanup() -> None:
        unregister()
        guard.heard.clear()

    return cleanup
