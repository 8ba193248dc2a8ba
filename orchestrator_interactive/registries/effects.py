"""Effects: functions, registered by name, that run after a tool call has succeeded."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

import structlog

from orchestrator_interactive.kernel.contracts.messages import TextBlock
from orchestrator_interactive.kernel.contracts.models import ToolResult
from orchestrator_interactive.kernel.error_boundary import ErrorBoundary, error_text
from orchestrator_interactive.registries.errors import AlreadyRegistered, not_registered
from orchestrator_interactive.registries.tool_context import ToolContext

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

log = structlog.get_logger(__name__)

# Takes a result and the call's context; `None`: outside a session.
Effect = Callable[[ToolResult, ToolContext | None], Awaitable[None] | None]

_EFFECTS: dict[str, Effect] = {}


def register_effect(name: str) -> Callable[[Effect], Effect]:
    """Register a function `(result, context)`, async or not, as an effect for the `post_effects` of tools.

    Raises:
        AlreadyRegistered: the name is taken.
    """

    def registered(effect: Effect) -> Effect:
        if name in _EFFECTS:
            raise AlreadyRegistered(f"There is an effect '{name}' already: give this one another name.")
        _EFFECTS[name] = effect
        return effect

    return registered


def check_effects(names: Iterable[str]) -> None:
    """Check that all effects are registered.

    Raises:
        NotRegistered: an effect is unknown; the message lists the registered effects.
    """
    for name in names:
        if name not in _EFFECTS:
            raise not_registered("effect", name, _EFFECTS)


async def run_effects(result: ToolResult, names: Sequence[str], context: ToolContext | None) -> ToolResult:
    """Run the effects of a successful call in order, and return its result.

    An effect that fails undoes nothing and does not prevent the others; a note after the output reports it.
    """
    failures = [failure for name in names if (failure := await _failure_of(name, result, context))]
    if not failures:
        return result
    blocks = result.content or [TextBlock(text=result.get_serialized_output())]
    return result.model_copy(update={"content": [*blocks, *(TextBlock(text=text) for text in failures)]})


async def _failure_of(name: str, result: ToolResult, context: ToolContext | None) -> str:
    with ErrorBoundary(log, "tool.effect_failed", effect=name) as boundary:
        running = _EFFECTS[name](result, context)
        if inspect.isawaitable(running):
            await running
    if boundary.error is None:
        return ""
    return f"[The call succeeded, but its effect '{name}' failed: {error_text(boundary.error)}]"
