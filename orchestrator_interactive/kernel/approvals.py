"""Approval requests of hooks, decided by a person."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import structlog

from orchestrator_interactive.kernel.contracts import events
from orchestrator_interactive.kernel.contracts.conversion import local_errors
from orchestrator_interactive.kernel.contracts.errors import ApprovalTimeoutError
from orchestrator_interactive.kernel.error_boundary import contained, told

if TYPE_CHECKING:
    from orchestrator_interactive.kernel.contracts.models import HookResult
    from orchestrator_interactive.kernel.contracts.protocols import ApprovalSystem
    from orchestrator_interactive.kernel.hooks import HookRegistry

log = structlog.get_logger(__name__)

# How long to wait for the approval system after its request was cancelled.
_CANCEL_GRACE_S = 0.3

_ALWAYS = "allow always"


class Approvals:
    """Send a session's approval requests to its approval system, and remember answers of "allow always"."""

    def __init__(self, hooks: HookRegistry) -> None:
        self._hooks = hooks
        self._always: set[tuple[str, str]] = set()
        self._abandoned: set[asyncio.Task[Any]] = set()

    async def decide(self, system: ApprovalSystem | None, result: HookResult, event: str, hook_name: str) -> HookResult:
        """Resolve `ask_user` to `continue` or `deny`. Without an approval system the result is `deny`.

        After a timeout or a failure of the system, the hook's `approval_default` applies. "Allow always" applies to
        later identical requests of this hook in this session that offer the option. Emits `approval:required`, then
        `approval:granted` or `approval:denied`.
        """
        payload = {"prompt": result.approval_prompt, "hook_name": hook_name, "event": event}
        await self._hooks.emit(events.APPROVAL_REQUIRED, {**payload, "options": result.approval_options})
        decided = await self._decided(system, result, hook_name)
        granted = decided.action == "continue"
        log.info("approval.granted" if granted else "approval.denied", hook=hook_name, hook_event=event)
        outcome = events.APPROVAL_GRANTED if granted else events.APPROVAL_DENIED
        await self._hooks.emit(outcome, {**payload, "reason": decided.reason})
        return decided

    async def _decided(self, system: ApprovalSystem | None, result: HookResult, hook_name: str) -> HookResult:
        prompt = result.approval_prompt or "Allow this?"
        options = result.approval_options or ["Allow", "Deny"]
        offers_always = bool(result.approval_prompt) and _ALWAYS in (option.lower() for option in options)
        if offers_always and (hook_name, prompt) in self._always:
            return _allowed(result)
        if system is None:
            log.warning("approval.nobody_to_ask", hook=hook_name)
            return _denied(result, f"No approval system is available: {prompt}")
        try:
            answer = await self._answer(system, prompt, options, result)
        except (TimeoutError, ApprovalTimeoutError):
            log.info("approval.timeout", hook=hook_name, default=result.approval_default)
            return _by_default(result, f"Approval timeout - denied by default: {prompt}")
        except Exception as e:  # approval systems may fail
            log.exception("approval.failed", hook=hook_name, default=result.approval_default)
            return _by_default(result, f"Approval failed ({told(e)}) - denied by default: {prompt}")
        chosen = answer.strip().lower() if isinstance(answer, str) else ""
        if not chosen.startswith(("allow", "deny")):
            log.warning("approval.unexpected_answer", hook=hook_name, answer=chosen)
        if chosen == _ALWAYS and offers_always:
            self._always.add((hook_name, prompt))
        return _allowed(result) if chosen.startswith("allow") else _denied(result, f"User denied: {prompt}")

    async def _answer(self, system: ApprovalSystem, prompt: str, options: list[str], result: HookResult) -> Any:
        """Return the system's answer, or raise after the timeout. One that ignores its cancellation is abandoned."""
        asking = asyncio.get_running_loop().create_task(self._asked(system, prompt, options, result))
        self._abandoned.add(asking)
        asking.add_done_callback(self._on_end)
        try:
            await asyncio.wait({asking}, timeout=result.approval_timeout)
            if not asking.done():
                raise TimeoutError
        finally:
            if not asking.done():
                asking.cancel()
                await asyncio.wait({asking}, timeout=_CANCEL_GRACE_S)
        return asking.result()

    async def _asked(self, system: ApprovalSystem, prompt: str, options: list[str], result: HookResult) -> Any:
        with local_errors(), contained():
            timeout_s, default = result.approval_timeout, result.approval_default
            return await system.request_approval(prompt, options, timeout_s, default)

    def _on_end(self, asking: asyncio.Task[Any]) -> None:
        self._abandoned.discard(asking)
        if not asking.cancelled():
            asking.exception()  # mark as retrieved: it was raised to the caller, or came too late


def _by_default(result: HookResult, reason: str) -> HookResult:
    return _allowed(result) if result.approval_default == "allow" else _denied(result, reason)


def _allowed(result: HookResult) -> HookResult:
    return result.model_copy(update={"action": "continue"})


def _denied(result: HookResult, reason: str) -> HookResult:
    return result.model_copy(update={"action": "deny", "reason": reason})
