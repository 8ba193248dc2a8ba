"""Many tool calls in one answer: a bounded number runs side by side, and a bounded number runs at all."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from agents import (
    ScriptedTool,
    answer,
    call,
    deaf_tool,
    echo,
    goes_on,
    having,
    make_agent,
    results,
    say,
    soon,
    streaming,
    use,
)
from virtual_time import in_virtual_time

from orchestrator_interactive.kernel.contracts.messages import ToolCallBlock
from orchestrator_interactive.loop.tool_results import NOT_STARTED, STILL_RUNNING

if TYPE_CHECKING:
    from agents import Agent


class Counting:
    """A tool that waits for its gate, and the most calls of it that were ever at work."""

    def __init__(self, *, seconds: float = 0) -> None:
        self.gate = asyncio.Event()
        self.now = self.most = 0
        self._seconds = seconds
        self.tool = ScriptedTool("work", self._work)

    async def _work(self, given: dict[str, Any]) -> str:
        self.now += 1
        self.most = max(self.most, self.now)
        try:
            await (asyncio.sleep(self._seconds) if self._seconds else self.gate.wait())
        finally:
            self.now -= 1
        return f"done {given.get('text', '')}".strip()


def calls(count: int, name: str = "work") -> Any:
    return call(*(use(name, f"c{number}", text=str(number)) for number in range(count)))


async def rows_of_results(agent: Agent) -> list[str]:
    return [row["tool_call_id"] for row in await agent.history() if row["role"] == "tool"]


@pytest.mark.parametrize(("options", "most"), [({}, 8), ({"max_parallel_tools": 1}, 1), ({"max_parallel_tools": 3}, 3)])
@in_virtual_time
async def test_so_many_calls_run_side_by_side_and_each_has_one_result(options: dict[str, int], most: int) -> None:
    counting = Counting(seconds=1)
    agent = await make_agent(calls(20), say("ok"), tools=[counting.tool], **options)
    assert await agent.start() == "ok"
    assert counting.most == most
    assert await results(agent) == {f"c{number}": f"done {number}" for number in range(20)}
    assert [each["text"] for each in counting.tool.inputs] == [str(number) for number in range(20)], "in their order"


@in_virtual_time
async def test_the_time_limit_of_a_call_begins_with_its_tool() -> None:
    counting = Counting(seconds=4)
    agent = await make_agent(calls(3), say("ok"), tools=[counting.tool], max_parallel_tools=1, tool_timeout_s=5)
    await agent.start()
    assert list((await results(agent)).values()) == ["done 0", "done 1", "done 2"]


@in_virtual_time
async def test_a_tool_that_is_deaf_to_its_end_does_not_hold_up_the_calls_that_wait() -> None:
    release = asyncio.Event()
    deaf = having(deaf_tool(release), timeout_s=1)
    batch = call(use("deaf", "a"), use("echo", "b", text="next"))
    agent = await make_agent(batch, say("ok"), tools=[deaf, echo()], max_parallel_tools=1)
    await agent.start()
    assert (await results(agent))["b"] == "next"
    release.set()


async def test_a_stop_leaves_the_calls_that_wait_as_never_begun() -> None:
    counting = Counting()
    agent = await make_agent(calls(5), tools=[counting.tool], max_parallel_tools=2, stop_grace_s=600)
    run = agent.start()
    await counting.tool.started(2)
    agent.stop()
    counting.gate.set()
    await soon(run)
    assert len(counting.tool.inputs) == 2
    outcomes = await results(agent)
    assert [outcomes[f"c{number}"] for number in range(5)] == ["done 0", "done 1"] + [NOT_STARTED] * 3
    assert [each["outcome"] for each in agent.progress.of("complete")[0]["tools"]].count("cancelled") == 3
    await goes_on(agent)


async def test_an_urgent_message_leaves_waiting_calls_to_follow_and_those_of_the_next_answer_do_not_wait() -> None:
    counting = Counting()
    agent = await make_agent(
        calls(3),
        call(use("echo", "quick", text="at once")),
        say("So far."),
        *(say("More is done.") for _ in range(3)),
        tools=[counting.tool, echo()],
        max_parallel_tools=1,
    )
    run = agent.start()
    await counting.tool.started(1)
    agent.inject("!how far are you")
    await agent.progress.reached("text")
    outcomes = await results(agent)
    assert outcomes["quick"] == "at once"
    assert [outcomes[f"c{number}"] for number in range(3)] == [STILL_RUNNING] * 3
    counting.gate.set()
    await soon(run)
    assert counting.most == 1
    assert len(counting.tool.inputs) == 3


async def test_however_many_urgent_messages_come_the_calls_at_work_are_bounded() -> None:
    counting = Counting()
    steps = [call(*(use("work", f"r{r}c{n}") for n in range(4))) for r in range(5)]
    agent = await make_agent(*steps, *(say("x") for _ in range(25)), tools=[counting.tool], max_parallel_tools=1)
    run = agent.start()
    for answers in range(1, 5):
        await agent.progress.reached("thinking", answers)
        await counting.tool.started(min(answers, 3))
        agent.inject("!x")
    await agent.progress.reached("thinking", 5)
    counting.gate.set()
    await soon(run)
    assert counting.most == 3
    assert len(counting.tool.inputs) == 20


async def test_a_run_that_is_suspended_still_makes_the_calls_that_wait() -> None:
    counting = Counting()
    agent = await make_agent(calls(4), tools=[counting.tool], max_parallel_tools=2)
    run = agent.start()
    await counting.tool.started(2)
    assert agent.coordinator.get_capability("orchestrator.suspend")()
    counting.gate.set()
    await soon(run)
    assert list((await results(agent)).values()) == [f"done {number}" for number in range(4)]


async def test_calls_beyond_the_most_of_an_answer_fail_and_are_never_started() -> None:
    tool = echo()
    agent = await make_agent(calls(9, "echo"), say("ok"), tools=[tool], max_calls_per_answer=6)
    assert await agent.run() == "ok"
    assert len(tool.inputs) == 6
    assert sorted(await rows_of_results(agent)) == [f"c{number}" for number in range(9)]
    rows = {row["tool_call_id"]: row for row in await agent.history() if row["role"] == "tool"}
    for number in (6, 7, 8):
        assert "at most 6 tool calls" in rows[f"c{number}"]["content"]
        assert rows[f"c{number}"]["metadata"] == {"is_error": True}
    await goes_on(agent)


async def test_calls_that_begin_early_count_among_the_most_of_an_answer() -> None:
    blocks = [ToolCallBlock(id=f"c{number}", name="echo", input={"text": str(number)}) for number in range(9)]
    tool = having(echo(), side_effect_free=True)
    agent = await make_agent(
        streaming(*blocks, then=answer(*blocks)), say("ok"), tools=[tool, echo("other")], max_calls_per_answer=4
    )
    assert await agent.run() == "ok"
    assert len(tool.inputs) == 4
    assert sum("at most 4" in text for text in (await results(agent)).values()) == 5


async def test_a_thousand_calls_in_one_answer_have_a_thousand_results() -> None:
    agent = await make_agent(calls(1000), say("ok"), tools=[echo("work")], max_calls_per_answer=1000)
    assert await agent.run() == "ok"
    assert sorted(await rows_of_results(agent)) == sorted(f"c{number}" for number in range(1000))
