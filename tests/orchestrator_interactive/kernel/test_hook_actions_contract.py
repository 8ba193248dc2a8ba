"""Coordinator API: process_hook_result, and where each part of a hook result goes."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

import pytest

from orchestrator_interactive.kernel import HookResult, ModuleCoordinator
from orchestrator_interactive.modules import context_simple

if TYPE_CHECKING:
    from collections.abc import Callable


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


class TestProcessHookResult:
    def test_its_signature(self) -> None:
        parameters = inspect.signature(ModuleCoordinator.process_hook_result).parameters
        assert list(parameters) == ["self", "result", "event", "hook_name"]
        assert parameters["hook_name"].default == "unknown"

    @pytest.mark.parametrize("wrong", [None, "deny", {"action": "deny"}], ids=["none", "word", "dict"])
    async def test_what_is_no_hook_result_is_refused(self, coordinator: ModuleCoordinator, wrong: Any) -> None:
        with pytest.raises(TypeError, match="result"):
            await coordinator.process_hook_result(wrong, "tool:post")

    async def test_one_result_may_combine_several_actions(
        self, coordinator: ModuleCoordinator, display: Display
    ) -> None:
        result = INJECT.model_copy(update={"user_message": "checked", "suppress_output": True})
        processed = await coordinator.process_hook_result(result, "tool:post", "linter")
        assert [row["content"] for row in await rows(coordinator)] == ["3 issues"]
        assert display.shown == [("checked", "info", "linter")]
        assert processed.suppress_output

    async def test_a_context_that_fails_is_logged_and_the_rest_is_done(
        self, make_coordinator, display: Display, logs
    ) -> None:
        coordinator = make_coordinator(display=display)
        await coordinator.mount("context", FullContext())
        await coordinator.process_hook_result(INJECT.model_copy(update={"user_message": "checked"}), "tool:post", "h")
        assert logs.tell("error", "tool:post", "'h'")
        assert display.shown == [("checked", "info", "h")]

    async def test_a_missing_context_is_logged_and_the_rest_is_done(
        self, make_coordinator, display: Display, logs
    ) -> None:
        coordinator = make_coordinator(display=display)
        await coordinator.process_hook_result(INJECT.model_copy(update={"user_message": "checked"}), "tool:post", "h")
        assert logs.tell("error", "tool:post", "'h'", "context")
        assert display.shown == [("checked", "info", "h")]

    @pytest.mark.parametrize("display", [Display(fails=True), AsyncDisplay(fails=True)], ids=["sync", "async"])
    async def test_a_display_that_fails_is_logged_and_the_rest_is_done(
        self, coordinator: ModuleCoordinator, logs
    ) -> None:
        result = INJECT.model_copy(update={"user_message": "checked", "suppress_output": True})
        assert (await coordinator.process_hook_result(result, "tool:post", "h")).suppress_output
        assert logs.tell("error", "display", "'h'")
        assert len(await rows(coordinator)) == 1

    async def test_usage_example(self, make_coordinator, display: Display) -> None:
        class Rejects:
            async def request_approval(self, *_question: Any) -> str:
                return "Deny"

        coordinator = make_coordinator(display=display, approvals=Rejects())
        await context_simple.mount(coordinator, {})
        hook_result = HookResult(
            action="inject_context",
            context_injection="Linter found 3 issues in file.py",
            user_message="Code analysis complete",
            suppress_output=True,
        )
        processed = await coordinator.process_hook_result(
            result=hook_result, event="tool.filesystem.write", hook_name="code-quality-checker"
        )
        assert processed.suppress_output
        assert [row["content"] for row in await rows(coordinator)] == ["Linter found 3 issues in file.py"]
        assert display.shown == [("Code analysis complete", "info", "code-quality-checker")]
        approval_result = await coordinator.process_hook_result(
            HookResult(action="ask_user", approval_prompt="Delete production file?"),
            event="tool.filesystem.delete",
            hook_name="safety-guard",
        )
        assert approval_result.action == "deny"


class TestProcessingPipelineExample:
    async def test_it_runs_as_written(self, coordinator: ModuleCoordinator, display: Display, logs) -> None:
        hook_result = HookResult(
            action="inject_context",
            context_injection="Security scan found 2 vulnerabilities in dependencies",
            context_injection_role="system",
            user_message="Security analysis complete - issues found",
            user_message_level="warning",
            suppress_output=True,
            ephemeral=False,
        )
        processed_result = await coordinator.process_hook_result(
            result=hook_result, event="tool.package.install", hook_name="security-scanner"
        )
        [row] = await rows(coordinator)
        assert (row["role"], row["content"]) == ("system", hook_result.context_injection)
        assert row["metadata"]["hook_name"] == "security-scanner"
        assert display.shown == [("Security analysis complete - issues found", "warning", "security-scanner")]
        assert logs.tell("debug", "suppressed", "security-scanner")
        assert processed_result == hook_result


class TestSubsystemRoutingTable:
    @pytest.mark.parametrize("role", ["system", "user", "assistant"])
    async def test_inject_context_goes_to_the_context_with_its_role(
        self, coordinator: ModuleCoordinator, role: Any
    ) -> None:
        await coordinator.process_hook_result(INJECT.model_copy(update={"context_injection_role": role}), "e", "h")
        assert [(row["role"], row["content"]) for row in await rows(coordinator)] == [(role, "3 issues")]

    async def test_inject_context_says_where_it_is_from(self, coordinator: ModuleCoordinator) -> None:
        await coordinator.process_hook_result(INJECT, "tool:post", "linter")
        [row] = await rows(coordinator)
        provenance = {"source": "hook", "hook_name": "linter", "event": "tool:post"}
        assert row["metadata"].items() >= provenance.items()

    async def test_the_name_of_the_hook_is_unknown_unless_given(self, coordinator: ModuleCoordinator) -> None:
        await coordinator.process_hook_result(INJECT, "tool:post")
        assert (await rows(coordinator))[0]["metadata"]["hook_name"] == "unknown"

    async def test_an_ephemeral_injection_is_left_to_the_orchestrator(self, coordinator: ModuleCoordinator) -> None:
        processed = await coordinator.process_hook_result(INJECT.model_copy(update={"ephemeral": True}), "e", "h")
        assert await rows(coordinator) == []
        assert processed.context_injection == "3 issues"

    async def test_an_injection_without_the_action_is_none(self, coordinator: ModuleCoordinator) -> None:
        """The examples write `HookResult(context_injection=…)`; by the text the action decides."""
        await coordinator.process_hook_result(HookResult(context_injection="3 issues"), "e", "h")
        assert await rows(coordinator) == []

    @pytest.mark.parametrize("level", ["info", "warning", "error"])
    async def test_a_user_message_goes_to_the_display_with_level_and_source(
        self, coordinator: ModuleCoordinator, display: Display, level: Any
    ) -> None:
        await coordinator.process_hook_result(HookResult(user_message="look", user_message_level=level), "e", "guard")
        assert display.shown == [("look", level, "guard")]

    async def test_a_user_message_may_name_its_own_source(
        self, coordinator: ModuleCoordinator, display: Display
    ) -> None:
        result = HookResult(user_message="look", user_message_source="the linter")
        await coordinator.process_hook_result(result, "e", "h")
        assert display.shown == [("look", "info", "the linter")]

    @pytest.mark.parametrize("display", [AsyncDisplay()])
    async def test_a_display_may_be_asynchronous(self, coordinator: ModuleCoordinator, display: Display) -> None:
        await coordinator.process_hook_result(HookResult(user_message="look"), "e", "h")
        assert display.shown == [("look", "info", "h")]

    async def test_without_a_display_a_user_message_is_logged(self, make_coordinator, logs) -> None:
        coordinator = make_coordinator()
        await coordinator.process_hook_result(HookResult(user_message="look", user_message_level="warning"), "e", "h")
        assert logs.tell("info", "look", "warning", "'h'")

    async def test_suppress_output_is_logged_and_the_flag_stays(self, coordinator: ModuleCoordinator, logs) -> None:
        processed = await coordinator.process_hook_result(HookResult(suppress_output=True), "tool:post", "quiet")
        assert processed.suppress_output
        assert logs.tell("debug", "suppressed", "quiet", "tool:post")

    @pytest.mark.parametrize("action", ["continue", "deny", "modify"])
    async def test_continue_deny_and_modify_pass_through_unchanged(
        self, coordinator: ModuleCoordinator, display: Display, action: Any
    ) -> None:
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

    async def test_an_ephemeral_injection_is_limited_too(self, make_coordinator) -> None:
        coordinator = make_coordinator(injection_size_limit=5)
        with pytest.raises(ValueError, match="8 bytes"):
            await coordinator.process_hook_result(INJECT.model_copy(update={"ephemeral": True}), "e", "h")

    async def test_a_size_that_is_refused_lets_the_rest_be_done_first(self, make_coordinator, display: Display) -> None:
        coordinator = make_coordinator(injection_size_limit=5, display=display)
        with pytest.raises(ValueError, match="8 bytes"):
            await coordinator.process_hook_result(INJECT.model_copy(update={"user_message": "checked"}), "e", "h")
        assert display.shown == [("checked", "info", "h")]

    async def test_over_the_budget_it_warns_and_proceeds(self, make_coordinator, logs) -> None:
        coordinator = make_coordinator(injection_budget_per_turn=2)
        await context_simple.mount(coordinator, {})
        await coordinator.process_hook_result(INJECT, "e", "h")
        assert not logs.tell("warning", "budget")
        await coordinator.process_hook_result(INJECT, "e", "h")
        assert logs.tell("warning", "budget", "'h'")
        assert len(await rows(coordinator)) == 2

    async def test_a_new_turn_has_a_fresh_budget(self, make_coordinator, logs) -> None:
        coordinator = make_coordinator(injection_budget_per_turn=2)
        await context_simple.mount(coordinator, {})
        await coordinator.process_hook_result(INJECT, "e", "h")
        coordinator.reset_turn()
        await coordinator.process_hook_result(INJECT, "e", "h")
        assert not logs.tell("warning", "budget")

    async def test_without_limits_everything_is_injected(self, coordinator: ModuleCoordinator, logs) -> None:
        result = HookResult(action="inject_context", context_injection="x" * 1_000_000)
        await coordinator.process_hook_result(result, "e", "h")
        assert len(await rows(coordinator)) == 1
        assert not logs.tell("warning")

    async def test_the_example_runs_as_written(self, make_coordinator, logs) -> None:
        coordinator = make_coordinator(injection_budget_per_turn=10, injection_size_limit=50)
        await context_simple.mount(coordinator, {})
        coordinator.reset_turn()
        for text, event, hook, tokens in (
            ("Step 1 complete", "tool.step1", "progress-tracker", 3),
            ("Step 2 failed with error X", "tool.step2", "error-reporter", 9),
        ):
            await coordinator.process_hook_result(
                HookResult(action="inject_context", context_injection=text), event, hook
            )
            assert coordinator._current_turn_injections == tokens
        assert not logs.tell("warning", "budget")
        third = HookResult(action="inject_context", context_injection="Step 3 complete")
        await coordinator.process_hook_result(third, "tool.step3", "progress-tracker")
        assert logs.tell("warning", "budget")
        assert len(await rows(coordinator)) == 3
        oversized = HookResult(action="inject_context", context_injection="x" * 51)
        with pytest.raises(ValueError, match="51 bytes"):
            await coordinator.process_hook_result(oversized, "tool.step4", "progress-tracker")
