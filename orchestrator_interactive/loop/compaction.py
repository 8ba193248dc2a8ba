"""What a run hears of a context that is made smaller under it."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

from orchestrator_interactive.kernel.contracts import events
from orchestrator_interactive.kernel.hooks import CONTINUE
from orchestrator_interactive.loop.usage import read_back

if TYPE_CHECKING:
    from collections.abc import Iterator

    from orchestrator_interactive.kernel.contracts.models import HookResult
    from orchestrator_interactive.loop.run import Run

# Of the priorities of hooks.
_FIRST = -1000


@contextmanager
def heard_compaction(run: Run, name: str) -> Iterator[None]:
    """Tell people that the context is being made smaller, and count what that uses up; `name` is that of the hooks."""

    async def tell(_event: str, _data: dict[str, Any]) -> HookResult:
        await run.progress("compacting")
        return CONTINUE

    async def count(_event: str, data: dict[str, Any]) -> HookResult:
        run.spent = run.spent.plus(read_back(data.get("usage")))  # of a summary by the model
        return CONTINUE

    with ExitStack() as listening:
        if hasattr(run.hooks, "register"):  # amplifier-core's recorder for tests can only be told
            for event, handler in ((events.CONTEXT_PRE_COMPACT, tell), (events.CONTEXT_POST_COMPACT, count)):
                # First: the others may say no, and end the round.
                listening.callback(run.hooks.register(event, handler, priority=_FIRST, name=name))
        yield
