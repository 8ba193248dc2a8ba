"""Cancelling the task that awaits a session ends everything that it started, and leaves a valid history."""

import asyncio
from typing import Any

import pytest
from agents import call, deaf, deaf_tool, echo, gated, goes_on, make_agent, never, results, say, soon, use

from orchestrator_interactive import RunFinished


async def _cancelled(run: asyncio.Task[str], *, times: int = 1) -> None:
    for _ in range(times - 1):
        run.cancel()
        for _ in range(3):
            await asyncio.sleep(0)
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await soon(run)


async def test_it_cancels_the_model_call_and_the_next_run_may_follow_at_once() -> None:
    agent = await make_agent(never(), say("ok"))
    run = await agent.asked()
    await _cancelled(run)
    assert agent.provider.cancelled == 1
    assert await agent.run() == "ok"


async def test_it_cancels_tools_and_answers_each_call() -> None:
    tool = gated(asyncio.Event())
    agent = await make_agent(call(use("wait", "a"), use("wait", "b"), use("echo", "c")), tools=[tool, echo()])
    before = asyncio.all_tasks()
    run = await agent.in_tool(tool, 2)
    await agent.progress.reached("tool:end")
    await _cancelled(run)
    assert tool.cancelled == 2
    assert asyncio.all_tasks() == before
    found = await results(agent)
    assert {call_id for call_id, text in found.items() if "unknown" in text} == {"a", "b"}
    assert found["c"] == "echo"
    await goes_on(agent)


@pytest.mark.parametrize("times", [1, 2])
async def test_a_model_call_that_ignores_it_does_not_hold_it_up(times: int) -> None:
    errors: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: errors.append(context))
    release = asyncio.Event()
    agent = await make_agent(deaf(release, say("late")))
    await _cancelled(await agent.asked(), times=times)
    await goes_on(agent)
    reached = asyncio.Event()
    asyncio.get_running_loop().call_later(0.35, reached.set)  # after the loop has given up on the call
    await reached.wait()
    release.set()
    assert errors == []


@pytest.mark.parametrize("times", [1, 2])
async def test_a_tool_that_ignores_it_does_not_hold_it_up_and_its_calls_are_answered(times: int) -> None:
    release = asyncio.Event()
    tool = deaf_tool(release)
    agent = await make_agent(call(use("deaf", "a"), use("deaf", "b")), tools=[tool])
    await _cancelled(await agent.in_tool(tool, 2), times=times)
    release.set()
    assert list(await results(agent)) == ["a", "b"]
    await goes_on(agent)


@pytest.mark.parametrize("event", ["executing", "thinking", "tool:start", "tool:end"])
async def test_at_a_progress_event_it_leaves_a_valid_history(event: str) -> None:
    agent = await make_agent(call(use("echo", "a")), say("ok"), tools=[echo()])
    await _cancelled(await agent.held_at(event))
    agent.release()
    await goes_on(agent)


async def test_while_the_calls_are_committed_it_leaves_a_valid_next_request() -> None:
    agent = await make_agent(call(use("echo", "a")), tools=[echo()])
    reached = agent.context.hold("after", lambda row: row["role"] == "assistant")
    run = agent.start()
    await soon(reached.wait())
    await _cancelled(run)
    agent.context.accept()
    agent.provider.add(say("next answer"))
    assert await agent.run("next") == "next answer"


async def test_before_the_first_step_it_starts_nothing() -> None:
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


async def test_messages_are_refused_until_the_next_run() -> None:
    agent = await make_agent(never(), say("ok"))
    await _cancelled(await agent.asked())
    with pytest.raises(RunFinished):
        agent.inject("late")
    agent.progress.act_on("executing", lambda: agent.inject("in time"))
    await agent.run()
    assert "in time" in str(await agent.told())
