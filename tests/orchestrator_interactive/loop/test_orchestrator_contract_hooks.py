"""Orchestrator contract: Hook Processing. Every action of a hook result is honoured by `loop-interactive`."""

from __future__ import annotations

from typing import Any

import pytest
from agents import Agent, ScriptedTool, call, echo, faults, make_agent, say, told, use

from orchestrator_interactive.kernel import HookResult, ToolResult

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


class TestHookProcessing:
    async def test_a_denied_tool_is_not_executed_and_the_model_reads_the_reason(self) -> None:
        agent, tool = await agent_and_tool()
        agent.on_hook("tool:pre", DENY)
        assert await agent.run() == "ok"
        assert tool.inputs == []
        assert all("not here" in result for result in results(agent))

    @pytest.mark.parametrize("event", ["prompt:submit", "provider:request", "provider:response"])
    async def test_a_denied_step_ends_the_run_with_the_reason(self, event: str) -> None:
        agent, _ = await agent_and_tool()
        agent.on_hook(event, DENY)
        assert await agent.run() == "Operation denied: not here"

    async def test_a_denied_result_is_withheld(self) -> None:
        agent, _ = await agent_and_tool()
        agent.on_hook("tool:post", DENY)
        await agent.run()
        assert all("not here" in result and "one" not in result for result in results(agent))

    async def test_modified_tool_input_is_what_the_tool_gets(self) -> None:
        agent, tool = await agent_and_tool()
        agent.on_hook("tool:pre", HookResult(action="modify", data={"tool_input": {"text": "better"}}))
        await agent.run()
        assert tool.inputs == [{"text": "better"}, {"text": "better"}]

    async def test_a_modified_result_is_what_the_model_reads(self) -> None:
        agent, _ = await agent_and_tool()
        agent.on_hook("tool:post", HookResult(action="modify", data={"tool_result": ToolResult(output="redacted")}))
        await agent.run()
        assert results(agent) == ["redacted", "redacted"]

    async def test_a_modified_prompt_is_what_the_model_reads(self) -> None:
        agent, _ = await agent_and_tool()
        agent.on_hook("prompt:submit", HookResult(action="modify", data={"prompt": "better"}))
        await agent.run("worse")
        assert told(agent.provider.sent(0)) == [("user", "better")]

    async def test_modified_messages_are_what_the_model_reads(self) -> None:
        agent, _ = await agent_and_tool()
        rows = [{"role": "user", "content": "instead"}]
        agent.on_hook("provider:request", HookResult(action="modify", data={"messages": rows}))
        await agent.run()
        assert told(agent.provider.sent(0)) == [("user", "instead")]

    @pytest.mark.parametrize("role", ["system", "user"])
    @pytest.mark.parametrize("event", ["prompt:submit", "provider:request", "tool:pre", "tool:post"])
    async def test_an_injection_is_added_to_the_context_with_its_role(self, event: str, role: Any) -> None:
        agent, _ = await agent_and_tool()
        agent.on_hook(event, REMEMBER.model_copy(update={"context_injection_role": role}))
        assert await agent.run() == "ok"
        assert (role, "remember") in await agent.told()
        assert (role, "remember") in told(agent.provider.sent(1))

    async def test_an_injection_says_which_hook_it_is_from(self) -> None:
        agent, _ = await agent_and_tool()

        async def linter(_event: str, _data: dict[str, Any]) -> HookResult:
            return REMEMBER

        agent.hooks.register("prompt:submit", linter, name="linter")
        await agent.run()
        assert (await agent.history())[0]["metadata"]["hook_name"] == "linter"

    async def test_every_run_has_an_injection_budget_of_its_own(self, logs) -> None:
        agent = await make_agent(say("one"), say("two"), plan={"injection_budget_per_turn": 2})
        agent.on_hook("prompt:submit", REMEMBER)
        await agent.run()
        await agent.run()
        assert not logs.tell("warning", "budget")

    @pytest.mark.parametrize("event", ["tool:pre", "tool:post"])
    async def test_an_injection_never_stands_between_a_call_and_its_result(self, event: str) -> None:
        agent, _ = await agent_and_tool()
        agent.on_hook(event, REMEMBER)
        await agent.run()
        assert faults(await agent.history()) == []

    async def test_an_ephemeral_injection_is_in_the_next_request_and_not_in_the_context(self) -> None:
        agent, _ = await agent_and_tool()
        agent.on_hook("tool:post", REMEMBER.model_copy(update={"ephemeral": True}))
        await agent.run()
        assert ("system", "remember") in told(agent.provider.sent(1))
        assert "remember" not in str(await agent.history())

    async def test_an_injection_may_end_the_last_tool_result(self) -> None:
        agent, _ = await agent_and_tool()
        update = {"ephemeral": True, "append_to_last_tool_result": True}
        agent.on_hook("provider:request", REMEMBER.model_copy(update=update))
        await agent.run()
        assert results(agent) == ["one", "two\n\nremember"]

    async def test_what_a_person_approves_is_executed(self) -> None:
        agent, tool = await agent_and_tool(approvals=Person("Allow"))
        agent.on_hook("tool:pre", ASK)
        await agent.run()
        assert len(tool.inputs) == 2

    async def test_what_a_person_denies_is_not_executed_and_the_model_reads_it(self) -> None:
        agent, tool = await agent_and_tool(approvals=Person("Deny"))
        agent.on_hook("tool:pre", ASK)
        await agent.run()
        assert tool.inputs == []
        assert all("User denied: May it?" in result for result in results(agent))

    async def test_a_message_to_the_user_is_shown(self) -> None:
        shown: list[str] = []

        class Display:
            def show_message(self, message: str, *_more: Any) -> None:
                shown.append(message)

        agent, _ = await agent_and_tool(display=Display())
        agent.on_hook("tool:post", HookResult(user_message="look"))
        await agent.run()
        assert shown == ["look", "look"]

    @pytest.mark.parametrize(
        "event", ["prompt:submit", "provider:request", "provider:response", "tool:pre", "tool:post"]
    )
    async def test_a_hook_that_raises_does_not_break_the_run(self, event: str) -> None:
        agent, _ = await agent_and_tool()

        async def fails(_event: str, _data: dict[str, Any]) -> HookResult:
            raise RuntimeError("a bug in the hook")

        agent.hooks.register(event, fails)
        assert await agent.run() == "ok"
