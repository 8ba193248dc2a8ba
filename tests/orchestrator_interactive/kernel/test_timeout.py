"""A timeout cancels a coroutine that takes too long, and changes nothing else about it."""

import asyncio
from typing import Any

import pytest
from agents import soon

from orchestrator_interactive.kernel.timeout import with_timeout


@pytest.mark.parametrize("outcome", ["done", ValueError("broken")])
async def test_a_coroutine_that_does_not_wait_has_its_outcome(outcome: Any) -> None:
    async def at_once() -> str:
        if isinstance(outcome, Exception):
            raise outcome
        return str(outcome)

    if outcome == "done":
        assert await with_timeout(0, at_once()) == "done"
    else:
        with pytest.raises(ValueError, match="broken"):
            await with_timeout(0, at_once())


async def test_a_coroutine_gets_each_value_that_it_awaits() -> None:
    answers = [asyncio.get_running_loop().create_future() for _ in range(3)]

    async def awaits() -> list[Any]:
        return [await answer for answer in answers]

    task = asyncio.create_task(with_timeout(10, awaits()))
    for number, answer in enumerate(answers):
        await asyncio.sleep(0)
        answer.set_result(number)
    assert await soon(task) == [0, 1, 2]


async def test_a_coroutine_gets_an_error_that_it_awaits_and_may_raise_another() -> None:
    answer = asyncio.get_running_loop().create_future()

    async def translates() -> None:
        try:
            await answer
        except KeyError as e:
            raise ValueError("not found") from e

    task = asyncio.create_task(with_timeout(10, translates()))
    await asyncio.sleep(0)
    answer.set_exception(KeyError("x"))
    with pytest.raises(ValueError, match="not found"):
        await soon(task)


@pytest.mark.parametrize("how", ["timeout", "cancellation"])
async def test_a_coroutine_that_is_cancelled_may_clean_up(how: str) -> None:
    cleaned: list[str] = []

    async def hangs() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            cleaned.append("up")

    task = asyncio.create_task(with_timeout(0.001 if how == "timeout" else 10, hangs()))
    if how == "cancellation":
        await asyncio.sleep(0)
        task.cancel()
    with pytest.raises(TimeoutError if how == "timeout" else asyncio.CancelledError):
        await soon(task)
    assert cleaned == ["up"]


async def test_a_coroutine_that_returns_after_its_cancellation_has_timed_out() -> None:
    async def swallows() -> str:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return "late"
        return "unreachable"

    with pytest.raises(TimeoutError):
        await soon(with_timeout(0.001, swallows()))


async def test_a_timeout_inside_a_timeout_works() -> None:
    async def impatient() -> str:
        try:
            async with asyncio.timeout(0.001):
                await asyncio.Event().wait()
        except TimeoutError:
            return "inner"
        return "none"

    assert await soon(with_timeout(10, impatient())) == "inner"


async def test_a_future_times_out_too() -> None:
    with pytest.raises(TimeoutError):
        await with_timeout(0.001, asyncio.get_running_loop().create_future())
