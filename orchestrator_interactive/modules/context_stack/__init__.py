"""`context-stack`: a persistent conversation; its log is an interaction stack and survives restarts.

`context-simple` selects the rows for the model.
"""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Any

from orchestrator_interactive.config import validate
from orchestrator_interactive.interactions import InteractionStack
from orchestrator_interactive.interactions.deadlines import DeadlineWatch
from orchestrator_interactive.interactions.stores import open_store
from orchestrator_interactive.kernel.contracts import events
from orchestrator_interactive.kernel.coordinator import announce
from orchestrator_interactive.kernel.hooks import CONTINUE
from orchestrator_interactive.kernel.interop import to_local_coordinator
from orchestrator_interactive.modules.context_stack.context import StackContext, StackOptions

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from orchestrator_interactive.interactions.states import WaitingState
    from orchestrator_interactive.kernel.contracts.models import HookResult
    from orchestrator_interactive.kernel.coordinator import ModuleCoordinator

# A waiting state has passed its deadline.
WAIT_OVERDUE = "wait:overdue"
# Hook priority.
_FIRST = 10

__all__ = ["StackContext", "StackOptions", "mount"]


async def mount(coordinator: ModuleCoordinator, config: dict[str, Any]) -> Callable[[], Awaitable[None]]:
    """Mount the context.

    It uses the store in the capability `interactions.store`, or opens its own. It registers the capabilities
    `interactions.stack` (the log), `interactions.reward(tool_call_id, reward)`, `context.run_end()`, and
    `context.compress()` as in `context-simple`. It records the end of each run at `execution:end`. For a loop without
    the events of an execution, call `context.begin_run()` and `context.end_run(status)`.

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
        "observability.events",
        "context-stack",
        lambda: [events.CONTEXT_PRE_COMPACT, events.CONTEXT_POST_COMPACT, WAIT_OVERDUE],
    )

    async def report(wait: WaitingState) -> None:
        await announce(coordinator, WAIT_OVERDUE, {"waits_for": wait.kind, **wait.data()})

    watch, registrations = DeadlineWatch(stack, report), ExitStack()

    async def check_deadlines(_event: str, data: dict[str, Any]) -> HookResult:
        await watch.check(is_resumed=data.get("resumed") is True)
        return CONTINUE

    async def begin_run() -> None:
        await context.on_run(events.EXECUTION_START, {})
        await watch.check()

    # Before other hooks: they may add rows, or deny the end.
    handlers = (
        (events.EXECUTION_START, context.on_run),
        (events.EXECUTION_START, check_deadlines),
        (events.EXECUTION_END, context.on_run_end),
    )
    for event, handler in handlers:
        registrations.callback(coordinator.hooks.register(event, handler, priority=_FIRST, name="context-stack"))
    coordinator.register_capability("interactions.stack", stack)
    coordinator.register_capability("interactions.reward", context.reward)
    coordinator.register_capability("context.compress", context.compress)
    coordinator.register_capability("context.run_end", context.run_end)
    coordinator.register_capability("context.begin_run", begin_run)
    coordinator.register_capability("context.end_run", context.end_run)
    await coordinator.mount("context", context)

    async def clean_up() -> None:
        watch.close()
        registrations.close()
        if shared is None:
            await store.aclose()

    return clean_up
