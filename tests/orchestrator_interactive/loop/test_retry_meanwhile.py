"""While a run waits to ask a model again, people can write, steer and stop, and its tools go on."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from agents import call, fail, gated, make_agent, say, text_of, use
from virtual_time import Clock, in_virtual_time

from orchestrator_interactive import Injection
from orchestrator_interactive.kernel.contracts import errors

if TYPE_CHECKING:
    from agents import Agent

DOWN = errors.ProviderUnavailableError("down")
LONG_S = 30.0  # with jitter the wait is half of it at least


async def _waiting_agent(*steps: Any, **more: Any) -> tuple[Agent, asyncio.Task[str]]:
    """An agent whose model is down, so that it waits to ask it again."""
    agent = await make_agent(fail(DOWN), *steps, retry_base_delay_s=LONG_S, **more)
    run = agent.start()
    await agent.progress.reached("retrying")
    return agent, run


@in_virtual_time
async def test_what_people_write_during_the_wait_is_in_the_next_request() -> None:
    agent, run = await _waiting_agent(say("ok"))
    agent.inject("one")
    agent.inject("two")
    assert await run == "ok"
    assert text_of(agent.provider.sent(1)[-1]).endswith("- one\n- two")
    assert agent.provider.prefix_breaks() == []


@in_virtual_time
async def test_what_was_written_while_the_call_failed_is_in_the_next_request() -> None:
    agent = await make_agent(fail(DOWN), say("ok"))
    agent.progress.act_on("thinking", lambda: agent.inject("first"))
    agent.events.listen(agent.hooks, "provider:error").act_on("provider:error", lambda: agent.inject("second"))
    await agent.start()
    assert [text_of(row).endswith("- first\n- second") for row in agent.provider.sent(1)] == [False, True]


@in_virtual_time
async def test_an_urgent_message_waits_as_well_and_cuts_nothing() -> None:
    clock = Clock()
    agent = await make_agent(*map(clock.on, [fail(DOWN), say("ok")]), retry_base_delay_s=LONG_S)
    run = agent.start()
    await agent.progress.reached("retrying")
    agent.inject("!look here")
    assert await run == "ok"
    assert clock.waits[0] >= LONG_S / 2
    assert [len(agent.provider.requests), agent.provider.cancelled] == [2, 0]
    assert text_of(agent.provider.sent(1)[-1]).endswith("- !look here")


@in_virtual_time
async def test_a_message_can_be_edited_and_withdrawn_during_the_wait() -> None:
    agent, run = await _waiting_agent(say("ok"))
    agent.inject(Injection("blue", id="m1"))
    agent.inject(Injection("never mind", id="m2"))
    assert agent.coordinator.get_capability("orchestrator.edit_message")("m1", "red")
    assert agent.coordinator.get_capability("orchestrator.withdraw_message")("m2")
    await run
    assert text_of(agent.provider.sent(1)[-1]).endswith("]\n- red")


@pytest.mark.parametrize("immediate", [False, True])
@in_virtual_time
async def test_a_stop_ends_the_wait_at_once(immediate: bool) -> None:
    agent, run = await _waiting_agent()
    began_s = asyncio.get_running_loop().time()
    assert agent.stop(immediate=immediate)
    assert await run == ""
    assert asyncio.get_running_loop().time() - began_s < 1
    assert agent.progress.of("complete")[0]["status"] == "cancelled"
    assert len(agent.provider.requests) == 1


@in_virtual_time
async def test_what_waits_when_the_wait_is_stopped_leads_the_next_run() -> None:
    agent, run = await _waiting_agent(say("ok"))
    agent.inject("more")
    agent.stop()
    await run
    assert agent.progress.of("complete")[0]["waiting"] == 1
    agent.token.reset()
    await agent.start("again")
    assert [text.endswith("- more") for _, text in await agent.told()] == [False, True, False, False]


@pytest.mark.parametrize("event", ["provider:error", "provider:retry"])
@in_virtual_time
async def test_a_stop_while_hooks_hear_of_the_failure_ends_the_run(event: str) -> None:
    agent = await make_agent(fail(DOWN), retry_base_delay_s=LONG_S)
    agent.events.listen(agent.hooks, event).act_on(event, agent.stop)
    agent.events.hold(event, asyncio.Event())
    assert await agent.start() == ""
    assert agent.progress.of("complete")[0]["status"] == "cancelled"


@in_virtual_time
async def test_a_cancelled_task_does_not_wait_and_says_that_it_was_cancelled() -> None:
    agent, run = await _waiting_agent()
    began_s = asyncio.get_running_loop().time()
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    assert asyncio.get_running_loop().time() - began_s < 1
    assert agent.progress.of("complete")[0]["status"] == "cancelled"


@in_virtual_time
async def test_a_tool_at_work_goes_on_during_the_wait_and_its_result_is_in_the_next_request() -> None:
    gate = asyncio.Event()
    slow = gated(gate, "slow")
    agent = await make_agent(call(use("slow", "a", text="done")), fail(DOWN), say("ok"), tools=[slow])
    run = agent.start()
    await slow.started()
    agent.inject("!what is it doing")
    await agent.progress.reached("retrying")
    gate.set()
    assert await run == "ok"
    assert "done" in text_of(agent.provider.sent(2)[-1])
    assert slow.cancelled == 0
