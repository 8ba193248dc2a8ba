"""Doors of the orchestrator that do not do what they say, and options that are not heeded."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orchestrator_interactive

if TYPE_CHECKING:
    from collections.abc import Callable

    from orchestrator_interactive.kernel import ModuleCoordinator
    from simulated.world import Mount

    Door = Callable[..., Any]


def with_options(**options: Any) -> Mount:
    """The loop with other options than it was given."""

    async def mount(coordinator: ModuleCoordinator, config: dict[str, Any]) -> None:
        await orchestrator_interactive.mount(coordinator, {**config, **options})

    return mount


def with_door(name: str, change: Callable[[Door, Any], Door]) -> Mount:
    """The loop with another door: `change` gets the door that there is, and the orchestrator."""

    async def mount(coordinator: ModuleCoordinator, config: dict[str, Any]) -> None:
        await orchestrator_interactive.mount(coordinator, config)
        door: Any = coordinator.get_capability(f"orchestrator.{name}")
        coordinator.register_capability(f"orchestrator.{name}", change(door, coordinator.get("orchestrator")))

    return mount


def deaf_to_stops(_stop: Door, orchestrator: Any) -> Door:
    """Say that the run is stopped, and do nothing."""
    return lambda _immediate=False, _run_id=None: orchestrator._running is not None


def stopping_anybody(stop: Door, _orchestrator: Any) -> Door:
    """Stop the run that is on, whichever was meant."""
    return lambda immediate=False, _run_id=None: stop(immediate)


def losing_messages(_inject: Door, _orchestrator: Any) -> Door:
    """Accept a message and throw it away."""
    return lambda content: orchestrator_interactive.Receipt(getattr(content, "id", "plain"))


def forgetting_receipts(_receipts: Door, _orchestrator: Any) -> Door:
    return lambda: ()


def without_edits(_edit: Door, orchestrator: Any) -> Door:
    """Say that the text is changed, and leave it."""
    return lambda message_id, _text: message_id in {each.id for each in orchestrator._queue.waiting()}


def withdrawing_nothing(_withdraw: Door, orchestrator: Any) -> Door:
    """Say that the message is taken back, and deliver it."""
    return lambda message_id: message_id in {each.id for each in orchestrator._queue.waiting()}
