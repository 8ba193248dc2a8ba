"""What follows a tool's success: effects, by name."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

import structlog

from orchestrator_interactive.kernel.contracts.messages import TextBlock
from orchestrator_interactive.kernel.contracts.models import ToolResult
from orchestrator_interactive.kernel.error_boundary import contained, told
from orchestrator_interactive.registries.errors import AlreadyRegistered, unknown
from orchestrator_interactive.registries.tool_context import ToolContext

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

log = structlog.get_logger(__name__)

# A result, and where the call belongs; `None`: to no session.
Effect = Callable[[ToolResult, ToolContext | None], Awaitable[None] | None]

_EFFECTS: dict[str, Effect] = {}


def register_effect(name: str) -> Callable[[Effect], Effect]:
    """Make a function `(result, context)`, async or not, an effect that tools name in `post_effects`.

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
    """Whether there are such effects.

    Raises:
        NotRegistered: one of them is unknown; the message names those that there are.
    """
    for name in names:
        if name not in _EFFECTS:
            raise unknown("effect", name, _EFFECTS)


async def followed_up(result: ToolResult, names: Sequence[str], context: ToolContext | None) -> ToolResult:
    """The result of a success, once its effects have run, in order.

    One that fails undoes nothing, and keeps none of the others from running; the model reads of it behind the output.
    """
    failures = [failure for name in names if (failure := await _failure_of(name, result, context))]
    if not failures:
        return result
    blocks = result.content or [TextBlock(text=result.get_serialized_output())]
    return result.model_copy(update={"content": [*blocks, *(TextBlock(text=text) for text in failures)]})


async def _failure_of(name: str, result: ToolResult, context: ToolContext | None) -> str:
    try:
        with contained():
            running = _EFFECTS[name](result, context)
            if inspect.isawaitable(running):
                await running
    except Exception as e:  # what the tool did is done, and its result stands
        log.exception("tool.effect_failed", effect=name)
        return f"[It succeeded; what was to follow, '{name}', failed: {told(e)}]"
    return ""
