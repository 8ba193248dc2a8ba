"""Apply hook results: add injections to the context, ask for approvals, show messages."""

from __future__ import annotations

import asyncio
import inspect
from typing import TYPE_CHECKING, Any

import structlog

from orchestrator_interactive.kernel.contracts import events
from orchestrator_interactive.kernel.contracts.conversion import local_errors, to_local
from orchestrator_interactive.kernel.contracts.errors import ApprovalTimeoutError, InjectionTooLargeError
from orchestrator_interactive.kernel.contracts.models import HookResult
from orchestrator_interactive.kernel.error_boundary import ErrorBoundary, convert_exits, error_text
from orchestrator_interactive.kernel.timeout import CANCEL_GRACE_S

if TYPE_CHECKING:
    from orchestrator_interactive.kernel.contracts.models import ContextInjection
    from orchestrator_interactive.kernel.contracts.protocols import ApprovalSystem, Coordinator, Hooks

log = structlog.get_logger(__name__)

_CHARS_PER_TOKEN = 4
_ALWAYS = "allow always"


class HookResultProcessor:
    """Apply the hook results of one session, count its injection budget, and remember answers of "allow always"."""

    def __init__(self, coordinator: Coordinator, hooks: Hooks) -> None:
        self._coordinator = coordinator
        self._hooks = hooks
        self.injected_tokens = 0
        self._always_allowed: set[tuple[str, str]] = set()
        self._abandoned: set[asyncio.Task[Any]] = set()

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
        limit, too_large, kept = self._coordinator.injection_size_limit, [], []
        for injection in result.injections():
            source = hook_name if injection.hook_name == "unknown" else injection.hook_name
            size = len(injection.content.encode(errors="replace"))
            if limit is not None and size > limit:
                too_large.append(f"The context injection of {size} bytes by hook '{source}' exceeds {limit} bytes.")
            elif await self._inject(injection, event, source, size):
                kept.append(injection)
        if len(kept) < len(result.injections()):
            text = "\n\n".join(injection.content for injection in kept)
            action = "continue" if result.action == "inject_context" and not kept else result.action
            update = {"action": action, "context_injection": text or None, "context_injections": kept}
            result = result.model_copy(update=update)
        if result.action == "ask_user":
            result = await self._decide(result, event, hook_name)
        if result.user_message:
            await self._show(result, hook_name)
        if result.suppress_output:
            log.debug("hook.output_suppressed", hook=hook_name, hook_event=event)
        if too_large:
            raise InjectionTooLargeError(" ".join(too_large), result)
        return result

    async def _inject(self, injection: ContextInjection, event: str, source: str, size_bytes: int) -> bool:
        """Add an injection to the context. Returns False if that failed; an ephemeral one is only counted."""
        role, ephemeral = injection.role, injection.ephemeral
        if not ephemeral:
            context = self._coordinator.get("context")
            if context is None:
                log.error("hook.injection_failed", hook=source, hook_event=event, reason="no context is mounted")
                return False
            provenance = {"source": "hook", "hook_name": source, "event": event}
            with ErrorBoundary(log, "hook.injection_failed", hook=source, hook_event=event) as boundary:
                await context.add_message({"role": role, "content": injection.content, "metadata": provenance})
            if boundary.error is not None:
                return False
        log.info("hook.injected", hook=source, hook_event=event, role=role, size_bytes=size_bytes, ephemeral=ephemeral)
        self.injected_tokens += len(injection.content) // _CHARS_PER_TOKEN
        budget = self._coordinator.injection_budget_per_turn
        if budget is not None and self.injected_tokens > budget:
            log.warning("hook.injection_budget", hook=source, tokens=self.injected_tokens, budget=budget)
        return True

    async def _show(self, result: HookResult, hook_name: str) -> None:
        display, source = self._coordinator.display_system, result.user_message_source or hook_name
        if display is None:
            log.info("hook.user_message", text=result.user_message, severity=result.user_message_level, source=source)
            return
        with ErrorBoundary(log, "display.failed", source=source):
            shown: Any = display.show_message(result.user_message or "", result.user_message_level, source)
            if inspect.isawaitable(shown):
                await shown

    async def _decide(self, result: HookResult, event: str, hook_name: str) -> HookResult:
        """Resolve `ask_user` to `continue` or `deny`. Without an approval system the result is `deny`.

        After a timeout or a failure of the system, the hook's `approval_default` applies; a system with
        `keeps_deadline` applies it itself. "Allow always" applies to later identical requests of this hook in this
        session that offer the option. A reason may follow a denial and a colon. Emits `approval:required`, then
        `approval:granted` or `approval:denied`.
        """
        payload = {"prompt": result.approval_prompt, "hook_name": hook_name, "event": event}
        await self._hooks.emit(events.APPROVAL_REQUIRED, {**payload, "options": result.approval_options})
        denial = await self._denial(result, hook_name)
        log.info("approval.denied" if denial else "approval.granted", hook=hook_name, hook_event=event)
        outcome = events.APPROVAL_DENIED if denial else events.APPROVAL_GRANTED
        update = {"action": "deny" if denial else "continue", "reason": denial or result.reason}
        await self._hooks.emit(outcome, {**payload, "reason": update["reason"]})
        return result.model_copy(update=update)

    async def _denial(self, result: HookResult, hook_name: str) -> str | None:
        """Ask the approval system. Return why the request is denied; None if it is allowed."""
        prompt, default = result.approval_prompt or "Allow this?", result.approval_default
        options = result.approval_options or ["Allow", "Deny"]
        offers_always = bool(result.approval_prompt) and _ALWAYS in (option.lower() for option in options)
        if offers_always and (hook_name, prompt) in self._always_allowed:
            return None
        if (system := self._coordinator.approval_system) is None:
            log.warning("approval.no_system", hook=hook_name)
            return f"No approval system is available: {prompt}"
        with ErrorBoundary(log, "approval.failed", hook=hook_name, default=default) as boundary:
            try:
                answer = await self._answer(system, prompt, options, result)
            except (TimeoutError, ApprovalTimeoutError):
                log.info("approval.timeout", hook=hook_name, default=default)
                return None if default == "allow" else f"Approval timeout - denied by default: {prompt}"
        if boundary.error is not None:
            why = f"Approval failed ({error_text(boundary.error)}) - denied by default: {prompt}"
            return None if default == "allow" else why
        given, _, reason = answer.partition(":") if isinstance(answer, str) else ("", "", "")
        chosen = given.strip().lower()
        if not chosen.startswith(("allow", "deny")):
            log.warning("approval.unexpected_answer", hook=hook_name, answer=chosen)
        if chosen == _ALWAYS and offers_always:
            self._always_allowed.add((hook_name, prompt))
        return None if chosen.startswith("allow") else reason.strip() or f"User denied: {prompt}"

    async def _answer(self, system: ApprovalSystem, prompt: str, options: list[str], result: HookResult) -> Any:
        """Return the system's answer, or raise after the timeout. One that ignores its cancellation is abandoned."""

        async def request() -> Any:
            with local_errors(), convert_exits():
                return await system.request_approval(prompt, options, result.approval_timeout, result.approval_default)

        def on_end(task: asyncio.Task[Any]) -> None:
            self._abandoned.discard(task)
            if not task.cancelled():
                task.exception()  # mark as retrieved: it was raised to the caller, or came too late

        request_task = asyncio.create_task(request())
        self._abandoned.add(request_task)
        request_task.add_done_callback(on_end)
        try:
            keeps_deadline = getattr(system, "keeps_deadline", False) is True
            await asyncio.wait({request_task}, timeout=None if keeps_deadline else result.approval_timeout)
            if not request_task.done():
                raise TimeoutError
        finally:
            if not request_task.done():
                request_task.cancel()
                await asyncio.wait({request_task}, timeout=CANCEL_GRACE_S)
        return request_task.result()
