"""Notices wait for the next run; they never reach the running one, and none is lost."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from agents import after, call, echo, make_agent, say, told, use

if TYPE_CHECKING:
    from typing import Any

NOTICE = "[This happened since your last answer:]\n"


async def test_a_notice_leads_the_next_run() -> None:
    agent = await make_agent(say("ok"))
    agent.notify("the worker is done")
    agent.notify("so is the other")
    await agent.run()
    assert (await agent.told())[:2] == [("user", NOTICE + "- the worker is done\n- so is the other"), ("user", "go")]


async def test_a_notice_during_a_run_does_not_reach_it() -> None:
    gate = asyncio.Event()
    agent = await make_agent(call(use("echo", "a")), after(gate, say("one")), say("two"), tools=[echo()])
    agent.progress.act_on("tool:start", lambda: agent.notify("later"))
    run = agent.start()
    await agent.provider.asked(2)
    agent.notify("later still")
    gate.set()
    assert await run == "one"
    assert "later" not in str(told(agent.provider.sent()))
    await agent.run("next")
    assert told(agent.provider.sent())[-2:] == [("user", NOTICE + "- later\n- later still"), ("user", "next")]


async def test_a_notice_is_given_once() -> None:
    agent = await make_agent(say("one"), say("two"))
    agent.notify("done")
    await agent.run()
    await agent.run()
    assert str(await agent.told()).count("- done") == 1


async def test_a_notice_that_could_not_be_committed_is_not_lost() -> None:
    agent = await make_agent(say("ok"))
    agent.notify("done")

    async def refuse(_row: dict[str, Any]) -> None:
        raise OSError("disk full")

    agent.context.before = refuse
    with pytest.raises(OSError, match="disk full"):
        await agent.run()
    agent.context.before = None
    await agent.run()
    assert str(await agent.told()).count("- done") == 1


@pytest.mark.parametrize("moment", ["before", "after"])
async def test_a_notice_while_another_is_committed_is_not_lost(moment: str) -> None:
    agent = await make_agent(say("one"), say("two"))
    agent.notify("first")

    async def at_row(row: dict[str, Any]) -> None:
        if "first" in str(row["content"]):
            agent.notify("second")

    setattr(agent.context, moment, at_row)
    await agent.run()
    setattr(agent.context, moment, None)
    await agent.run()
    assert str(await agent.told()).count("- first") == 1
    assert str(await agent.told()).count("- second") == 1


async def test_a_notice_after_a_force_respond_tool_does_not_disturb_the_answer() -> None:
    agent = await make_agent(call(use("dispatch_worker", "a")), say("on it"), tools=[echo("dispatch_worker")])
    agent.progress.act_on("tool:end", lambda: agent.notify("the worker is done"))
    assert await agent.run() == "on it"
    assert len(agent.provider.requests) == 2
