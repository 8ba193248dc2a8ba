"""`context-stack`: a persistent conversation; its log is an interaction stack and survives restarts.

`context-simple` selects the rows for the model.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from orchestrator_interactive.config import validate
from orchestrator_interactive.interactions import InteractionStack
from orchestrator_interactive.interactions.stores import open_store
from orchestrator_interactive.kernel.contracts import events
from orchestrator_interactive.kernel.coordinator import announce
from orchestrator_interactive.kernel.interop import to_local_coordinator
from orchestrator_interactive.modules.context_stack.context import StackContext, StackOptions

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from orchestrator_interactive.kernel.coordinator import ModuleCoordinator

# Hook priority.
_FIRST = 10

__all__ = ["StackContext", "StackOptions", "mount"]


async def mount(coordinator: ModuleCoordinator, config: dict[str, Any]) -> Callable[[], Awaitable[None]]:
    """Mount the context.

    It uses the store in the capability `interactions.store`, or opens its own. It registers the capabilities
    `interactions.stack` (the log), `interactions.reward(tool_call_id, reward)`, and `context.compress()` as in
    `context-simple`.

    Raises:
        ValueError: the configuration has an unknown option or a value out of range.
        StoreError: the store cannot be opened.
    """
    coordinator = to_local_coordinator(coordinator)
    options = validate(StackOptions, config, "context-stack")
    shared = coordinator.get_capability("interactions.store")
    store = shared or await open_store(options.store)
    conversation = options.conversation_id or coordinator.session_id
    stack = InteractionStack(store, conversation, options.agent_id, asked_by=options.asked_by)
    context = StackContext(options, partial(announce, coordinator), stack)
    coordinator.register_contributor(
        "observability.events", "context-stack", lambda: [events.CONTEXT_PRE_COMPACT, events.CONTEXT_POST_COMPACT]
    )
    # Before other hooks: they may add rows.
    unregister = coordinator.hooks.register(
        events.EXECUTION_START, context.on_run, priority=_FIRST, name="context-stack"
    )
    coordinator.register_capability("interactions.stack", stack)
    coordinator.register_capability("interactions.reward", context.reward)
    coordinator.register_capability("context.compress", context.compress)
    await coordinator.mount("context", context)

    async def clean_up() -> None:
        unregister()
        if shared is None:
            await store.aclose()

    return clean_up
