"""Event recorder, and waiting for a condition."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from orchestrator_interactive.kernel.contracts.models import HookResult
from orchestrator_interactive.kernel.hooks import HookRegistry

if TYPE_CHECKING:
    from collections.abc import Callable


class EventRecorder(HookRegistry):
    """Records events in order, as (event, data) tuples in `events`; the data is a shallow copy.

    Usable as a hook registry (`hooks=recorder`): it listens to every event and calls the handlers registered with it.
    Also usable as a handler: `registry.register("tool:pre", recorder)`.
    """

    def __init__(self) -> None:
        super().__init__()
        self.events: list[tuple[str, dict[str, Any]]] = []

    async def __call__(self, event: str, data: dict[str, Any]) -> HookResult:
        return await self.record(event, data)

    async def record(self, event: str, data: dict[str, Any]) -> HookResult:
        """Record one event and return "continue"."""
        self._keep(event, data)
        return HookResult()

    async def emit(self, event: str, data: dict[str, Any] | None = None) -> HookResult:
        """Record the event as emitted, then call the registered handlers."""
        self._keep(event, data)
        return await super().emit(event, data or {})

    async def emit_and_collect(
        self,
        event: str,
        data: dict[str, Any] | None = None,
        timeout: float | None = None,  # noqa: ASYNC109 - the contract's name
    ) -> list[HookResult]:
        self._keep(event, data)
        return await super().emit_and_collect(event, data or {}, timeout)

    def listens(self, event: str) -> bool:  # noqa: ARG002 - every event is recorded
        return True

    def get_events(self, event_type: str | None = None) -> list[tuple[str, dict[str, Any]]]:
        """Return the recorded events, optionally of one name."""
        return [(event, data) for event, data in self.events if event_type is None or event == event_type]

    def clear(self) -> None:
        """Delete the recorded events; handlers stay registered."""
        self.events.clear()

    def _keep(self, event: str, data: dict[str, Any] | None) -> None:
        self.events.append((event, dict(data or {})))


async def wait_for(condition: Callable[[], bool], timeout: float = 1.0) -> bool:  # noqa: ASYNC109 - amplifier_core's name
    """Wait until a condition is true, for at most `timeout` seconds; return whether it became true.

    It is evaluated every 10 ms, at least once, and once more at the end.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + timeout
    while not condition():
        left_s = deadline - loop.time()
        if left_s <= 0:
            return False
        await asyncio.sleep(min(0.01, left_s))
    return True
