"""The agent: kernel, `loop-interactive` orchestrator, and bundled modules.

It does not depend on Slack, on the service process, or on any store except its own log.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import structlog

from orchestrator_interactive.kernel.interop import to_local_coordinator
from orchestrator_interactive.loop.injection_queue import (
    Injection,
    InjectionError,
    InjectionQueueFull,
    Receipt,
    RunFinished,
    Talk,
)
from orchestrator_interactive.loop.loop import INJECTION_APPLIED
from orchestrator_interactive.loop.model_call import PROVIDER_FALLBACK
from orchestrator_interactive.loop.orchestrator import NAME, InteractiveOrchestrator
from orchestrator_interactive.transcript.framing import Author

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from orchestrator_interactive.kernel.coordinator import ModuleCoordinator

__all__ = [
    "Author",
    "Injection",
    "InjectionError",
    "InjectionQueueFull",
    "InteractiveOrchestrator",
    "Receipt",
    "RunFinished",
    "Talk",
    "mount",
]

# Without a configuration, structlog prints debug lines. A program's own `structlog.configure` replaces this one.
if not structlog.is_configured():
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.INFO))

_METHODS = (
    "inject_message",
    "edit_message",
    "withdraw_message",
    "receipts",
    "notify",
    "stop",
    "suspend",
    "unconfirmed_text",
)
_CAPABILITIES = {f"orchestrator.{method}": method for method in _METHODS}


async def mount(coordinator: ModuleCoordinator, config: dict[str, Any]) -> Callable[[], Awaitable[None]]:
    """Mount `loop-interactive`; its options are those of `LoopOptions`."""
    coordinator = to_local_coordinator(coordinator)
    orchestrator = InteractiveOrchestrator(config)
    await coordinator.mount("orchestrator", orchestrator)
    for name, method in _CAPABILITIES.items():
        coordinator.register_capability(name, getattr(orchestrator, method))
    coordinator.register_contributor("observability.events", NAME, lambda: [INJECTION_APPLIED, PROVIDER_FALLBACK])

    async def clean_up() -> None:
        orchestrator.close()

    return clean_up
