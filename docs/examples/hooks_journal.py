"""`hooks-journal`: counts the events of a session, including those that other modules contribute."""

from collections import Counter
from typing import Any

from orchestrator_interactive.kernel import HookResult, ModuleCoordinator
from orchestrator_interactive.kernel.contracts.events import ALL_EVENTS


async def mount(coordinator: ModuleCoordinator, config: dict[str, Any]) -> None:
    """Do nothing: modules that mount later have not contributed their events yet."""


async def on_session_ready(coordinator: ModuleCoordinator) -> None:
    counts: Counter[str] = Counter()
    coordinator.register_capability("journal.counts", counts)

    async def count(event: str, data: dict[str, Any]) -> HookResult:
        counts[event] += 1
        return HookResult()

    contributed = await coordinator.collect_contributions("observability.events")
    for event in {*ALL_EVENTS, *(event for events in contributed for event in events)}:
        # Run early: a deny prevents later handlers from running.
        coordinator.hooks.register(event, count, priority=10, name="hooks-journal")
    coordinator.register_cleanup(lambda: coordinator.hooks.unregister("hooks-journal"))
