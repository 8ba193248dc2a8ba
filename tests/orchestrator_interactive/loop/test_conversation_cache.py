"""A session at rest takes up little memory: a moment after its run; later, where much would have to be read again."""

import asyncio
import gc
from collections.abc import Coroutine
from typing import Any
from weakref import ref

from orchestrator_interactive.kernel import AmplifierSession
from orchestrator_interactive.testing import MockProvider

PLAN = {"session": {"orchestrator": "loop-interactive", "context": "context-simple"}}


class LaterLoop(asyncio.SelectorEventLoop):
    """An event loop whose clock can be put forward."""

    ahead_s = 0.0

    def time(self) -> float:
        return super().time() + self.ahead_s

    async def put_forward(self, by_s: float) -> None:
        self.ahead_s += by_s
        await asyncio.sleep(0.02)  # what is due is done now


def _run(test: Coroutine[Any, Any, None]) -> None:
    with asyncio.Runner(loop_factory=LaterLoop) as runner:
        runner.run(test)


async def _a_session(rows: int) -> tuple[AmplifierSession, list[str]]:
    """A session with so many rows, and what notes how often its context is put to rest."""
    session, rests = AmplifierSession(PLAN), []
    await session.initialize()
    await session.coordinator.mount("providers", MockProvider(), name="mock")
    context = session.coordinator.get("context")
    pair = [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Hello."}]
    await context.set_messages(pair * (rows // 2))

    def rest() -> None:
        rests.append("now")
        context.rest()

    session.coordinator.register_capability("context.rest", rest)
    return session, rests


def test_a_short_conversation_rests_a_moment_after_its_run() -> None:
    async def test() -> None:
        session, rests = await _a_session(10)
        clock = asyncio.get_running_loop()
        assert isinstance(clock, LaterLoop)
        for number in (1, 2):
            assert await session.execute("Hello") == "Mock response"
            assert len(rests) == number - 1
            await clock.put_forward(2)
            assert len(rests) == number
        assert len(await session.coordinator.get("context").get_messages()) == 14

    _run(test())


def test_a_long_one_rests_after_a_while_in_which_nothing_runs() -> None:
    async def test() -> None:
        session, rests = await _a_session(200)
        clock = asyncio.get_running_loop()
        assert isinstance(clock, LaterLoop)
        for _ in range(3):
            await session.execute("Hello")
            await clock.put_forward(50)
        assert rests == []
        await clock.put_forward(15)
        assert rests == ["now"]
        await clock.put_forward(1000)
        assert rests == ["now"]
        await session.execute("Hello")
        assert len(await session.coordinator.get("context").get_messages()) == 208

    _run(test())


def test_a_session_that_somebody_drops_goes_though_it_was_to_rest_later() -> None:
    async def test() -> None:
        session, rests = await _a_session(200)
        await session.execute("Hello")
        orchestrator = ref(session.coordinator.get("orchestrator"))
        del session
        gc.collect()
        assert orchestrator() is None
        clock = asyncio.get_running_loop()
        assert isinstance(clock, LaterLoop)
        await clock.put_forward(100)
        assert rests == []

    _run(test())


def test_a_session_that_has_ended_is_not_put_to_rest() -> None:
    async def test() -> None:
        session, rests = await _a_session(200)
        clock = asyncio.get_running_loop()
        assert isinstance(clock, LaterLoop)
        await session.execute("Hello")
        await session.cleanup()
        await clock.put_forward(100)
        assert rests == []

    _run(test())
