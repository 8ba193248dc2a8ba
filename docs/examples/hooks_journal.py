"""`hooks-journal`: counts the events of a session, those of other modules included."""

from collections import Counter
from typing import Any

from orchestrator_interactive.kernel import HookResult, ModuleCoordinator


async def mount(coordinator: ModuleCoordinator, config: dict[str, Any]) -> None:
    """Do nothing: the events of modules that are mounted later are not known yet."""


async def on_session_ready(coordinator: ModuleCoordinator) -> None:
    counts: Counter[str] = Counter()
    coordinator.register_capability("journal.counts", counts)

    async def count(event: str, data: dict[str, Any]) -> HookResult:
        counts[event] += 1
        return HookResult()

    told = await coordinator.collect_contributions("observability.events")
    for event in {event for events in told for event in events}:
        # Early: after a deny nobody else is asked.
        coordinator.hooks.register(event, count, priority=10, name="hooks-journal")
    coordinator.register_cleanup(lambda: coordinator.hooks.unregister("hooks-journal"))
