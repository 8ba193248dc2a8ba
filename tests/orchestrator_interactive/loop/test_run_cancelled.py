"""Cancelling the task that awaits a session ends everything that it started, and leaves a valid history."""

import asyncio
from typing import Any

import pytest
from agents import call, deaf, deaf_tool, echo, gated, goes_on, make_agent, never, say, soon, use

from orchestrator_interactive import RunFinished


async def _cancelled(run: asyncio.Task[str]) -> None:
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await soon(run)


async def test_cancelling_during_the_model_call_cancels_it() -> None:
    agent = await make_agent(never())
    run = agent.start()
    await agent.provider.asked(1)
    await _cancelled(run)
    assert agent.provider.cancelled == 1
    await goes_on(agent)


async def test_cancelling_during_tools_cancels_them_and_answers_each_call() -> None:
    tool = gated(asyncio.Event())
    agent = await make_agent(call(use("wait", "a"), use("wait", "b"), use("echo", "c")), tools=[tool, echo()])
    run = agent.start()
    await tool.started(2)
    await agent.progress.reached("tool:end")
    await _cancelled(run)
    assert tool.cancelled == 2
    outcomes = {row["tool_call_id"]: row["content"] for row in await agent.history() if row["role"] == "tool"}
    assert {call_id for call_id, text in outcomes.items() if "unknown" in text} == {"a", "b"}
    assert outcomes["c"] == "echo"
    await goes_on(agent)


async def test_no_task_is_left_after_a_cancelled_run() -> None:
    tool = gated(asyncio.Event())
    agent = await make_agent(call(use("wait", "a"), use("wait", "b")), tools=[tool])
    before = asyncio.all_tasks()
    run = agent.start()
    await tool.started(2)
    await _cancelled(run)
    assert asyncio.all_tasks() == before


async def test_cancelling_during_a_deaf_model_call_does_not_hang() -> None:
    release = asyncio.Event()
    agent = await make_agent(deaf(release, say("late")))
    run = agent.start()
    await agent.provider.asked(1)
    await _cancelled(run)
    await goes_on(agent)
    release.set()


async def test_cancelling_during_a_deaf_tool_answers_its_call() -> None:
    release = asyncio.Event()
    tool = deaf_tool(release)
    agent = await make_agent(call(use("deaf", "a")), tools=[tool])
    run = agent.start()
    await tool.started()
    await _cancelled(run)
    await goes_on(agent)
    release.set()


async def test_cancelling_twice_during_tools_still_answers_each_call() -> None:
    release = asyncio.Event()
    tool = deaf_tool(release)
    agent = await make_agent(call(use("deaf", "a"), use("deaf", "b")), tools=[tool])
    run = agent.start()
    await tool.started(2)
    run.cancel()
    for _ in range(3):
        await asyncio.sleep(0)
    await _cancelled(run)
    release.set()
    assert [row["tool_call_id"] for row in await agent.history() if row["role"] == "tool"] == ["a", "b"]


async def test_cancelling_twice_during_a_deaf_model_call_breaks_nothing() -> None:
    broken: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: broken.append(context))
    release = asyncio.Event()
    agent = await make_agent(deaf(release, say("late")))
    run = agent.start()
    await agent.provider.asked(1)
    run.cancel()
    for _ in range(3):
        await asyncio.sleep(0)
    await _cancelled(run)
    await goes_on(agent)
    reached = asyncio.Event()
    asyncio.get_running_loop().call_later(0.35, reached.set)  # after the loop has given up on the call
    await reached.wait()
    release.set()
    assert broken == []


@pytest.mark.parametrize("event", ["executing", "thinking", "tool:start", "tool:end"])
async def test_cancelling_while_the_watcher_is_told_leaves_a_valid_history(event: str) -> None:
    agent = await make_agent(call(use("echo", "a")), say("ok"), tools=[echo()])
    agent.progress.hold(event, asyncio.Event())
    run = agent.start()
    await agent.progress.reached(event)
    await _cancelled(run)
    agent.progress._gates.clear()
    await goes_on(agent)


async def test_cancelling_while_the_calls_are_committed_leaves_a_valid_next_request() -> None:
    agent = await make_agent(call(use("echo", "a")), tools=[echo()])
    reached = asyncio.Event()

    async def hold(row: dict[str, Any]) -> None:
        if row["role"] == "assistant":
            reached.set()
            await asyncio.Event().wait()

    agent.context.after = hold
    run = agent.start()
    await soon(reached.wait())
    await _cancelled(run)
    agent.context.after = None
    agent.provider.add(say("next answer"))
    assert await agent.run("next") == "next answer"


async def test_a_cancelled_run_can_be_followed_at_once() -> None:
    agent = await make_agent(never(), say("ok"))
    run = agent.start()
    await agent.provider.asked(1)
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    assert await agent.run() == "ok"


async def test_cancelling_before_the_first_step_starts_nothing() -> None:
    agent = await make_agent(say("ok"))
    await _cancelled(agent.start())
    assert await agent.history() == []
    assert await agent.run() == "ok"


async def test_a_timeout_around_the_session_is_a_timeout() -> None:
    agent = await make_agent(never())
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0):
            await agent.session.execute("go")
    await goes_on(agent)


async def test_a_message_after_a_cancelled_run_is_refused_until_the_next_one() -> None:
    agent = await make_agent(never(), say("ok"))
    run = agent.start()
    await agent.provider.asked(1)
    await _cancelled(run)
    with pytest.raises(RunFinished):
        agent.inject("late")
    agent.progress.act_on("executing", lambda: agent.inject("in time"))
    await agent.run()
    assert "in time" in str(await agent.told())
