"""Orchestrator contract: the effect of every action of a hook result on a run of `loop-interactive`."""

from typing import Any

import pytest
from agents import Agent, ScriptedTool, call, echo, faults, make_agent, say, told, use

from orchestrator_interactive.kernel import HookResult, ToolResult
from orchestrator_interactive.testing import MockDisplaySystem

DENY = HookResult(action="deny", reason="not here")
REMEMBER = HookResult(action="inject_context", context_injection="remember")
ASK = HookResult(action="ask_user", approval_prompt="May it?")


class Person:
    def __init__(self, answer: str) -> None:
        self._answer = answer

    async def request_approval(self, *_question: Any) -> str:
        return self._answer


async def agent_and_tool(**more: Any) -> tuple[Agent, ScriptedTool]:
    tool = echo()
    agent = await make_agent(
        call(use("echo", "a", text="one"), use("echo", "b", text="two")), say("ok"), tools=[tool], **more
    )
    return agent, tool


def results(agent: Agent) -> list[str]:
    return [text for role, text in told(agent.provider.sent(1)) if role == "tool"]


EVENTS = ["prompt:submit", "provider:request", "provider:response", "tool:pre", "tool:post"]


class TestHookProcessing:
    @pytest.mark.parametrize("event", EVENTS)
    async def test_a_denied_step_is_not_taken(self, event: str) -> None:
        agent, tool = await agent_and_tool()
        agent.on_hook(event, DENY)
        answer = await agent.run()
        if event.startswith("tool:"):
            assert answer == "ok"
            assert len(tool.inputs) == (0 if event == "tool:pre" else 2)
            assert all("not here" in result and "one" not in result for result in results(agent))
        else:
            assert answer == "Operation denied: not here"

    @pytest.mark.parametrize(
        ("event", "data", "request_number", "read"),
        [
            ("tool:pre", {"tool_input": {"text": "better"}}, 1, [("tool", "better")] * 2),
            ("tool:post", {"tool_result": ToolResult(output="redacted")}, 1, [("tool", "redacted")] * 2),
            ("prompt:submit", {"prompt": "better"}, 0, [("user", "better")]),
            ("provider:request", {"messages": [{"role": "user", "content": "instead"}]}, 0, [("user", "instead")]),
        ],
    )
    async def test_modified_data_take_effect(self, event, data, request_number, read) -> None:
        agent, _ = await agent_and_tool()
        agent.on_hook(event, HookResult(action="modify", data=data))
        await agent.run("worse")
        assert told(agent.provider.sent(request_number))[-len(read) :] == read

    @pytest.mark.parametrize("role", ["system", "user"])
    @pytest.mark.parametrize("event", ["prompt:submit", "provider:request", "tool:pre", "tool:post"])
    async def test_an_injection_is_added_to_the_context_with_role_and_origin(self, event: str, role: Any) -> None:
        agent, _ = await agent_and_tool()

        async def linter(_event: str, _data: dict[str, Any]) -> HookResult:
            return REMEMBER.model_copy(update={"context_injection_role": role})

        agent.hooks.register(event, linter, name="linter")
        assert await agent.run() == "ok"
        injected = [row for row in await agent.history() if row["content"] == "remember"]
        assert {(row["role"], row["metadata"]["hook_name"]) for row in injected} == {(role, "linter")}
        assert (role, "remember") in told(agent.provider.sent(1))
        assert faults(await agent.history()) == []

    async def test_every_run_has_its_own_injection_budget(self, logs) -> None:
        agent = await make_agent(say("one"), say("two"), plan={"injection_budget_per_turn": 2})
        agent.on_hook("prompt:submit", REMEMBER)
        await agent.run()
        await agent.run()
        assert not logs.tell("warning", "budget")

    @pytest.mark.parametrize(("event", "appended"), [("tool:post", False), ("provider:request", True)])
    async def test_an_ephemeral_injection_is_in_the_next_request_only(self, event: str, *, appended: bool) -> None:
        agent, _ = await agent_and_tool()
        update = {"ephemeral": True, "append_to_last_tool_result": appended}
        agent.on_hook(event, REMEMBER.model_copy(update=update))
        await agent.run()
        if appended:
            assert results(agent) == ["one", "two\n\nremember"]
        else:
            assert ("system", "remember") in told(agent.provider.sent(1))
        assert "remember" not in str(await agent.history())

    @pytest.mark.parametrize(("answer", "runs"), [("Allow", 2), ("Deny", 0)])
    async def test_a_tool_runs_after_approval_only(self, answer: str, runs: int) -> None:
        agent, tool = await agent_and_tool(approvals=Person(answer))
        agent.on_hook("tool:pre", ASK)
        await agent.run()
        assert len(tool.inputs) == runs
        assert ["User denied: May it?" in result for result in results(agent)] == [not runs, not runs]

    async def test_a_message_to_the_user_is_shown(self) -> None:
        display = MockDisplaySystem()
        agent, _ = await agent_and_tool(display=display)
        agent.on_hook("tool:post", HookResult(user_message="look"))
        await agent.run()
        assert [message for message, *_ in display.messages] == ["look", "look"]

    @pytest.mark.parametrize("event", EVENTS)
    async def test_a_hook_that_raises_does_not_end_the_run(self, event: str) -> None:
        agent, _ = await agent_and_tool()

        async def fails(_event: str, _data: dict[str, Any]) -> HookResult:
            raise RuntimeError("a bug in the hook")

        agent.hooks.register(event, fails)
        assert await agent.run() == "ok"
