"""A session that is idle frees the memory of its conversation: soon if it is short, later if it is long."""

import asyncio
import gc
from typing import Any
from weakref import ref

import pytest
from virtual_time import in_virtual_time

from orchestrator_interactive.kernel import AmplifierSession
from orchestrator_interactive.testing import MockProvider

PLAN = {"session": {"orchestrator": "loop-interactive", "context": "context-simple"}}


async def _session(rows: int) -> tuple[AmplifierSession, list[str]]:
    """A session with so many rows, and a list that grows each time its context rests."""
    session, rests = AmplifierSession(PLAN), []
    await session.initialize()
    await session.coordinator.mount("providers", MockProvider(), name="mock")
    context = session.coordinator.get("context")
    pair = [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Hello."}]
    await context.set_messages(pair * (rows // 2))

    def rest() -> None:
        rests.append("now")
        context.compress()

    session.coordinator.register_capability("context.compress", rest)
    return session, rests


@in_virtual_time
async def test_a_short_conversation_rests_two_seconds_after_each_run() -> None:
    session, rests = await _session(10)
    for number in (1, 2):
        assert await session.execute("Hello") == "Mock response"
        assert len(rests) == number - 1
        await asyncio.sleep(2)
        assert len(rests) == number
    assert len(await session.coordinator.get("context").get_messages()) == 14


@in_virtual_time
async def test_a_long_one_rests_once_after_a_minute_without_a_run() -> None:
    session, rests = await _session(200)
    for _ in range(3):
        await session.execute("Hello")
        await asyncio.sleep(50)
    assert rests == []
    await asyncio.sleep(15)
    assert rests == ["now"]
    await asyncio.sleep(1000)
    assert rests == ["now"]
    await session.execute("Hello")
    assert len(await session.coordinator.get("context").get_messages()) == 208


@pytest.mark.parametrize("how", ["dropped", "cleaned up"])
@in_virtual_time
async def test_a_session_that_is_gone_does_not_rest(how: str) -> None:
    session: Any
    session, rests = await _session(200)
    await session.execute("Hello")
    orchestrator = ref(session.coordinator.get("orchestrator"))
    if how == "cleaned up":
        await session.cleanup()
    else:
        del session
        gc.collect()
        assert orchestrator() is None
    await asyncio.sleep(100)
    assert rests == []
