"""The model must answer in words after some tools, and at the end of its iterations."""

import asyncio

import pytest
from agents import Agent, ScriptedProvider, after, call, echo, faults, make_agent, say, told, use

DISPATCH = call(use("dispatch_worker", "a"))
TOOLS = [echo("dispatch_worker"), echo()]


def _choices(agent: Agent) -> list[tuple[bool, str | dict[str, object] | None]]:
    return [(bool(request.tools), request.tool_choice) for request in agent.provider.requests]


@pytest.mark.parametrize(("can_choose", "forced"), [(True, (True, "none")), (False, (False, None))])
async def test_after_a_force_respond_tool_the_choice_is_none_or_no_tools_are_declared(
    forced: tuple[bool, str | None], *, can_choose: bool
) -> None:
    provider = ScriptedProvider(call(use("echo", "a"), use("dispatch_worker", "b")), say("x"), tool_choice=can_choose)
    agent = await make_agent(provider=provider, tools=TOOLS)
    assert await agent.run() == "x"
    assert _choices(agent) == [(True, None), forced]
    if can_choose:
        assert provider.requests[0].tools == provider.requests[1].tools


async def test_it_holds_for_one_call_only() -> None:
    gate = asyncio.Event()
    steps = (DISPATCH, after(gate, say("on it")), call(use("echo", "b")), say("done"), DISPATCH, say("x"), say("y"))
    agent = await make_agent(*steps, tools=TOOLS)
    run = await agent.steered("and now?", asked=2)
    gate.set()
    assert await run == "done"
    await agent.run("next")
    await agent.run("another")
    choices = [choice for _, choice in _choices(agent)]
    assert choices == [None, "none", None, None, None, "none", None]


async def test_the_tools_that_force_an_answer_are_configured() -> None:
    steps = (DISPATCH, call(use("recipes", "b")), say("x"))
    agent = await make_agent(*steps, tools=[*TOOLS, echo("recipes")], force_respond_tools=["recipes"])
    await agent.run()
    assert _choices(agent) == [(True, None), (True, None), (True, "none")]


async def test_tools_that_the_forced_answer_calls_are_not_run() -> None:
    tool = echo()
    steps = (DISPATCH, call(use("echo", "b"), text="still"), say("next"))
    agent = await make_agent(*steps, tools=[echo("dispatch_worker"), tool])
    assert await agent.run() == "still"
    assert tool.inputs == []
    assert faults(await agent.history()) == []
    assert await agent.run("again") == "next"


async def test_a_message_during_a_force_respond_tool_is_read_before_the_answer() -> None:
    agent = await make_agent(DISPATCH, say("on it"), tools=TOOLS)
    agent.progress.act_on("tool:start", lambda: agent.inject("hurry"))
    assert await agent.run() == "on it"
    assert [role for role, _ in told(agent.provider.sent(1))][-2:] == ["tool", "user"]
