"""The primitives of asyncio keep their promises when callbacks overtake each other: so a failure is never theirs."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING, Any

import pytest
from simulated.engine import InOrder, Lopsided, Shuffled, SimulatedLoop

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

SEEDS = range(150)


async def a_lock_lets_one_in() -> None:
    lock, inside = asyncio.Lock(), 0

    async def enter() -> None:
        nonlocal inside
        async with lock:
            inside += 1
            assert inside == 1
            await asyncio.sleep(random.choice([0, 0.1]))  # noqa: S311
            inside -= 1

    tasks = [asyncio.create_task(enter()) for _ in range(6)]
    tasks[2].cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert not lock.locked()


async def a_semaphore_lets_two_in() -> None:
    semaphore, inside = asyncio.Semaphore(2), 0

    async def enter() -> None:
        nonlocal inside
        async with semaphore:
            inside += 1
            assert inside <= 2
            await asyncio.sleep(0)
            inside -= 1

    tasks = [asyncio.create_task(enter()) for _ in range(7)]
    tasks[3].cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert not semaphore.locked()


async def a_queue_loses_nothing() -> None:
    queue: asyncio.Queue[int] = asyncio.Queue(2)
    got: list[int] = []

    async def get() -> None:
        while True:
            got.append(await queue.get())
            queue.task_done()

    getters = [asyncio.create_task(get()) for _ in range(3)]
    for number in range(10):
        await queue.put(number)
    await queue.join()
    for getter in getters:
        getter.cancel()
    assert sorted(got) == list(range(10))


async def a_group_ends_with_all_its_tasks() -> None:
    ended: list[int] = []

    async def work(number: int) -> None:
        try:
            await asyncio.sleep(random.choice([0, 1]))  # noqa: S311
            if number == 2:
                raise ValueError(number)
        finally:
            ended.append(number)

    async def together() -> None:
        async with asyncio.TaskGroup() as group:
            for number in range(5):
                group.create_task(work(number))

    with pytest.raises(ExceptionGroup):
        await together()
    assert sorted(ended) == list(range(5))


async def a_timeout_is_told_from_a_cancellation() -> None:
    async def limited() -> str:
        try:
            async with asyncio.timeout(1):
                await asyncio.sleep(random.choice([0.5, 1, 2]))  # noqa: S311
        except TimeoutError:
            return "late"
        return "in time"

    tasks = [asyncio.create_task(limited()) for _ in range(4)]
    asyncio.get_running_loop().call_later(1, tasks[0].cancel)
    outcomes = await asyncio.gather(*tasks, return_exceptions=True)
    assert isinstance(outcomes[0], asyncio.CancelledError) or outcomes[0] in {"late", "in time"}
    assert set(outcomes[1:]) <= {"late", "in time"}


async def a_wait_for_passes_on_what_came() -> None:
    future = asyncio.get_running_loop().create_future()
    asyncio.get_running_loop().call_later(1, future.set_result, "came")
    try:
        assert await asyncio.wait_for(asyncio.shield(future), 1) == "came"
    except TimeoutError:
        assert await future == "came"


async def a_shield_keeps_what_it_shields() -> None:
    inner = asyncio.create_task(asyncio.sleep(1, "kept"))

    async def waiting() -> str:
        return await asyncio.shield(inner)

    outer = asyncio.create_task(waiting())
    asyncio.get_running_loop().call_later(random.choice([0.5, 1]), outer.cancel)  # noqa: S311
    await asyncio.wait([outer])
    assert await inner == "kept"


async def a_condition_wakes_whom_it_notifies() -> None:
    condition, woken = asyncio.Condition(), 0

    async def wait() -> None:
        nonlocal woken
        async with condition:
            await condition.wait()
            woken += 1

    tasks = [asyncio.create_task(wait()) for _ in range(4)]
    await asyncio.sleep(1)
    async with condition:
        condition.notify(2)
    await asyncio.sleep(1)
    assert woken == 2
    async with condition:
        condition.notify_all()
    await asyncio.gather(*tasks)


async def a_gather_keeps_the_order_of_its_results() -> None:
    sleeps = (asyncio.sleep(random.choice([0, 1, 2]), number) for number in range(5))  # noqa: S311
    assert await asyncio.gather(*sleeps) == list(range(5))


@pytest.mark.parametrize("kind", [InOrder, Shuffled, Lopsided])
@pytest.mark.parametrize(
    "promise",
    [
        a_lock_lets_one_in,
        a_semaphore_lets_two_in,
        a_queue_loses_nothing,
        a_group_ends_with_all_its_tasks,
        a_timeout_is_told_from_a_cancellation,
        a_wait_for_passes_on_what_came,
        a_shield_keeps_what_it_shields,
        a_condition_wakes_whom_it_notifies,
        a_gather_keeps_the_order_of_its_results,
    ],
)
def test_a_promise_is_kept(promise: Callable[[], Awaitable[Any]], kind: type[InOrder]) -> None:
    for seed in SEEDS:
        random.seed(seed)
        loop = SimulatedLoop(kind(random.Random(seed), seed % 2 * 1e-4))  # noqa: S311
        loop.run_until_complete(promise())
        assert loop.errors == []
        loop.close()
