"""Keeping the events of a test."""

from __future__ import annotations

from typing import Any

from orchestrator_interactive.kernel.contracts.models import HookResult
from orchestrator_interactive.kernel.hooks import HookRegistry


class EventRecorder(HookRegistry):
    """Keeps events in order, as (event, data) tuples in `events`; the data is a shallow copy.

    Takes the place of a hook registry (`hooks=recorder`): it listens to every event, and handlers that are registered
    with it are asked as always. It is also a handler itself: `registry.register("tool:pre", recorder)`.
    """

    def __init__(self) -> None:
        super().__init__()
        self.events: list[tuple[str, dict[str, Any]]] = []

    async def __call__(self, event: str, data: dict[str, Any]) -> HookResult:
        return await self.record(event, data)

    async def record(self, event: str, data: dict[str, Any]) -> HookResult:
        """Keep one event, and let things go on."""
        self._keep(event, data)
        return HookResult()

    async def emit(self, event: str, data: dict[str, Any] | None = None) -> HookResult:
        """Keep the event as it was emitted, then ask the handlers that were registered here."""
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

    def listens(self, event: str) -> bool:  # noqa: ARG002 - whatever it is, it is kept
        return True

    def get_events(self, event_type: str | None = None) -> list[tuple[str, dict[str, Any]]]:
        """The events so far, or those of one name."""
        return [(event, data) for event, data in self.events if event_type is None or event == event_type]

    def clear(self) -> None:
        """Forget the events; handlers stay."""
        self.events.clear()

    def _keep(self, event: str, data: dict[str, Any] | None) -> None:
        self.events.append((event, dict(data or {})))
