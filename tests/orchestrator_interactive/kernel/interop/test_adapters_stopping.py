"""Stopping a run of our loop in a session of amplifier-core, through each of its interfaces.

amplifier-core does not reset its token after a cancelled run: an application resets it before the next run.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from agents import call, faults, gated, never, say, soon, streaming, text_of, told, use

from orchestrator_interactive.loop.tool_results import UNKNOWN_OUTCOME

Make = Callable[..., Any]
Stop = Callable[[Any], Awaitable[object]]


async def request_cancel(session: Any) -> None:
    await soon(session.coordinator.request_cancel())


async def request_cancel_immediately(session: Any) -> None:
    await soon(session.coordinator.request_cancel(immediate=True))


async def token_graceful(session: Any) -> None:
    assert session.coordinator.cancellation.request_graceful()


async def token_immediate(session: Any) -> None:
    assert session.coordinator.cancellation.request_immediate()


async def capability_graceful(session: Any) -> None:
    assert session.capability("orchestrator.stop")()


async def capability_immediate(session: Any) -> None:
    assert session.capability("orchestrator.stop")(immediate=True)


GRACEFUL = [request_cancel, token_graceful, capability_graceful]
IMMEDIATE = [request_cancel_immediately, token_immediate, capability_immediate]


@pytest.mark.parametrize("stop", [*GRACEFUL, *IMMEDIATE])
async def test_a_stop_ends_the_model_call_and_the_next_run_continues(core_session: Make, stop: Stop) -> None:
    session = await core_session(streaming("Half an ", then=never()), say("Again."))
    run = session.start("long")
    await session.provider.asked(1)
    await stop(session)
    assert await soon(run) == "Half an "
    assert session.provider.cancelled == 1
    session.coordinator.cancellation.reset()
    assert await session.run("once more") == "Again."
    assert told(session.provider.sent()) == [("user", "long"), ("assistant", "Half an "), ("user", "once more")]


@pytest.mark.parametrize("stop", IMMEDIATE)
async def test_an_immediate_stop_cancels_tools_and_keeps_the_log_valid(core_session: Make, stop: Stop) -> None:
    tool = gated(asyncio.Event())
    session = await core_session(call(use("wait", "a"), use("wait", "b")), say("Again."), tools=[tool])
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
async def test_a_graceful_stop_lets_running_tools_finish(core_session: Make, stop: Stop) -> None:
    gate = asyncio.Event()
    tool = gated(gate)
    session = await core_session(call(use("wait", "a", text="made it")), tools=[tool], loop={"stop_grace_s": 60})
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


async def test_a_stop_emits_the_events_of_both_sides(core_session: Make) -> None:
    session = await core_session(never())
    run = session.start()
    await session.provider.asked(1)
    await token_graceful(session)
    await soon(run)
    assert session.events.names()[-4:] == [
        "cancel:requested",
        "execution:end",
        "orchestrator:complete",
        "cancel:completed",
    ]
    assert session.events.of("execution:end")[0]["status"] == "cancelled"
    assert session.events.of("orchestrator:complete")[0]["status"] == "cancelled"


async def test_without_a_reset_the_next_run_is_stopped_at_once(core_session: Make) -> None:
    session = await core_session(never(), say("Here."))
    run = session.start()
    await session.provider.asked(1)
    await capability_graceful(session)
    await soon(run)
    assert session.coordinator.cancellation.is_graceful
    assert await session.run("next") == ""
    session.coordinator.cancellation.reset()
    assert await session.run("next") == "Here."


async def test_a_stop_without_a_run_has_no_effect(core_session: Make) -> None:
    session = await core_session(say("Done."))
    assert not session.capability("orchestrator.stop")()
    assert await session.run() == "Done."
    assert not session.capability("orchestrator.stop")()
    assert not session.coordinator.cancellation.is_cancelled


async def test_a_run_whose_caller_was_cancelled_can_be_stopped(core_session: Make) -> None:
    """amplifier-core does not cancel the orchestrator with its caller; only the token reaches it."""
    session = await core_session(never(), say("Here."))
    before = asyncio.all_tasks()
    run = session.start()
    await session.provider.asked(1)
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await soon(run)
    remaining = asyncio.all_tasks() - before
    assert remaining
    assert session.capability("orchestrator.stop")()
    await soon(asyncio.wait(remaining))
    assert session.events.names()[-1] == "orchestrator:complete"
    session.coordinator.cancellation.reset()
    assert await session.run("next") == "Here."
