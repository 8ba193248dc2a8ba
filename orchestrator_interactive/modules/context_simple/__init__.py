"""`context-simple`: a conversation in memory, with a stable, smaller view where it outgrows the model's window.

`context` decides when that is. `history` has the rows, and `packing` makes them small while nobody needs them;
`cutting` chooses among them, `shortening` takes away from a row, `views` puts together what is shown, and `summarising`
asks the model, to whom `telling` tells what was left out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from orchestrator_interactive.config import read
from orchestrator_interactive.kernel.contracts import events
from orchestrator_interactive.kernel.interop import to_local_coordinator
from orchestrator_interactive.modules.context_simple.context import ContextOptions, SimpleContext

if TYPE_CHECKING:
    from orchestrator_interactive.kernel.coordinator import ModuleCoordinator

__all__ = ["ContextOptions", "SimpleContext", "mount"]


async def mount(coordinator: ModuleCoordinator, config: dict[str, Any]) -> SimpleContext:
    """Mount the context, and the capability `context.rest`: a function that has it take up little memory until used.

    Raises:
        ValueError: the configuration has an unknown option or a value out of range.
    """
    coordinator = to_local_coordinator(coordinator)
    options = read(ContextOptions, config, "context-simple")
    coordinator.register_contributor(
        "observability.events", "context-simple", lambda: [events.CONTEXT_PRE_COMPACT, events.CONTEXT_POST_COMPACT]
    )
    context = SimpleContext(options, coordinator.hooks)
    coordinator.register_capability("context.rest", context.rest)
    await coordinator.mount("context", context)
    return context
