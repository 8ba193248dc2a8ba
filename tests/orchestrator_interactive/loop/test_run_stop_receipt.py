"""A stop holds for its run only, and what it leaves behind is told exactly."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from agents import (
    call,
    deaf_tool,
    echo,
    gated,
    having,
    make_agent,
    never,
    raising,
    say,
    soon,
    streaming,
    use,
)
from virtual_time import in_virtual_time

from orchestrator_interactive import Injection
from orchestrator_interactive.kernel import HookResult

if TYPE_CHECKING:
    from agents import Agent

# Far longer than a test takes: what ends by itself after this long would be a hang.
LONG_S = 600


async def _streaming() -> tuple[Agent, Any]:
    agent = await make_agent(streaming("so far", then=never()))
    run = agent.start()
    await agent.provider.asked(1)
    return agent, run


def _run_id(agent: Agent) -> str:
    run_id: str = agent.progress.of("executing")[-1]["run"]
    return run_id


class TestTheFence:
    async def test_a_stop_for_this_run_stops_it(self) -> None:
        agent, run = await _streaming()
        assert agent.stop(run_id=_run_id(agent))
        assert await soon(run) == "so far"

    @pytest.mark.parametrize("immediate", [False, True])
    async def test_a_stop_that_is_older_than_the_run_does_nothing_to_it(self, *, immediate: bool) -> None:
        gate = asyncio.Event()
        agent = await make_agent(say("one"), streaming(gate, then=say("two")))
        await agent.run()
        old = _run_id(agent)
        run = agent.start()
        await agent.provider.asked(2)
        assert _run_id(agent) != old
        assert not agent.stop(immediate=immediate, run_id=old)
        gate.set()
        assert await soon(run) == "two"
        assert agent.progress.of("complete")[-1]["status"] == "success"

    async def test_it_does_not_make_a_graceful_stop_an_immediate_one_either(self) -> None:
        gate = asyncio.Event()
        tool = gated(gate)
        agent = await make_agent(call(use("wait", "a")), tools=[tool], stop_grace_s=LONG_S)
        run = agent.start()
        await tool.started()
        assert agent.stop(run_id=_run_id(agent))
        assert not agent.stop(immediate=True, run_id="another")
        gate.set()
        await soon(run)
        assert tool.cancelled == 0

    async def test_a_stop_by_name_is_known_from_the_first_event_on(self) -> None:
        agent = await make_agent()
        agent.progress.act_on("executing", lambda: stopped.append(agent.stop(run_id=_run_id(agent))))
        stopped: list[bool] = []
        await agent.run()
        assert stopped == [True]
        assert agent.provider.requests == []


class TestTheReceipt:
    @in_virtual_time
    async def test_it_names_tools_by_what_became_of_them(self) -> None:
        gate, held, release = asyncio.Event(), asyncio.Event(), asyncio.Event()
        stuck, deaf = gated(gate, "stuck"), deaf_tool(release)
        looking = having(gated(gate, "look"), side_effect_free=True, label=lambda given: f"Looking at {given['at']}")
        batch = call(
            use("echo", "done"),
            use("break", "broken"),
            use("nope", "unknown to us"),
            use("stuck", "running"),
            use("deaf", "deaf"),
            use("look", "looking", at="it"),
            use("held", "held"),
        )
        tools = [echo(), raising(OSError("no disk")), stuck, deaf, looking, echo("held")]
        agent = await make_agent(batch, tools=tools)

        async def hold(_event: str, data: dict[str, Any]) -> HookResult:
            if data["tool_name"] == "held":
                held.set()
                await asyncio.Event().wait()
            return HookResult()

        agent.hooks.register("tool:pre", hold)
        run = agent.start()
        await soon(asyncio.gather(held.wait(), stuck.started(), deaf.started(), looking.started()))
        await agent.progress.reached("tool:end", 2)
        agent.stop(immediate=True)
        await soon(run)
        release.set()
        tools_told = agent.progress.of("complete")[0]["tools"]
        assert {each["id"]: each["outcome"] for each in tools_told} == {
            "done": "finished",
            "broken": "failed",
            "unknown to us": "failed",
            "running": "unknown",
            "deaf": "unknown",
            "looking": "cancelled",
            "held": "cancelled",
        }
        assert {each["id"]: each["tool"] for each in tools_told}["deaf"] == "deaf"
        assert [each["label"] for each in tools_told if each["label"]] == ["Looking at it"]

    async def test_a_tool_that_ends_within_the_grace_period_has_finished(self) -> None:
        gate = asyncio.Event()
        tool = gated(gate)
        agent = await make_agent(call(use("wait", "a")), tools=[tool], stop_grace_s=LONG_S)
        run = agent.start()
        await tool.started()
        agent.stop()
        gate.set()
        await soon(run)
        assert [each["outcome"] for each in agent.progress.of("complete")[0]["tools"]] == ["finished"]

    async def test_a_result_that_nobody_has_checked_was_an_end_all_the_same(self) -> None:
        agent = await make_agent(call(use("echo", "a")), tools=[echo()])
        agent.events.listen(agent.hooks, "tool:post").hold("tool:post", asyncio.Event())
        run = agent.start()
        await agent.events.reached("tool:post")
        agent.stop(immediate=True)
        await soon(run)
        assert [each["outcome"] for each in agent.progress.of("complete")[0]["tools"]] == ["finished"]

    async def test_tools_of_all_the_turns_are_named_in_order(self) -> None:
        agent = await make_agent(call(use("echo", "a")), call(use("echo", "b")), say("ok"), tools=[echo()])
        await agent.run()
        assert [each["id"] for each in agent.progress.of("complete")[0]["tools"]] == ["a", "b"]
        agent.provider.add(say("next"))
        await agent.run()
        assert agent.progress.of("complete")[1]["tools"] == []

    async def test_each_message_stands_where_it_ended(self) -> None:
        agent = await make_agent(call(use("echo", "a")), streaming("so far", then=never()), tools=[echo()])
        agent.inject(Injection("read", id="1"))
        run = agent.start()
        await agent.provider.asked(2)
        for number in "23":
            agent.inject(Injection("more", id=number))
        agent.withdraw("2")
        agent.stop()
        assert await soon(run) == "so far"
        assert agent.progress.of("complete")[0]["messages"] == [
            {"id": "1", "state": "delivered", "iteration": 1},
            {"id": "2", "state": "withdrawn", "iteration": None},
            {"id": "3", "state": "waiting", "iteration": None},
        ]

    @pytest.mark.parametrize("moment", ["while it streams", "after it was cut"])
    async def test_the_text_so_far_is_kept_returned_and_not_shown_as_an_answer(self, moment: str) -> None:
        agent = await make_agent(streaming("so far", then=never()), streaming(" and on", then=never()))
        run = agent.start()
        await agent.provider.asked(1)
        if moment == "after it was cut":
            agent.inject(Injection("!now", id="1"))
            agent.withdraw("1")
            await agent.provider.asked(2)
        agent.stop()
        text = "so far and on" if moment == "after it was cut" else "so far"
        assert await soon(run) == text
        assert "".join(said for role, said in await agent.told() if role == "assistant") == text
        assert agent.progress.of("text") == []

    async def test_its_reason_is_nobodys_limit(self) -> None:
        agent, run = await _streaming()
        agent.stop()
        await soon(run)
        assert "reason" not in agent.progress.of("complete")[0]
