"""`context-stack`: a conversation whose log is an interaction stack, so that it comes back after a restart.

`context` keeps rows and log together, `rows` says which states a row is, and `states` has the one that is no step of a
conversation's flow. What the model sees is decided by `context-simple`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from orchestrator_interactive.config import read
from orchestrator_interactive.interactions import InteractionStack
from orchestrator_interactive.interactions.stores import open_store
from orchestrator_interactive.kernel.contracts import events
from orchestrator_interactive.kernel.interop import to_local_coordinator
from orchestrator_interactive.modules.context_stack.context import StackContext, StackOptions

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from orchestrator_interactive.kernel.coordinator import ModuleCoordinator

# Of the priorities of hooks.
_FIRST = 10

__all__ = ["StackContext", "StackOptions", "mount"]


async def mount(coordinator: ModuleCoordinator, config: dict[str, Any]) -> Callable[[], Awaitable[None]]:
    """Mount the context.

    The capability `interactions.store`, where the session has it, is the store that it uses; else it opens its own.
    It brings the capabilities `interactions.stack`, the log, `interactions.reward(tool_call_id, reward)`, and
    `context.rest()`, as `context-simple` does.

    Raises:
        ValueError: the configuration has an unknown option or a value out of range.
        StoreError: the store cannot be opened.
    """
    coordinator = to_local_coordinator(coordinator)
    options = read(StackOptions, config, "context-stack")
    shared = coordinator.get_capability("interactions.store")
    store = shared or await open_store(options.store)
    conversation = options.conversation_id or coordinator.session_id
    stack = InteractionStack(store, conversation, options.agent_id, asked_by=options.asked_by)
    context = StackContext(options, coordinator.hooks, stack)
    coordinator.register_contributor(
        "observability.events", "context-stack", lambda: [events.CONTEXT_PRE_COMPACT, events.CONTEXT_POST_COMPACT]
    )
    # First: the hooks after it may add rows.
    forget = coordinator.hooks.register(events.EXECUTION_START, context.on_run, priority=_FIRST, name="context-stack")
    coordinator.register_capability("interactions.stack", stack)
    coordinator.register_capability("interactions.reward", context.reward)
    coordinator.register_capability("context.rest", context.rest)
    await coordinator.mount("context", context)

    async def clean_up() -> None:
        forget()
        if shared is None:
            await store.aclose()

    return clean_up
