"""Apply hook results: to context, approvals and display."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

import structlog

from orchestrator_interactive.kernel.approvals import Approvals
from orchestrator_interactive.kernel.contracts.conversion import to_local
from orchestrator_interactive.kernel.contracts.errors import InjectionTooLargeError
from orchestrator_interactive.kernel.contracts.models import HookResult
from orchestrator_interactive.kernel.error_boundary import contained

if TYPE_CHECKING:
    from orchestrator_interactive.kernel.contracts.models import ContextInjection
    from orchestrator_interactive.kernel.coordinator import ModuleCoordinator

log = structlog.get_logger(__name__)

_CHARS_PER_TOKEN = 4


class HookResultProcessor:
    """Apply the hook results of one session and count its injection budget."""

    def __init__(self, coordinator: ModuleCoordinator) -> None:
        self._coordinator = coordinator
        self._approvals = Approvals(coordinator.hooks)
        self.injected_tokens = 0

    def reset_turn(self) -> None:
        self.injected_tokens = 0

    async def process(self, result: HookResult, event: str, hook_name: str) -> HookResult:
        """Apply a result and return the part that the orchestrator must honour.

        `ask_user` becomes `continue` or `deny`; injections that failed are removed; the rest is unchanged. The
        orchestrator handles ephemeral injections, because it builds the next request. A failure of one part is
        logged, and the other parts are applied.

        Raises:
            InjectionTooLargeError: an injection is larger than `injection_size_limit`; the other parts were applied.
            TypeError: `result` is not a HookResult.
        """
        result = to_local(result)
        if not isinstance(result, HookResult):
            raise TypeError(f"result must be a HookResult, not {type(result).__name__}.")
        fitting, too_large = self._measured(result.injections(), hook_name)
        kept = [each for each in fitting if await self._inject(each, event, _source(each, hook_name))]
        if len(kept) < len(fitting):
            result = _with_only(result, kept)
        if result.user_message:
            await self._show(result, hook_name)
        if result.suppress_output:
            log.debug("hook.output_suppressed", hook=hook_name, hook_event=event)
        if result.action == "ask_user":
            result = await self._approvals.decide(self._coordinator.approval_system, result, event, hook_name)
        if too_large:
            raise InjectionTooLargeError(" ".join(too_large), _with_only(result, kept))
        return result

    def _measured(self, injections: list[ContextInjection], hook_name: str) -> tuple[list[ContextInjection], list[str]]:
        """Return the injections within the size limit, and an error sentence for each larger one."""
        limit = self._coordinator.injection_size_limit
        fitting, too_large = [], []
        for injection in injections:
            size = len(injection.content.encode(errors="replace"))
            if limit is None or size <= limit:
                fitting.append(injection)
                continue
            source = _source(injection, hook_name)
            too_large.append(f"The context injection of {size} bytes by hook '{source}' exceeds {limit} bytes.")
        return fitting, too_large

    async def _inject(self, injection: ContextInjection, event: str, source: str) -> bool:
        """Add an injection to the context. Returns False if that failed; an ephemeral one is only counted."""
        if not injection.ephemeral and not await self._added(injection, event, source):
            return False
        log.info(
            "hook.injected",
            hook=source,
            hook_event=event,
            role=injection.role,
            size_bytes=len(injection.content.encode(errors="replace")),
            ephemeral=injection.ephemeral,
        )
        self.injected_tokens += len(injection.content) // _CHARS_PER_TOKEN
        budget = self._coordinator.injection_budget_per_turn
        if budget is not None and self.injected_tokens > budget:
            log.warning("hook.injection_budget", hook=source, tokens=self.injected_tokens, budget=budget)
        return True

    async def _added(self, injection: ContextInjection, event: str, source: str) -> bool:
        """Return whether the context accepted the injection."""
        context = self._coordinator.get("context")
        if context is None:
            log.error("hook.injection_lost", hook=source, hook_event=event, reason="no context is mounted")
            return False
        provenance = {"source": "hook", "hook_name": source, "event": event}
        row = {"role": injection.role, "content": injection.content, "metadata": provenance}
        try:
            with contained():
                await context.add_message(row)
        except Exception:  # one failing part must not prevent the others
            log.exception("hook.injection_lost", hook=source, hook_event=event)
            return False
        return True

    async def _show(self, result: HookResult, hook_name: str) -> None:
        display, source = self._coordinator.display_system, result.user_message_source or hook_name
        if display is None:
            log.info("hook.user_message", text=result.user_message, severity=result.user_message_level, source=source)
            return
        try:
            with contained():
                shown: Any = display.show_message(result.user_message or "", result.user_message_level, source)
                if inspect.isawaitable(shown):
                    await shown
        except Exception:  # an event sink must not break the run
            log.exception("display.failed", source=source)


def _source(injection: ContextInjection, hook_name: str) -> str:
    return hook_name if injection.hook_name == "unknown" else injection.hook_name


def _with_only(result: HookResult, kept: list[ContextInjection]) -> HookResult:
    text = "\n\n".join(injection.content for injection in kept)
    action = "continue" if result.action == "inject_context" and not kept else result.action
    update = {"action": action, "context_injection": text or None, "context_injections": kept}
    return result.model_copy(update=update)
