"""Coordinator API: "comprehensive audit logging", "audit trails for all hook actions"."""

from __future__ import annotations

import pytest
from agents import Recorder

from orchestrator_interactive.kernel import HookResult
from orchestrator_interactive.testing import MockApprovalSystem, create_test_coordinator


class TestAuditLogging:
    @pytest.mark.parametrize("ephemeral", [False, True])
    async def test_an_injection_leaves_a_line_with_hook_event_and_size(self, logs, ephemeral: bool) -> None:
        wish = HookResult(action="inject_context", context_injection="é", ephemeral=ephemeral)
        await create_test_coordinator().process_hook_result(wish, "tool:post", "linter")
        assert logs.tell("info", "hook.injected", "linter", "tool:post", "'size_bytes': 2")

    @pytest.mark.parametrize(("answer", "decision"), [("Allow", "approval.granted"), ("Deny", "approval.denied")])
    async def test_a_decision_leaves_a_line_with_hook_and_event(self, logs, answer: str, decision: str) -> None:
        coordinator = create_test_coordinator()
        coordinator.approval_system = MockApprovalSystem(answer)
        await coordinator.process_hook_result(HookResult(action="ask_user", approval_prompt="?"), "tool:pre", "guard")
        assert logs.tell("info", decision, "guard", "tool:pre")

    @pytest.mark.parametrize(("answer", "decision"), [("Allow", "approval:granted"), ("Deny", "approval:denied")])
    async def test_a_question_and_its_decision_are_events(self, answer: str, decision: str) -> None:
        coordinator = create_test_coordinator()
        coordinator.approval_system = MockApprovalSystem(answer)
        heard = Recorder().listen(coordinator.hooks, "approval:required", "approval:granted", "approval:denied")
        await coordinator.process_hook_result(HookResult(action="ask_user", approval_prompt="?"), "tool:pre", "guard")
        assert heard.names() == ["approval:required", decision]
        assert heard.seen[0][1].items() >= {"prompt": "?", "hook_name": "guard", "event": "tool:pre"}.items()

    async def test_suppressed_output_leaves_a_line(self, logs) -> None:
        await create_test_coordinator().process_hook_result(HookResult(suppress_output=True), "tool:post", "linter")
        assert logs.tell("debug", "hook.output_suppressed", "linter", "tool:post")
