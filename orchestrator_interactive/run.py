"""One execution of the loop: what it works with, and how it talks to the rest."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import structlog

from orchestrator_interactive.kernel.models import HookResult

if TYPE_CHECKING:
    from orchestrator_interactive.kernel.cancellation import CancellationToken
    from orchestrator_interactive.kernel.coordinator import ModuleCoordinator
    from orchestrator_interactive.kernel.hooks import HookRegistry
    from orchestrator_interactive.kernel.interfaces import ContextManager, ProgressCallback, Provider, Tool

log = structlog.get_logger(__name__)


class RunStopped(Exception):  # noqa: N818 - a stop is no error
    """Somebody stopped the run. `text` is what the model had said in the call that was cut."""

    def __init__(self, text: str = "") -> None:
        super().__init__(text)
        self.text = text


class RunDenied(Exception):  # noqa: N818 - named after the hooks' action
    """A hook forbade it; the message says why."""


@dataclass(frozen=True, slots=True)
class Run:
    """The surroundings of one execution."""

    context: ContextManager
    provider_name: str
    provider: Provider
    tools: dict[str, Tool]
    hooks: HookRegistry
    coordinator: ModuleCoordinator | None
    stop: CancellationToken
    on_progress: ProgressCallback | None

    def check_stop(self) -> None:
        if self.stop.is_cancelled:
            raise RunStopped

    async def progress(self, event: str, **data: Any) -> None:
        """Tell whoever watches; a watcher that fails does not disturb the run."""
        if self.on_progress is None:
            return
        try:
            await self.on_progress(event, data)
        except Exception:  # an event sink may not break the run
            log.exception("progress.failed", progress_event=event)

    async def consult(self, event: str, data: dict[str, Any]) -> HookResult:
        """Emit an event and route what the hooks want; what the caller must honour comes back.

        Raises:
            RunDenied: the hooks said no, or a person did when they asked.
        """
        result = await self.hooks.emit(event, data)
        if result.action == "continue" and result.user_message is None:
            return result
        result = await self.route(result, event)
        if result.action == "deny":
            raise RunDenied(result.reason or "A hook denied it.")
        return result

    async def route(self, result: HookResult, event: str) -> HookResult:
        """Send a hook's wish where it belongs. Without a coordinator nobody can be asked; injections go straight in."""
        if self.coordinator is not None:
            return await self.coordinator.process_hook_result(result, event)
        if result.action == "inject_context" and not result.ephemeral:
            row = {"role": result.context_injection_role, "content": result.context_injection}
            await self.context.add_message(row)
        if result.action == "ask_user":
            return HookResult(action="deny", reason="Nobody can be asked here.")
        return result
