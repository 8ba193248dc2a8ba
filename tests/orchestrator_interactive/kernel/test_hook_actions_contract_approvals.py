"""Coordinator API: Approval Flow Processing."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from agents import soon

from orchestrator_interactive.kernel import HookResult
from orchestrator_interactive.kernel.contracts.errors import ApprovalTimeoutError

ASK = HookResult(
    action="ask_user",
    approval_prompt="Allow network access to external API?",
    approval_options=["Allow once", "Allow always", "Deny"],
    approval_timeout=60.0,
    approval_default="deny",
)


class Person:
    """An approval system that gives one answer, or raises it."""

    def __init__(self, answer: Any) -> None:
        self._answer = answer
        self.asked: list[tuple[Any, ...]] = []

    async def request_approval(self, prompt: str, options: list[str], timeout: float, default: str) -> Any:  # noqa: ASYNC109 - the contract's name
        self.asked.append((prompt, options, timeout, default))
        if isinstance(self._answer, Exception):
            raise self._answer
        return self._answer


class Silence:
    """An approval system whose person never answers."""

    async def request_approval(self, *_question: Any) -> str:
        await asyncio.Event().wait()
        return "Allow"


class TestApprovalFlowProcessing:
    async def test_the_approval_system_is_asked_what_the_hook_asks(self, make_coordinator) -> None:
        person = Person("Allow once")
        await make_coordinator(approvals=person).process_hook_result(ASK, "tool.http.request", "network-policy")
        assert person.asked == [(ASK.approval_prompt, ["Allow once", "Allow always", "Deny"], 60.0, "deny")]

    async def test_without_options_a_person_may_allow_or_deny(self, make_coordinator) -> None:
        person = Person("Allow")
        result = HookResult(action="ask_user", approval_prompt="May it?")
        assert (await make_coordinator(approvals=person).process_hook_result(result, "e", "h")).action == "continue"
        assert person.asked == [("May it?", ["Allow", "Deny"], 300.0, "deny")]

    @pytest.mark.parametrize("answer", ["Allow", "Allow once", "Allow always"])
    async def test_approved_is_continue(self, make_coordinator, answer: str) -> None:
        processed = await make_coordinator(approvals=Person(answer)).process_hook_result(ASK, "e", "h")
        assert processed.action == "continue"

    async def test_denied_is_deny_with_the_reason(self, make_coordinator) -> None:
        processed = await make_coordinator(approvals=Person("Deny")).process_hook_result(ASK, "e", "h")
        assert processed.action == "deny"
        assert processed.reason.startswith("User denied: Allow network access")

    @pytest.mark.parametrize("answer", ["", "Perhaps", None, 1], ids=["blank", "another", "none", "number"])
    async def test_an_answer_that_is_no_option_denies(self, make_coordinator, answer: Any) -> None:
        processed = await make_coordinator(approvals=Person(answer)).process_hook_result(ASK, "e", "h")
        assert processed.action == "deny"

    async def test_a_hook_may_give_options_of_its_own(self, make_coordinator) -> None:
        ask = ASK.model_copy(update={"approval_options": ["Allow for an hour", "Never"]})
        for answer, action in (("Allow for an hour", "continue"), ("Never", "deny")):
            processed = await make_coordinator(approvals=Person(answer)).process_hook_result(ask, "e", "h")
            assert processed.action == action

    async def test_allow_always_is_remembered_for_that_question(self, make_coordinator) -> None:
        person = Person("Allow always")
        coordinator = make_coordinator(approvals=person)
        other = ASK.model_copy(update={"approval_prompt": "Another question?"})
        for ask in (ASK, ASK, other):
            assert (await coordinator.process_hook_result(ask, "e", "h")).action == "continue"
        assert [question[0] for question in person.asked] == [ASK.approval_prompt, "Another question?"]

    async def test_allow_always_is_remembered_in_that_session_only(self, make_coordinator) -> None:
        person = Person("Allow always")
        for _ in range(2):
            await make_coordinator(approvals=person).process_hook_result(ASK, "e", "h")
        assert len(person.asked) == 2

    async def test_allow_once_is_asked_again(self, make_coordinator) -> None:
        person = Person("Allow once")
        coordinator = make_coordinator(approvals=person)
        for _ in range(2):
            await coordinator.process_hook_result(ASK, "e", "h")
        assert len(person.asked) == 2

    @pytest.mark.parametrize("raised", [ApprovalTimeoutError("nobody"), TimeoutError()], ids=["contract", "builtin"])
    async def test_a_timeout_takes_the_default_and_says_so(self, make_coordinator, raised: Exception) -> None:
        processed = await make_coordinator(approvals=Person(raised)).process_hook_result(ASK, "e", "h")
        assert processed.action == "deny"
        assert processed.reason.startswith("Approval timeout - denied by default")

    @pytest.mark.parametrize(("default", "action"), [("allow", "continue"), ("deny", "deny")])
    async def test_the_time_limit_is_enforced(self, make_coordinator, default: Any, action: str) -> None:
        ask = ASK.model_copy(update={"approval_timeout": 0.01, "approval_default": default})
        processed = await soon(make_coordinator(approvals=Silence()).process_hook_result(ask, "e", "h"))
        assert processed.action == action

    @pytest.mark.parametrize(("default", "action"), [("allow", "continue"), ("deny", "deny")])
    async def test_an_approval_system_that_fails_is_logged_and_takes_the_default(
        self, make_coordinator, logs, default: Any, action: str
    ) -> None:
        ask = ASK.model_copy(update={"approval_default": default})
        coordinator = make_coordinator(approvals=Person(ConnectionError("the chat is away")))
        assert (await coordinator.process_hook_result(ask, "e", "guard")).action == action
        assert logs.tell("error", "approval", "guard")

    async def test_an_approval_system_that_fails_before_it_waits_takes_the_default_too(
        self, make_coordinator, logs
    ) -> None:
        class Offline:
            def request_approval(self, *_question: Any) -> Any:
                raise ConnectionError("the chat is away")

        processed = await make_coordinator(approvals=Offline()).process_hook_result(ASK, "e", "guard")
        assert processed.action == "deny"
        assert logs.tell("error", "approval", "guard")

    async def test_without_an_approval_system_it_is_denied_and_logged(self, make_coordinator, logs) -> None:
        ask = ASK.model_copy(update={"approval_default": "allow"})
        processed = await make_coordinator().process_hook_result(ask, "e", "guard")
        assert processed.action == "deny"
        assert processed.reason
        assert logs.tell("warning", "approval", "guard")

    async def test_a_question_may_come_with_a_message_and_a_wish_for_quiet(self, make_coordinator) -> None:
        shown: list[str] = []

        class Display:
            def show_message(self, message: str, *_more: Any) -> None:
                shown.append(message)

        ask = ASK.model_copy(update={"user_message": "look", "suppress_output": True})
        coordinator = make_coordinator(approvals=Person("Allow once"), display=Display())
        processed = await coordinator.process_hook_result(ask, "e", "h")
        assert (processed.action, processed.suppress_output, shown) == ("continue", True, ["look"])

    async def test_cancelling_is_not_swallowed(self, make_coordinator) -> None:
        asked = asyncio.create_task(make_coordinator(approvals=Silence()).process_hook_result(ASK, "e", "h"))
        await asyncio.sleep(0)
        asked.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asked
