"""Report context compaction during a run, and count its usage."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

from orchestrator_interactive.kernel.contracts import events
from orchestrator_interactive.kernel.hooks import CONTINUE
from orchestrator_interactive.loop.usage import usage_from_dict

if TYPE_CHECKING:
    from collections.abc import Iterator

    from orchestrator_interactive.kernel.contracts.models import HookResult
    from orchestrator_interactive.loop.run import Run

# Hook priority.
_FIRST = -1000


@contextmanager
def observe_compaction(run: Run, name: str) -> Iterator[None]:
    """Report compaction as progress, and add its usage to that of the run; `name` is the hooks' name."""

    async def report(_event: str, _data: dict[str, Any]) -> HookResult:
        await run.progress("compacting")
        return CONTINUE

    async def count(_event: str, data: dict[str, Any]) -> HookResult:
        run.usage = run.usage.plus(usage_from_dict(data.get("usage")))  # of the model's summary
        return CONTINUE

    with ExitStack() as registrations:
        if hasattr(run.hooks, "register"):  # amplifier-core's recorder for tests can only emit
            for event, handler in ((events.CONTEXT_PRE_COMPACT, report), (events.CONTEXT_POST_COMPACT, count)):
                # First: another handler may deny the event, which ends its dispatch.
                registrations.callback(run.hooks.register(event, handler, priority=_FIRST, name=name))
        yield
