"""Where the wishes of a hook go: context, approvals, display."""

from __future__ import annotations

import asyncio
import inspect
from typing import TYPE_CHECKING, Any

import structlog

from orchestrator_interactive.kernel.errors import ApprovalTimeoutError

if TYPE_CHECKING:
    from orchestrator_interactive.kernel.coordinator import ModuleCoordinator
    from orchestrator_interactive.kernel.models import HookResult

log = structlog.get_logger(__name__)

_CHARS_PER_TOKEN = 4


class HookResultProcessor:
    """Routes hook results of one session, and keeps its injection budget and its "Allow always" answers."""

    def __init__(self, coordinator: ModuleCoordinator) -> None:
        self._coordinator = coordinator
        self._injected_tokens = 0
        self._always: set[str] = set()

    def reset_turn(self) -> None:
        self._injected_tokens = 0

    async def process(self, result: HookResult, event: str, hook_name: str) -> HookResult:
        """Do what the result asks for and return what is left for the orchestrator to honour.

        `ask_user` comes back as `continue` or `deny`; everything else unchanged. Ephemeral injections are left to the
        orchestrator, which alone knows the next request.

        Raises:
            ValueError: an injection is larger than `injection_size_limit`.
        """
        if result.action == "inject_context" and result.context_injection:
            await self._inject(result, event, hook_name)
        if result.user_message:
            await self._show(result, hook_name)
        if result.suppress_output:
            log.debug("hook.output_suppressed", hook=hook_name, hook_event=event)
        if result.action == "ask_user":
            return await self._ask(result, hook_name)
        return result

    async def _inject(self, result: HookResult, event: str, hook_name: str) -> None:
        text = result.context_injection or ""
        size, limit = len(text.encode()), self._coordinator.injection_size_limit
        if limit is not None and size > limit:
            raise ValueError(
                f"Context injection of {size} bytes by hook '{hook_name}' exceeds the limit of {limit} bytes."
            )
        self._injected_tokens += len(text) // _CHARS_PER_TOKEN
        budget = self._coordinator.injection_budget_per_turn
        if budget is not None and self._injected_tokens > budget:
            log.warning("hook.injection_budget", hook=hook_name, tokens=self._injected_tokens, budget=budget)
        context = self._coordinator.get("context")
        if context is None or result.ephemeral:
            return
        provenance = {"source": "hook", "hook_name": hook_name, "event": event}
        await context.add_message({"role": result.context_injection_role, "content": text, "metadata": provenance})

    async def _show(self, result: HookResult, hook_name: str) -> None:
        display, source = self._coordinator.display_system, result.user_message_source or hook_name
        if display is None:
            log.info("hook.user_message", text=result.user_message, severity=result.user_message_level, source=source)
            return
        try:
            shown = display.show_message(result.user_message or "", result.user_message_level, source)
            if inspect.isawaitable(shown):
                await shown
        except Exception:  # an event sink may not break the run
            log.exception("display.failed", source=source)

    async def _ask(self, result: HookResult, hook_name: str) -> HookResult:
        prompt = result.approval_prompt or "Allow this?"
        if prompt in self._always:
            return _allowed(result)
        approvals = self._coordinator.approval_system
        if approvals is None:
            return _denied(result, f"Nobody can be asked here: {prompt}")
        options = result.approval_options or ["Allow", "Deny"]
        try:
            async with asyncio.timeout(result.approval_timeout):
                answer = await approvals.request_approval(
                    prompt, options, result.approval_timeout, result.approval_default
                )
        except (TimeoutError, ApprovalTimeoutError):
            log.info("approval.timeout", hook=hook_name, default=result.approval_default)
            if result.approval_default == "allow":
                return _allowed(result)
            return _denied(result, f"Approval timeout - denied by default: {prompt}")
        if answer == "Allow always":
            self._always.add(prompt)
        return _allowed(result) if answer.lower().startswith("allow") else _denied(result, f"User denied: {prompt}")


def _allowed(result: HookResult) -> HookResult:
    return _decided(result, action="continue")


def _denied(result: HookResult, reason: str) -> HookResult:
    return _decided(result, action="deny", reason=reason)


def _decided(result: HookResult, **update: Any) -> HookResult:
    return result.model_copy(update=update)
