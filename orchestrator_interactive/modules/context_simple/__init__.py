"""`context-simple`: an in-memory conversation with a smaller, stable view of long histories.

`context` decides when to compact, `history` holds the rows, `truncation` selects and shortens rows, `views` builds the
view, and `summary` asks the model for a summary.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from orchestrator_interactive.config import validate
from orchestrator_interactive.kernel.contracts import events
from orchestrator_interactive.kernel.coordinator import announce
from orchestrator_interactive.kernel.interop import to_local_coordinator
from orchestrator_interactive.modules.context_simple.context import ContextOptions, SimpleContext

if TYPE_CHECKING:
    from orchestrator_interactive.kernel.coordinator import ModuleCoordinator

__all__ = ["ContextOptions", "SimpleContext", "mount"]


async def mount(coordinator: ModuleCoordinator, config: dict[str, Any]) -> SimpleContext:
    """Mount the context and the capability `context.compress`, which compresses its memory until the next use.

    Raises:
        ValueError: the configuration has an unknown option or a value out of range.
    """
    coordinator = to_local_coordinator(coordinator)
    options = validate(ContextOptions, config, "context-simple")
    coordinator.register_contributor(
        "observability.events", "context-simple", lambda: [events.CONTEXT_PRE_COMPACT, events.CONTEXT_POST_COMPACT]
    )
    context = SimpleContext(options, partial(announce, coordinator))
    coordinator.register_capability("context.compress", context.compress)
    await coordinator.mount("context", context)
    return context
