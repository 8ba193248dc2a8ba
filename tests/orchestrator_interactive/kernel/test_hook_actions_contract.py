"""Coordinator API: `process_hook_result`, approvals and the audit log."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from agents import Recorder, soon

from orchestrator_interactive.kernel import HookResult, ModuleCoordinator
from orchestrator_interactive.kernel.contracts.errors import ApprovalTimeoutError
from orchestrator_interactive.modules import context_simple


class Display:
    """A display system; `fails` makes it raise."""

    def __init__(self, *, fails: bool = False) -> None:
        self.shown: list[tuple[str, str, str]] = []
        self._fails = fails

    def show_message(self, message: str, level: str, source: str = "hook") -> None:
        if self._fails:
            raise ConnectionError("the screen is gone")
        self.shown.append((message, level, source))


class AsyncDisplay(Display):
    async def show_message(self, message: str, level: str, source: str = "hook") -> None:
        super().show_message(message, level, source)


class FullContext:
    async def add_message(self, _row: dict[str, Any]) -> None:
        raise OSError("the disk is full")


async def rows(coordinator: ModuleCoordinator) -> list[dict[str, Any]]:
    return await coordinator.get("context").get_messages()


@pytest.fixture
def display() -> Display:
    return Display()


@pytest.fixture
async def coordinator(make_coordinator: Callable[..., ModuleCoordinator], display: Display) -> ModuleCoordinator:
    coordinator = make_coordinator(display=display)
    await context_simple.mount(coordinator, {})
    return coordinator


INJECT = HookResult(action="inject_context", context_injection="3 issues")
EVERYTHING = INJECT.model_copy(
    update={
        "context_injection_role": "system",
        "user_message": "checked",
        "user_message_level": "warning",
        "suppress_output": True,
    }
)


class TestProcessHookResult:
    @pytest.mark.parametrize("wrong", [None, "deny", {"action": "deny"}], ids=["none", "word", "dict"])
    async def test_another_type_is_an_error(self, coordinator: ModuleCoordinator, wrong: Any) -> None:
        with pytest.raises(TypeError, match="result"):
            await coordinator.process_hook_result(wrong, "tool:post")

    async def test_one_result_may_combine_several_actions(self, coordinator, display, logs) -> None:
        processed = await coordinator.process_hook_result(EVERYTHING, "tool.package.install", "scanner")
        assert processed == EVERYTHING
        [row] = await rows(coordinator)
        assert (row["role"], row["content"]) == ("system", "3 issues")
        provenance = {"source": "hook", "hook_name": "scanner", "event": "tool.package.install"}
        assert row["metadata"].items() >= provenance.items()
        assert display.shown == [("checked", "warning", "scanner")]
        assert logs.tell("debug", "hook.output_suppressed", "scanner", "tool.package.install")

    @pytest.mark.parametrize(("context", "said"), [(FullContext(), ""), (None, "context")], ids=["fails", "missing"])
    async def test_a_failing_context_is_logged_and_the_rest_is_done(
        self, make_coordinator, display: Display, logs, context: Any, said: str
    ) -> None:
        coordinator = make_coordinator(display=display)
        if context:
            await coordinator.mount("context", context)
        await coordinator.process_hook_result(EVERYTHING, "tool:post", "h")
        assert logs.tell("error", "tool:post", "'h'", said)
        assert display.shown == [("checked", "warning", "h")]

    @pytest.mark.parametrize("display", [Display(fails=True), AsyncDisplay(fails=True)], ids=["sync", "async"])
    async def test_a_failing_display_is_logged_and_the_rest_is_done(self, coordinator: ModuleCoordinator, logs) -> None:
        assert (await coordinator.process_hook_result(EVERYTHING, "tool:post", "h")).suppress_output
        assert logs.tell("error", "display", "'h'")
        assert len(await rows(coordinator)) == 1


class TestSubsystemRoutingTable:
    @pytest.mark.parametrize("role", ["system", "user", "assistant"])
    async def test_an_injection_goes_to_the_context_with_its_role(self, coordinator, role: Any) -> None:
        await coordinator.process_hook_result(INJECT.model_copy(update={"context_injection_role": role}), "e")
        [row] = await rows(coordinator)
        assert (row["role"], row["content"], row["metadata"]["hook_name"]) == (role, "3 issues", "unknown")

    async def test_an_ephemeral_injection_is_left_to_the_orchestrator(self, coordinator: ModuleCoordinator) -> None:
        processed = await coordinator.process_hook_result(INJECT.model_copy(update={"ephemeral": True}), "e", "h")
        assert await rows(coordinator) == []
        assert processed.context_injection == "3 issues"

    async def test_an_injection_needs_the_action(self, coordinator: ModuleCoordinator) -> None:
        """The examples write `HookResult(context_injection=…)`; by the text the action decides."""
        await coordinator.process_hook_result(HookResult(context_injection="3 issues"), "e", "h")
        assert await rows(coordinator) == []

    @pytest.mark.parametrize("display", [Display(), AsyncDisplay()], ids=["sync", "async"])
    @pytest.mark.parametrize("level", ["info", "warning", "error"])
    @pytest.mark.parametrize("source", [None, "the linter"])
    async def test_a_user_message_goes_to_the_display_with_level_and_source(
        self, coordinator: ModuleCoordinator, display: Display, level: Any, source: str | None
    ) -> None:
        display.shown.clear()
        result = HookResult(user_message="look", user_message_level=level, user_message_source=source)
        await coordinator.process_hook_result(result, "e", "guard")
        assert display.shown == [("look", level, source or "guard")]

    async def test_without_a_display_a_user_message_is_logged(self, make_coordinator, logs) -> None:
        result = HookResult(user_message="look", user_message_level="warning")
        await make_coordinator().process_hook_result(result, "e", "h")
        assert logs.tell("info", "look", "warning", "'h'")

    @pytest.mark.parametrize("action", ["continue", "deny", "modify"])
    async def test_other_actions_are_returned_unchanged(self, coordinator, display, action: Any) -> None:
        result = HookResult(action=action, data={"a": 1}, reason="because")
        assert await coordinator.process_hook_result(result, "e", "h") == result
        assert await rows(coordinator) == []
        assert display.shown == []


class TestContextInjectionWithBudgetEnforcement:
    @pytest.mark.parametrize(("text", "fits"), [("é" * 5, True), ("é" * 6, False), ("x" * 10, True), ("x" * 11, False)])
    async def test_the_size_limit_counts_bytes(self, make_coordinator, text: str, *, fits: bool) -> None:
        coordinator = make_coordinator(injection_size_limit=10)
        await context_simple.mount(coordinator, {})
        result = HookResult(action="inject_context", context_injection=text)
        if fits:
            await coordinator.process_hook_result(result, "e", "h")
        else:
            with pytest.raises(ValueError, match=r"injection.*(12|11) bytes.*10"):
                await coordinator.process_hook_result(result, "e", "h")
        assert len(await rows(coordinator)) == fits

    @pytest.mark.parametrize("ephemeral", [False, True])
    async def test_an_injection_that_is_too_large_lets_the_rest_be_done_first(
        self, make_coordinator, display: Display, *, ephemeral: bool
    ) -> None:
        coordinator = make_coordinator(injection_size_limit=5, display=display)
        with pytest.raises(ValueError, match="8 bytes"):
            await coordinator.process_hook_result(EVERYTHING.model_copy(update={"ephemeral": ephemeral}), "e", "h")
        assert display.shown == [("checked", "warning", "h")]

    async def test_an_injection_over_the_budget_of_a_turn_logs_a_warning(self, make_coordinator, logs) -> None:
        coordinator = make_coordinator(injection_budget_per_turn=10)
        await context_simple.mount(coordinator, {})
        for text, tokens in (("Step 1 complete", 3), ("Step 2 failed with error X", 9)):
            await coordinator.process_hook_result(INJECT.model_copy(update={"context_injection": text}), "e", "h")
            assert coordinator._current_turn_injections == tokens
        coordinator.reset_turn()
        for number in range(6):
            await coordinator.process_hook_result(INJECT, "e", "h")
            assert logs.tell("warning", "budget", "'h'") is (number == 5)
        assert len(await rows(coordinator)) == 8

    async def test_without_limits_everything_is_injected(self, coordinator: ModuleCoordinator, logs) -> None:
        await coordinator.process_hook_result(INJECT.model_copy(update={"context_injection": "x" * 1_000_000}), "e")
        assert len(await rows(coordinator)) == 1
        assert not logs.tell("warning")


ASK = HookResult(
    action="ask_user",
    approval_prompt="Allow network access to external API?",
    approval_options=["Allow once", "Allow always", "Deny"],
    approval_timeout=60.0,
    approval_default="deny",
)


class Person:
    """An approval system that returns one answer or raises it."""

    def __init__(self, answer: Any) -> None:
        self._answer = answer
        self.asked: list[tuple[Any, ...]] = []

    async def request_approval(self, prompt: str, options: list[str], timeout: float, default: str) -> Any:  # noqa: ASYNC109 - the contract's name
        self.asked.append((prompt, options, timeout, default))
        if isinstance(self._answer, Exception):
            raise self._answer
        return self._answer


class NoAnswer:
    async def request_approval(self, *_question: Any) -> str:
        await asyncio.Event().wait()
        return "Allow"


class Offline:
    def request_approval(self, *_question: Any) -> Any:
        raise ConnectionError("the chat is away")


class TestApprovalFlowProcessing:
    @pytest.mark.parametrize(
        ("ask", "asked"),
        [
            (ASK, (ASK.approval_prompt, ["Allow once", "Allow always", "Deny"], 60.0, "deny")),
            (HookResult(action="ask_user", approval_prompt="May it?"), ("May it?", ["Allow", "Deny"], 300.0, "deny")),
        ],
        ids=["with options", "without options"],
    )
    async def test_the_approval_system_gets_the_question(self, make_coordinator, ask, asked) -> None:
        person = Person("Allow")
        await make_coordinator(approvals=person).process_hook_result(ask, "tool.http.request", "network-policy")
        assert person.asked == [asked]

    @pytest.mark.parametrize(
        ("answer", "action", "reason"),
        [
            ("Allow", "continue", ""),
            ("Allow once", "continue", ""),
            ("Allow always", "continue", ""),
            ("Allow for an hour", "continue", ""),
            ("Deny", "deny", "User denied: Allow network access"),
            ("Never", "deny", ""),
            ("", "deny", ""),
            ("Perhaps", "deny", ""),
            (None, "deny", ""),
            (1, "deny", ""),
            *((answer, "continue", "") for answer in ("ALLOW", " allow\n", "Allow, but be careful")),
            *((answer, "deny", "") for answer in (True, ["Allow"], b"Allow", "Do not allow")),
            (ApprovalTimeoutError("nobody"), "deny", "Approval timeout - denied by default"),
            (TimeoutError(), "deny", "Approval timeout - denied by default"),
        ],
        ids=str,
    )
    async def test_an_answer_becomes_continue_or_deny(self, make_coordinator, answer, action, reason) -> None:
        options = ["Allow for an hour", "Never"] if answer in ("Allow for an hour", "Never") else ASK.approval_options
        ask = ASK.model_copy(update={"approval_options": options})
        processed = await make_coordinator(approvals=Person(answer)).process_hook_result(ask, "e", "h")
        assert processed.action == action
        assert (processed.reason or "").startswith(reason)

    @pytest.mark.parametrize(
        ("answer", "times_asked"),
        [("Allow once", 3), ("Allow always", 2)],
    )
    async def test_allow_always_is_remembered_per_question_and_session(
        self, make_coordinator, answer: str, times_asked: int
    ) -> None:
        person = Person(answer)
        other = ASK.model_copy(update={"approval_prompt": "Another question?"})
        for session in (1, 2):
            coordinator = make_coordinator(approvals=person)
            for ask in (ASK, ASK, other):
                assert (await coordinator.process_hook_result(ask, "e", "h")).action == "continue"
            assert len(person.asked) == times_asked * session

    @pytest.mark.parametrize("default", ["allow", "deny"])
    @pytest.mark.parametrize(
        ("approvals", "timeout_s"),
        [
            *((NoAnswer(), timeout_s) for timeout_s in (0.01, 0, -1)),
            (Person(ConnectionError("away")), 1),
            (Offline(), 1),
        ],
    )
    async def test_a_timeout_or_a_failure_takes_the_default(
        self, make_coordinator, logs, approvals: Any, timeout_s: float, default: Any
    ) -> None:
        ask = ASK.model_copy(update={"approval_timeout": timeout_s, "approval_default": default})
        processed = await soon(make_coordinator(approvals=approvals).process_hook_result(ask, "e", "guard"))
        assert processed.action == ("continue" if default == "allow" else "deny")
        assert logs.tell("error", "approval", "guard") is not isinstance(approvals, NoAnswer)

    async def test_without_an_approval_system_it_is_denied_and_logged(self, make_coordinator, logs) -> None:
        ask = ASK.model_copy(update={"approval_default": "allow"})
        processed = await make_coordinator().process_hook_result(ask, "e", "guard")
        assert processed.action == "deny"
        assert processed.reason
        assert logs.tell("warning", "approval", "guard")

    async def test_a_question_may_carry_a_message_and_suppress_output(self, make_coordinator, display: Display) -> None:
        ask = ASK.model_copy(update={"user_message": "look", "suppress_output": True})
        coordinator = make_coordinator(approvals=Person("Allow once"), display=display)
        processed = await coordinator.process_hook_result(ask, "e", "h")
        assert (processed.action, processed.suppress_output) == ("continue", True)
        assert display.shown == [("look", "info", "h")]

    async def test_cancellation_propagates(self, make_coordinator) -> None:
        asked = asyncio.create_task(make_coordinator(approvals=NoAnswer()).process_hook_result(ASK, "e", "h"))
        await asyncio.sleep(0)
        asked.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asked


class TestAuditLogging:
    @pytest.mark.parametrize("ephemeral", [False, True])
    async def test_an_injection_is_logged_with_hook_event_and_size(self, coordinator, logs, *, ephemeral: bool) -> None:
        result = HookResult(action="inject_context", context_injection="é", ephemeral=ephemeral)
        await coordinator.process_hook_result(result, "tool:post", "linter")
        assert logs.tell("info", "hook.injected", "linter", "tool:post", "'size_bytes': 2")

    @pytest.mark.parametrize(("answer", "decision"), [("Allow", "granted"), ("Deny", "denied")])
    async def test_a_decision_is_logged_and_emitted(self, make_coordinator, logs, answer: str, decision: str) -> None:
        coordinator = make_coordinator(approvals=Person(answer))
        recorder = Recorder().listen(coordinator.hooks, "approval:required", "approval:granted", "approval:denied")
        await coordinator.process_hook_result(ASK, "tool:pre", "guard")
        assert logs.tell("info", f"approval.{decision}", "guard", "tool:pre")
        assert recorder.names() == ["approval:required", f"approval:{decision}"]
        question = {"prompt": ASK.approval_prompt, "hook_name": "guard", "event": "tool:pre"}
        assert recorder.seen[0][1].items() >= question.items()
