"""When the model has to answer in words: after some tools, and at the end of its iterations."""

import asyncio

import pytest
from agents import Agent, ScriptedProvider, after, call, echo, faults, make_agent, say, told, use

from orchestrator_interactive import InteractiveOrchestrator


def _choices(agent: Agent) -> list[tuple[bool, str | dict[str, object] | None]]:
    return [(bool(request.tools), request.tool_choice) for request in agent.provider.requests]


async def test_after_a_force_respond_tool_the_declarations_stay_and_the_choice_is_none() -> None:
    agent = await make_agent(call(use("dispatch_worker", "a")), say("on it"), tools=[echo("dispatch_worker")])
    assert await agent.run() == "on it"
    assert _choices(agent) == [(True, None), (True, "none")]
    assert agent.provider.requests[0].tools == agent.provider.requests[1].tools


async def test_a_provider_that_cannot_choose_gets_no_tools() -> None:
    provider = ScriptedProvider(call(use("dispatch_worker", "a")), say("on it"), tool_choice=False)
    agent = await make_agent(provider=provider, tools=[echo("dispatch_worker")])
    assert await agent.run() == "on it"
    assert provider.requests[1].tools is None
    assert _choices(agent) == [(True, None), (False, None)]


async def test_it_holds_for_one_call_only() -> None:
    gate = asyncio.Event()
    steps = (call(use("dispatch_worker", "a")), after(gate, say("on it")), call(use("echo", "b")), say("done"))
    agent = await make_agent(*steps, tools=[echo("dispatch_worker"), echo()])
    run = agent.start()
    await agent.provider.asked(2)
    agent.inject("and now?")
    gate.set()
    assert await run == "done"
    assert _choices(agent) == [(True, None), (True, "none"), (True, None), (True, None)]


async def test_it_does_not_leak_into_the_next_run() -> None:
    agent = await make_agent(call(use("dispatch_worker", "a")), say("x"), say("y"), tools=[echo("dispatch_worker")])
    await agent.run()
    await agent.run("next")
    assert _choices(agent)[-1] == (True, None)


async def test_one_such_tool_among_others_is_enough() -> None:
    calls = call(use("echo", "a"), use("dispatch_worker", "b"))
    agent = await make_agent(calls, say("x"), tools=[echo("dispatch_worker"), echo()])
    await agent.run()
    assert _choices(agent)[1] == (True, "none")


async def test_which_tools_force_an_answer_is_configured() -> None:
    steps = (call(use("dispatch_worker", "a")), call(use("recipes", "b")), say("x"))
    agent = await make_agent(*steps, tools=[echo("dispatch_worker"), echo("recipes")], force_respond_tools=["recipes"])
    await agent.run()
    assert _choices(agent) == [(True, None), (True, None), (True, "none")]


async def test_a_model_that_calls_tools_all_the_same_is_not_obeyed() -> None:
    tool = echo()
    steps = (call(use("dispatch_worker", "a")), call(use("echo", "b"), text="still"), say("next"))
    agent = await make_agent(*steps, tools=[echo("dispatch_worker"), tool])
    assert await agent.run() == "still"
    assert tool.inputs == []
    assert faults(await agent.history()) == []
    assert await agent.run("again") == "next"


async def test_a_message_during_a_force_respond_tool_is_read_before_the_answer() -> None:
    agent = await make_agent(call(use("dispatch_worker", "a")), say("on it"), tools=[echo("dispatch_worker")])
    agent.progress.act_on("tool:start", lambda: agent.inject("hurry"))
    assert await agent.run() == "on it"
    assert [role for role, _ in told(agent.provider.sent(1))][-2:] == ["tool", "user"]


async def test_the_call_after_the_last_iteration_is_made_without_tools() -> None:
    steps = (call(use("echo", "a")), call(use("echo", "b")), say("that is all"))
    agent = await make_agent(*steps, tools=[echo()], max_iterations=2)
    assert await agent.run() == "that is all"
    assert _choices(agent) == [(True, None), (True, None), (True, "none")]


async def test_a_message_after_the_last_iteration_is_still_answered() -> None:
    gate = asyncio.Event()
    steps = (call(use("echo", "a")), after(gate, say("that is all")), say("and this"))
    agent = await make_agent(*steps, tools=[echo()], max_iterations=1)
    run = agent.start()
    await agent.provider.asked(2)
    agent.inject("one more")
    gate.set()
    assert await run == "and this"
    assert _choices(agent)[-1] == (True, "none")


async def test_every_run_has_its_own_iterations() -> None:
    agent = await make_agent(call(use("echo", "a")), say("one"), call(use("echo", "b")), say("two"), max_iterations=1)
    await agent.coordinator.mount("tools", echo())
    assert [await agent.run(), await agent.run()] == ["one", "two"]


@pytest.mark.parametrize(
    "config", [{"max_iterations": 0}, {"max_waiting": 0}, {"stop_grace_s": -1}, {"stall_timeout_s": 0}, {"typo": 1}]
)
def test_nonsense_in_the_configuration_is_refused(config: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=next(iter(config))):
        InteractiveOrchestrator(config)
