"""The primitives of asyncio work when callbacks overtake each other, so they cause no failure of the simulation."""

from __future__ import annotations

import asyncio
import random

import pytest
from simulated.engine import InOrder, Lopsided, Shuffled, SimulatedLoop


async def a_lock_admits_one() -> None:
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


async def a_semaphore_admits_two() -> None:
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


async def a_task_group_ends_after_all_its_tasks() -> None:
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


async def a_timeout_differs_from_a_cancellation() -> None:
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


async def wait_for_returns_the_result() -> None:
    future = asyncio.get_running_loop().create_future()
    asyncio.get_running_loop().call_later(1, future.set_result, "came")
    try:
        assert await asyncio.wait_for(asyncio.shield(future), 1) == "came"
    except TimeoutError:
        assert await future == "came"


async def a_shield_protects_its_task() -> None:
    inner = asyncio.create_task(asyncio.sleep(1, "kept"))

    async def waiting() -> str:
        return await asyncio.shield(inner)

    outer = asyncio.create_task(waiting())
    asyncio.get_running_loop().call_later(random.choice([0.5, 1]), outer.cancel)  # noqa: S311
    await asyncio.wait([outer])
    assert await inner == "kept"


async def gather_keeps_the_order_of_results() -> None:
    sleeps = (asyncio.sleep(random.choice([0, 1, 2]), number) for number in range(5))  # noqa: S311
    assert await asyncio.gather(*sleeps) == list(range(5))


@pytest.mark.parametrize("kind", [InOrder, Shuffled, Lopsided])
@pytest.mark.parametrize(
    "check",
    [
        *(a_lock_admits_one, a_semaphore_admits_two, a_queue_loses_nothing, a_task_group_ends_after_all_its_tasks),
        *(a_timeout_differs_from_a_cancellation, wait_for_returns_the_result, a_shield_protects_its_task),
        gather_keeps_the_order_of_results,
    ],
)
def test_a_primitive_works(check, kind: type[InOrder]) -> None:
    for seed in range(150):
        random.seed(seed)
        loop = SimulatedLoop(kind(random.Random(seed), seed % 2 * 1e-4))  # noqa: S311
        loop.run_until_complete(check())
        assert loop.errors == []
        loop.close()
