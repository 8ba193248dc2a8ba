"""`hooks-approval`: decide by rules whether a tool call is allowed, denied, or needs the approval of people.

The approval itself is the task of the session's approval system: in the service, buttons in the thread.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import structlog

from orchestrator_interactive.config import validate
from orchestrator_interactive.kernel.contracts import events
from orchestrator_interactive.kernel.contracts.models import HookResult
from orchestrator_interactive.kernel.error_boundary import ErrorBoundary
from orchestrator_interactive.kernel.interop import to_local_coordinator
from orchestrator_interactive.kernel.tool_support import ApprovalDetails, current_call
from orchestrator_interactive.modules.hooks_approval.policy import (
    ApprovalOptions,
    CallFacts,
    Decision,
    decide,
    is_one_person,
)
from orchestrator_interactive.modules.hooks_approval.preview import preview, refusal, risk_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from orchestrator_interactive.kernel.coordinator import ModuleCoordinator

__all__ = ["ApprovalOptions", "CallFacts", "Decision", "decide", "mount", "preview"]

log = structlog.get_logger(__name__)

# After the hooks that modify a call: people approve what will run.
_PRIORITY = 900
# Below the time limit of hooks.
_DECIDED_WITHIN_S = 30.0


async def mount(coordinator: ModuleCoordinator, config: dict[str, Any]) -> Callable[[], None]:
    """Register the hook on `tool:pre`. Returns a function that unregisters it.

    It uses these capabilities, if they exist: `approvals.facts`, which returns where and for whom the session works;
    `approvals.always`, which returns the rules that people made by “Always allow”.

    Raises:
        ValueError: an unknown option, or a value out of range.
    """
    coordinator = to_local_coordinator(coordinator)
    options = validate(ApprovalOptions, config, "hooks-approval")
    handler = partial(_on_tool, coordinator, options)
    return coordinator.hooks.register(events.TOOL_PRE, handler, priority=_PRIORITY, name="hooks-approval")


async def _on_tool(
    coordinator: ModuleCoordinator, options: ApprovalOptions, _event: str, data: dict[str, Any]
) -> HookResult:
    """Decide about a call. What cannot be decided is denied: a hook that fails or hangs would let it pass."""
    with ErrorBoundary(log, "approval.undecided", tool=data.get("tool_name")):
        async with asyncio.timeout(_DECIDED_WITHIN_S):
            return await _result(coordinator, options, data)
    return HookResult(action="deny", reason="It could not be decided whether this is allowed. Try it again later.")


async def _result(coordinator: ModuleCoordinator, options: ApprovalOptions, data: dict[str, Any]) -> HookResult:
    name, arguments, call = data["tool_name"], data.get("tool_input") or {}, current_call.get()
    tool = coordinator.get("tools", name)
    always, facts = map(coordinator.get_capability, ("approvals.always", "approvals.facts"))
    where = CallFacts() if facts is None else CallFacts(**facts())
    decision = decide(options, name, arguments, tool, where)
    if always is not None:
        decision = decision.unless_allowed(await always(), name, arguments)
    problem = await refusal(tool, arguments) if decision.level in {"ask", "ask-two"} else ""
    if problem:  # people need not be asked
        decision = replace(decision, level="deny", rule="the tool refuses the arguments")
    if call is not None:
        call.decision = {"level": decision.level, "rule": decision.rule}
    log.info("approval.decided", tool=name, level=decision.level, rule=decision.rule)
    match decision.level:
        case "allow":
            return HookResult()
        case "deny":
            reason = problem or f"{name} is not allowed here ({decision.rule})."
            return HookResult(action="deny", reason=reason)
    render = partial(preview, tool)
    prompt = f"Allow {name}?"
    if call is None and (decision.level == "ask-two" or decision.approvers != ("owner",)):
        why = f"{decision.rule}: it needs people that the loop of this agent cannot ask"
        return HookResult(action="deny", reason=f"{name} is not allowed here ({why}).")
    if decision.level == "ask-two" and is_one_person(decision.approvers, where.person):
        why = f"{decision.rule}: two people must allow it, and only one may"
        return HookResult(action="deny", reason=f"{name} is not allowed here ({why}).")
    if call is None:  # of another orchestrator: the system gets no more than the prompt
        prompt = f"{prompt}\n{await render(arguments)}"
    else:
        always_scopes = options.always if decision.level == "ask" and not decision.is_specific else ()
        needed = 1 if decision.level == "ask" else 2
        call.approval = ApprovalDetails(render, risk_of(tool), decision.rule, decision.approvers, needed, always_scopes)
    return HookResult(
        action="ask_user",
        approval_prompt=prompt,
        approval_options=["Allow", "Deny"],
        approval_timeout=options.deadline_s,
        approval_default=options.on_deadline,
    )
