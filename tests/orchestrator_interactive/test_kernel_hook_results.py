"""Where the wishes of a hook go: context, approvals, display."""

from __future__ import annotations

from typing import Any

import pytest
from agents import Agent, make_agent, say
from structlog.testing import capture_logs

from orchestrator_interactive.kernel import HookResult


class Asked:
    def __init__(self, answer: str) -> None:
        self.answer = answer
        self.prompts: list[str] = []

    async def request_approval(self, prompt: str, *_: Any) -> str:
        self.prompts.append(prompt)
        return self.answer


async def _process(agent: Agent, **wish: Any) -> HookResult:
    return await agent.coordinator.process_hook_result(HookResult(**wish), "tool:post", "linter")


async def test_an_injection_goes_into_the_context_and_says_where_it_is_from() -> None:
    agent = await make_agent()
    await _process(agent, action="inject_context", context_injection="3 issues")
    [row] = await agent.history()
    assert (row["role"], row["content"]) == ("system", "3 issues")
    assert row["metadata"] == {"source": "hook", "hook_name": "linter", "event": "tool:post"}


async def test_the_name_of_the_hook_is_known_when_the_loop_routes_its_wish() -> None:
    agent = await make_agent(say("ok"))

    async def linter(_event: str, _data: dict[str, Any]) -> HookResult:
        return HookResult(action="inject_context", context_injection="3 issues")

    agent.hooks.register("prompt:submit", linter, name="linter")
    await agent.run()
    assert (await agent.history())[0]["metadata"]["hook_name"] == "linter"


async def test_an_ephemeral_injection_stays_out_of_the_context() -> None:
    agent = await make_agent()
    result = await _process(agent, action="inject_context", context_injection="psst", ephemeral=True)
    assert await agent.history() == []
    assert result.context_injection == "psst"


@pytest.mark.parametrize(("text", "fits"), [("é" * 5, True), ("é" * 6, False), ("x" * 10, True), ("x" * 11, False)])
async def test_the_size_limit_counts_bytes(text: str, *, fits: bool) -> None:
    agent = await make_agent(plan={"injection_size_limit": 10})
    if fits:
        await _process(agent, action="inject_context", context_injection=text)
    else:
        with pytest.raises(ValueError, match=r"12 bytes|11 bytes"):
            await _process(agent, action="inject_context", context_injection=text)
    assert len(await agent.history()) == fits


async def test_going_over_the_budget_warns_and_goes_on() -> None:
    agent = await make_agent(plan={"injection_budget_per_turn": 2})
    with capture_logs() as logs:
        await _process(agent, action="inject_context", context_injection="x" * 8)
        await _process(agent, action="inject_context", context_injection="x" * 8)
    assert [entry["tokens"] for entry in logs if entry["event"] == "hook.injection_budget"] == [4]
    assert len(await agent.history()) == 2


async def test_the_budget_begins_anew_with_a_turn() -> None:
    agent = await make_agent(plan={"injection_budget_per_turn": 2})
    with capture_logs() as logs:
        await _process(agent, action="inject_context", context_injection="x" * 8)
        agent.coordinator.reset_turn()
        await _process(agent, action="inject_context", context_injection="x" * 8)
    assert [entry for entry in logs if entry["event"] == "hook.injection_budget"] == []


async def test_every_run_has_a_budget_of_its_own() -> None:
    agent = await make_agent(say("one"), say("two"), plan={"injection_budget_per_turn": 2})
    agent.on_hook("prompt:submit", HookResult(action="inject_context", context_injection="x" * 8))
    with capture_logs() as logs:
        await agent.run()
        await agent.run()
    assert [entry for entry in logs if entry["event"] == "hook.injection_budget"] == []


async def test_one_result_can_inject_and_show() -> None:
    shown: list[Any] = []

    class Display:
        def show_message(self, *message: Any) -> None:
            shown.append(message)

    agent = await make_agent(display=Display())
    await _process(agent, action="inject_context", context_injection="3 issues", user_message="checked")
    assert len(await agent.history()) == 1
    assert shown == [("checked", "info", "linter")]


async def test_allow_always_is_asked_once() -> None:
    approvals = Asked("Allow always")
    agent = await make_agent(approvals=approvals)
    for prompt in ("May I?", "May I?", "And this?"):
        result = await _process(agent, action="ask_user", approval_prompt=prompt)
        assert result.action == "continue"
    assert approvals.prompts == ["May I?", "And this?"]


async def test_allow_once_is_asked_again() -> None:
    approvals = Asked("Allow once")
    agent = await make_agent(approvals=approvals)
    for _ in range(2):
        await _process(agent, action="ask_user", approval_prompt="May I?")
    assert len(approvals.prompts) == 2


@pytest.mark.parametrize("answer", ["Deny", "", "whatever"])
async def test_what_is_not_allowed_is_denied(answer: str) -> None:
    agent = await make_agent(approvals=Asked(answer))
    result = await _process(agent, action="ask_user", approval_prompt="May I?")
    assert result.action == "deny"
    assert "May I?" in (result.reason or "")


@pytest.mark.parametrize("action", ["continue", "deny", "modify"])
async def test_other_wishes_come_back_unchanged(action: Any) -> None:
    agent = await make_agent()
    wish = HookResult(action=action, data={"a": 1}, reason="because", suppress_output=True)
    assert await agent.coordinator.process_hook_result(wish, "event") == wish
