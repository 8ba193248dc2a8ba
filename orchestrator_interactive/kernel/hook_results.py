"""Where the wishes of a hook go: context, approvals, display."""

from __future__ import annotations

import asyncio
import inspect
from typing import TYPE_CHECKING, Any

import structlog

from orchestrator_interactive.kernel.errors import ApprovalTimeoutError
from orchestrator_interactive.kernel.interop import own, own_error
from orchestrator_interactive.kernel.models import HookResult

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from orchestrator_interactive.kernel.coordinator import ModuleCoordinator
    from orchestrator_interactive.kernel.models import ContextInjection

log = structlog.get_logger(__name__)

_CHARS_PER_TOKEN = 4


class HookResultProcessor:
    """Routes hook results of one session, and keeps its injection budget and its "Allow always" answers."""

    def __init__(self, coordinator: ModuleCoordinator) -> None:
        self._coordinator = coordinator
        self.injected_tokens = 0
        self._always: set[str] = set()

    def reset_turn(self) -> None:
        self.injected_tokens = 0

    async def process(self, result: HookResult, event: str, hook_name: str) -> HookResult:
        """Do what the result asks for and return what is left for the orchestrator to honour.

        `ask_user` comes back as `continue` or `deny`; everything else unchanged. Ephemeral injections are left to the
        orchestrator, which alone knows the next request. What fails is logged, and the rest is done all the same.

        Raises:
            ValueError: an injection is larger than `injection_size_limit`; the rest has been done.
            TypeError: `result` is no HookResult.
        """
        result = own(result)
        if not isinstance(result, HookResult):
            raise TypeError(f"result must be a HookResult, not {type(result).__name__}.")
        too_large = await self._inject_all(result.injections(), event, hook_name)
        if result.user_message:
            await self._show(result, hook_name)
        if result.suppress_output:
            log.debug("hook.output_suppressed", hook=hook_name, hook_event=event)
        if result.action == "ask_user":
            result = await self._ask(result, hook_name)
        if too_large:
            raise ValueError(" ".join(too_large))
        return result

    async def _inject_all(self, injections: list[ContextInjection], event: str, hook_name: str) -> list[str]:
        """Inject what may be; returns a sentence for each one that is too large."""
        too_large: list[str] = []
        for injection in injections:
            source = injection.hook_name if injection.hook_name != "unknown" else hook_name
            size, limit = len(injection.content.encode(errors="replace")), self._coordinator.injection_size_limit
            if limit is not None and size > limit:
                too_large.append(f"The context injection of {size} bytes by hook '{source}' exceeds {limit} bytes.")
            else:
                await self._inject(injection, event, source)
        return too_large

    async def _inject(self, injection: ContextInjection, event: str, source: str) -> None:
        self.injected_tokens += len(injection.content) // _CHARS_PER_TOKEN
        budget = self._coordinator.injection_budget_per_turn
        if budget is not None and self.injected_tokens > budget:
            log.warning("hook.injection_budget", hook=source, tokens=self.injected_tokens, budget=budget)
        if injection.ephemeral:
            return
        context = self._coordinator.get("context")
        if context is None:
            log.error("hook.injection_lost", hook=source, hook_event=event, reason="no context is mounted")
            return
        provenance = {"source": "hook", "hook_name": source, "event": event}
        row = {"role": injection.role, "content": injection.content, "metadata": provenance}
        await _or_log("hook.injection_lost", context.add_message(row), hook=source, hook_event=event)

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
            log.warning("approval.nobody_to_ask", hook=hook_name)
            return _denied(result, f"Nobody can be asked here: {prompt}")
        options, timeout_s = result.approval_options or ["Allow", "Deny"], result.approval_timeout
        try:
            async with asyncio.timeout(timeout_s):
                answer = await approvals.request_approval(prompt, options, timeout_s, result.approval_default)
        except Exception as e:  # whoever asks people may fail
            if isinstance(own_error(e), TimeoutError | ApprovalTimeoutError):
                log.info("approval.timeout", hook=hook_name, default=result.approval_default)
                return _by_default(result, f"Approval timeout - denied by default: {prompt}")
            log.exception("approval.failed", hook=hook_name, default=result.approval_default)
            return _by_default(result, f"Approval failed ({e or type(e).__name__}) - denied by default: {prompt}")
        return self._decided(result, prompt, answer)

    def _decided(self, result: HookResult, prompt: str, answer: Any) -> HookResult:
        """An option that begins with "Allow" allows; every other one denies, an unexpected one too."""
        chosen = answer.strip().lower() if isinstance(answer, str) else ""
        if not chosen.startswith(("allow", "deny")):
            log.warning("approval.unexpected_answer", answer=answer)
        if chosen == "allow always":
            self._always.add(prompt)
        return _allowed(result) if chosen.startswith("allow") else _denied(result, f"User denied: {prompt}")


async def _or_log(failure: str, wish: Awaitable[object], **where: str) -> None:
    try:
        await wish
    except Exception:  # one part of a hook's result may not keep the others from being done
        log.exception(failure, **where)


def _by_default(result: HookResult, reason: str) -> HookResult:
    return _allowed(result) if result.approval_default == "allow" else _denied(result, reason)


def _allowed(result: HookResult) -> HookResult:
    return result.model_copy(update={"action": "continue"})


def _denied(result: HookResult, reason: str) -> HookResult:
    return result.model_copy(update={"action": "deny", "reason": reason})
