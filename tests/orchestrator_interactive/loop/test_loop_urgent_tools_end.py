"""A run that ends while calls are still at work that an urgent message left behind."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from agents import (
    call,
    fail,
    gated,
    goes_on,
    having,
    late_results,
    make_agent,
    never,
    say,
    soon,
    text_of,
    use,
)

from orchestrator_interactive.kernel.contracts.errors import InvalidRequestError
from orchestrator_interactive.loop.tool_results import LATE_PREFIX

if TYPE_CHECKING:
    from typing import Any

    from agents import Agent

# Far longer than a test takes: a grace period that ends by itself would be a hang.
LONG_S = 600


def late(*lines: str) -> tuple[str, str]:
    return "user", "\n".join([LATE_PREFIX, *lines])


class Work:
    """An agent whose tool `wait` is at work; the model answered a steer that came meanwhile."""

    def __init__(self) -> None:
        self.gate = asyncio.Event()
        self.tool = gated(self.gate)

    async def steered(self, *steps: Any, tools: Any = (), batch: Any = None, **more: Any) -> Agent:
        batch = batch or call(use("wait", "a"))
        self.agent = agent = await make_agent(batch, *steps, tools=[self.tool, *tools], **more)
        self.run = agent.start()
        await self.tool.started()
        agent.inject("!now")
        return agent

    async def waits(self, number: int = 1) -> None:
        """The model has said something while the tool is at work, and the run waits for it."""
        await self.agent.progress.reached("text", number)

    async def ends(self) -> str:
        self.gate.set()
        return await soon(self.run)


class TestTheEnd:
    @pytest.mark.parametrize("immediate", [False, True])
    @pytest.mark.parametrize("answering", [False, True])
    async def test_a_stop_cuts_them_and_says_that_their_outcome_is_unknown(
        self, *, immediate: bool, answering: bool
    ) -> None:
        work = Work()
        agent = await work.steered(never() if answering else say("meanwhile"), stop_grace_s=0)
        await (agent.provider.asked(2) if answering else work.waits())
        agent.stop(immediate=immediate)
        await soon(work.run)
        [row] = await late_results(agent)
        assert "unknown" in text_of(row)
        assert work.tool.cancelled == 1
        [complete] = agent.progress.of("complete")
        assert complete["tools"] == [{"tool": "wait", "id": "a", "label": None, "outcome": "unknown"}]
        await goes_on(agent)

    async def test_a_graceful_stop_lets_them_finish(self) -> None:
        work = Work()
        agent = await work.steered(say("meanwhile"), stop_grace_s=LONG_S)
        await work.waits()
        agent.stop()
        await work.ends()
        assert (await agent.told())[-1] == late("- call a, wait: wait")
        assert agent.progress.of("complete")[0]["tools"][0]["outcome"] == "finished"
        await goes_on(agent)

    async def test_a_stop_at_the_same_instant_is_a_stop(self) -> None:
        work = Work()
        agent = await work.steered(stop_grace_s=0)
        agent.stop()
        await soon(work.run)
        assert agent.progress.of("complete")[0].items() >= {"status": "cancelled", "waiting": 1}.items()
        await goes_on(agent)

    async def test_cancelling_the_caller_cuts_them_and_leaves_a_valid_history(self) -> None:
        work = Work()
        before = asyncio.all_tasks()
        agent = await work.steered(say("meanwhile"))
        await work.waits()
        work.run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await soon(work.run)
        assert "unknown" in text_of((await late_results(agent))[0])
        assert asyncio.all_tasks() == before
        await goes_on(agent)

    async def test_a_failure_of_the_model_cuts_them_and_leaves_a_valid_history(self) -> None:
        work = Work()
        agent = await work.steered(fail(InvalidRequestError("no")))
        with pytest.raises(InvalidRequestError):
            await soon(work.run)
        assert "unknown" in text_of((await late_results(agent))[0])
        assert work.tool.cancelled == 1
        await goes_on(agent)

    async def test_one_without_side_effects_was_cancelled_and_nothing_else(self) -> None:
        work = Work()
        having(work.tool, side_effect_free=True)
        agent = await work.steered(say("meanwhile"), stop_grace_s=0)
        await work.waits()
        agent.stop()
        await soon(work.run)
        assert agent.progress.of("complete")[0]["tools"][0]["outcome"] == "cancelled"

    async def test_one_that_takes_too_long_is_cut_and_told(self) -> None:
        tool = having(gated(asyncio.Event()), timeout_s=0.01)
        agent = await make_agent(call(use("wait", "a")), say("meanwhile"), say("done"), tools=[tool])
        run = agent.start()
        await tool.started()
        agent.inject("!now")
        assert await soon(run) == "done"
        assert "after 0.01 seconds" in text_of((await late_results(agent))[0])

    async def test_the_events_of_each_call_are_closed(self) -> None:
        work = Work()
        agent = await work.steered(say("meanwhile"), say("done"), stop_grace_s=0)
        await work.waits()
        agent.events.listen(agent.hooks, "tool:post", "tool:error")
        agent.stop(immediate=True)
        await soon(work.run)
        assert agent.events.names() == ["tool:error"]
        assert [data["success"] for data in agent.progress.of("tool:end")] == [False]
