"""A hook module for amplifier_core; its configuration has the event and the result."""

from collections.abc import Callable
from typing import Any

from amplifier_core import HookResult, ModuleCoordinator

__amplifier_module_type__ = "hook"


class Guard:
    """Return one `HookResult`, or modify the event's data by `changes`."""

    def __init__(self, result: dict[str, Any], changes: dict[str, Any]) -> None:
        self.result = result
        self.changes = changes
        self.events: list[dict[str, Any]] = []

    async def __call__(self, event: str, data: dict[str, Any]) -> HookResult:
        self.events.append(data)
        if self.changes:
            return HookResult(action="modify", data={**data, **self.changes})
        return HookResult(**self.result)


async def mount(coordinator: ModuleCoordinator, config: dict[str, Any] | None = None) -> Callable[[], None]:
    config = config or {}
    guard = Guard(config.get("result", {}), config.get("changes", {}))
    unregister = coordinator.hooks.register(config.get("event", "tool:pre"), guard, priority=10, name="guard")
    coordinator.register_capability("guard.events", guard.events)

    def cleanup() -> None:
        unregister()
        guard.events.clear()

    return cleanup
