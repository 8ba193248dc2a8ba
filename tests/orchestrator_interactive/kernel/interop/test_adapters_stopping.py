"""Stopping a run of our loop in a session of amplifier-core, through each of the doors that there are.

amplifier-core leaves its token as it is when a cancelled run has ended: whoever starts the next run resets it first, as
its own applications do.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from agents import call, faults, gated, never, say, soon, streaming, text_of, told, use

from orchestrator_interactive.loop.tool_call import UNKNOWN_OUTCOME

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    Make = Callable[..., Any]
    Stop = Callable[[Any], Awaitable[object]]


async def request_cancel(session: Any) -> None:
    await soon(session.coordinator.request_cancel())


async def request_cancel_immediately(session: Any) -> None:
    await soon(session.coordinator.request_cancel(immediate=True))


async def ask_the_token(session: Any) -> None:
    assert session.coordinator.cancellation.request_graceful()


async def urge_the_token(session: Any) -> None:
    assert session.coordinator.cancellation.request_immediate()


async def ask_the_loop(session: Any) -> None:
    assert session.capability("orchestrator.stop")()


async def urge_the_loop(session: Any) -> None:
    assert session.capability("orchestrator.stop")(immediate=True)


GRACEFUL = [request_cancel, ask_the_token, ask_the_loop]
IMMEDIATE = [request_cancel_immediately, urge_the_token, urge_the_loop]


@pytest.mark.parametrize("stop", [*GRACEFUL, *IMMEDIATE])
async def test_a_stop_ends_the_call_to_the_model_and_the_next_run_goes_on(abroad: Make, stop: Stop) -> None:
    session = await abroad(streaming("Half an ", then=never()), say("Again."))
    run = session.start("long")
    await session.provider.asked(1)
    await stop(session)
    assert await soon(run) == "Half an "
    assert session.provider.cancelled == 1
    session.coordinator.cancellation.reset()
    assert await session.run("once more") == "Again."
    assert told(session.provider.sent()) == [("user", "long"), ("assistant", "Half an "), ("user", "once more")]


@pytest.mark.parametrize("stop", IMMEDIATE)
async def test_an_immediate_stop_ends_tools_and_keeps_every_pair(abroad: Make, stop: Stop) -> None:
    tool = gated(asyncio.Event())
    session = await abroad(call(use("wait", "a"), use("wait", "b")), say("Again."), tools=[tool])
    run = session.start()
    await tool.started(2)
    await stop(session)
    await soon(run)
    assert tool.cancelled == 2
    rows = await session.rows()
    assert faults(rows) == []
    assert [text_of(row) for row in rows if row["role"] == "tool"] == [UNKNOWN_OUTCOME] * 2
    session.coordinator.cancellation.reset()
    assert await session.run("once more") == "Again."


@pytest.mark.parametrize("stop", GRACEFUL)
async def test_a_graceful_stop_lets_running_tools_finish(abroad: Make, stop: Stop) -> None:
    gate = asyncio.Event()
    tool = gated(gate)
    session = await abroad(call(use("wait", "a", text="made it")), tools=[tool], loop={"stop_grace_s": 60})
    run = session.start()
    await tool.started()
    await stop(session)
    gate.set()
    await soon(run)
    assert (tool.finished, tool.cancelled) == (1, 0)
    rows = await session.rows()
    assert faults(rows) == []
    assert text_of(rows[-1]) == "made it"
    assert len(session.provider.requests) == 1


async def test_a_second_stop_is_the_harder_one(abroad: Make) -> None:
    tool = gated(asyncio.Event())
    session = await abroad(call(use("wait", "a")), tools=[tool], loop={"stop_grace_s": 60})
    run = session.start()
    await tool.started()
    await request_cancel(session)
    await request_cancel_immediately(session)
    await soon(run)
    assert tool.cancelled == 1


async def test_a_stop_is_told_by_both_sides(abroad: Make) -> None:
    session = await abroad(never())
    run = session.start()
    await session.provider.asked(1)
    await ask_the_token(session)
    await soon(run)
    assert session.events.names()[-4:] == [
        "cancel:requested",
        "execution:end",
        "orchestrator:complete",
        "cancel:completed",
    ]
    assert session.events.of("execution:end")[0]["status"] == "cancelled"
    assert session.events.of("orchestrator:complete")[0]["status"] == "cancelled"


async def test_without_a_reset_the_next_run_is_stopped_too(abroad: Make) -> None:
    session = await abroad(never(), say("Here."))
    run = session.start()
    await session.provider.asked(1)
    await ask_the_loop(session)
    await soon(run)
    assert session.coordinator.cancellation.is_graceful
    assert await session.run("next") == ""
    session.coordinator.cancellation.reset()
    assert await session.run("next") == "Here."


async def test_without_a_run_the_loop_has_nothing_to_stop(abroad: Make) -> None:
    session = await abroad(say("Done."))
    assert not session.capability("orchestrator.stop")()
    assert await session.run() == "Done."
    assert not session.capability("orchestrator.stop")()
    assert not session.coordinator.cancellation.is_cancelled


async def test_what_was_not_read_leads_the_next_run(abroad: Make) -> None:
    session = await abroad(never(), say("Both."))
    run = session.start("long")
    await session.provider.asked(1)
    session.capability("orchestrator.inject_message")("and this")
    await ask_the_loop(session)
    await soon(run)
    session.coordinator.cancellation.reset()
    assert await session.run("go on") == "Both."
    assert "and this" in text_of(session.provider.sent()[-2])


async def test_a_run_whose_caller_has_gone_can_still_be_stopped(abroad: Make) -> None:
    """amplifier-core does not pass a cancellation on to the orchestrator: the token is what reaches it."""
    session = await abroad(never(), say("Here."))
    before = asyncio.all_tasks()
    run = session.start()
    await session.provider.asked(1)
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await soon(run)
    left_behind = asyncio.all_tasks() - before
    assert left_behind
    assert session.capability("orchestrator.stop")()
    await soon(asyncio.wait(left_behind))
    assert session.events.names()[-1] == "orchestrator:complete"
    session.coordinator.cancellation.reset()
    assert await session.run("next") == "Here."
