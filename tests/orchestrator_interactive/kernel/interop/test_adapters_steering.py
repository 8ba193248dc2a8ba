"""Injections into a run of our loop in a session of amplifier-core, through the capabilities of its coordinator."""

import asyncio
from collections.abc import Callable
from typing import Any

from agents import call, gated, say, soon, text_of, use

from orchestrator_interactive.loop.injection_queue import NOTICE_PREFIX, PREFIX

Make = Callable[..., Any]


async def test_a_message_during_a_tool_follows_its_result_in_the_next_request(core_session: Make) -> None:
    gate = asyncio.Event()
    tool = gated(gate)
    session = await core_session(call(use("wait", "a", text="result")), say("Done."), tools=[tool])
    run = session.start()
    await tool.started()
    session.capability("orchestrator.inject_message")("also check the budget")
    gate.set()
    assert await soon(run) == "Done."
    assert [text_of(row) for row in session.provider.sent()] == [
        "go",
        "",
        "result",
        f"{PREFIX}\n- also check the budget",
    ]
    (applied,) = session.events.of("injection:applied")
    assert (applied["count"], applied["messages"]) == (1, ["also check the budget"])


async def test_a_notice_waits_for_the_next_run(core_session: Make) -> None:
    session = await core_session(say("One."), say("Two."))
    session.capability("orchestrator.notify")("The build is green.")
    await session.run("1")
    session.capability("orchestrator.notify")("The build is red.")
    await session.run("2")
    texts = [text_of(row) for row in await session.rows()]
    assert texts == [
        f"{NOTICE_PREFIX}\n- The build is green.",
        "1",
        "One.",
        f"{NOTICE_PREFIX}\n- The build is red.",
        "2",
        "Two.",
    ]
