"""A time limit that costs nothing until something waits."""

import asyncio
from typing import Any

import pytest
from agents import soon

from orchestrator_interactive.kernel.timeout import within


async def test_what_never_waits_gives_its_result() -> None:
    async def at_once() -> str:
        return "done"

    assert await within(0, at_once()) == "done"


async def test_what_never_waits_raises_its_error() -> None:
    async def fails() -> None:
        raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        await within(1, fails())


async def test_what_waits_gets_what_it_waits_for_and_gives_its_result() -> None:
    answers = [asyncio.get_running_loop().create_future() for _ in range(3)]

    async def asks() -> list[Any]:
        return [await answer for answer in answers]

    asked = asyncio.create_task(within(10, asks()))
    for number, answer in enumerate(answers):
        await asyncio.sleep(0)
        answer.set_result(number)
    assert await soon(asked) == [0, 1, 2]


async def test_errors_reach_what_waits_and_its_own_come_out() -> None:
    answer = asyncio.get_running_loop().create_future()

    async def translates() -> None:
        try:
            await answer
        except KeyError as e:
            raise ValueError("not found") from e

    asked = asyncio.create_task(within(10, translates()))
    await asyncio.sleep(0)
    answer.set_exception(KeyError("x"))
    with pytest.raises(ValueError, match="not found"):
        await soon(asked)


async def test_what_takes_too_long_is_cancelled_and_may_clean_up() -> None:
    cleaned: list[str] = []

    async def hangs() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            cleaned.append("up")

    with pytest.raises(TimeoutError):
        await soon(within(0.001, hangs()))
    assert cleaned == ["up"]


async def test_cancelling_the_waiter_cancels_what_it_waits_for() -> None:
    cancelled = asyncio.Event()

    async def waits() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise

    task = asyncio.create_task(within(10, waits()))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await soon(task)
    assert cancelled.is_set()


async def test_a_time_limit_of_its_own_works_inside() -> None:
    async def impatient() -> str:
        try:
            async with asyncio.timeout(0.001):
                await asyncio.Event().wait()
        except TimeoutError:
            return "its own"
        return "never"

    assert await soon(within(10, impatient())) == "its own"


async def test_a_future_is_limited_too() -> None:
    with pytest.raises(TimeoutError):
        await within(0.001, asyncio.get_running_loop().create_future())
