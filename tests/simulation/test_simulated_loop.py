"""The event loop of the simulation: virtual time, an order from a seed, no outside world, and simulated processes."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Coroutine
from typing import Any

import pytest
from simulated.engine import (
    PROCESS,
    DeadlockError,
    InOrder,
    Lopsided,
    NotSimulatedError,
    Shuffled,
    SimulatedLoop,
    TooManyCallbacksError,
)


def new_loop(kind: type[InOrder] = InOrder, seed: int = 0, **options: int) -> SimulatedLoop:
    return SimulatedLoop(kind(random.Random(seed)), **options)  # noqa: S311 - reproducible on purpose


def simulate(main: Coroutine[Any, Any, Any], kind: type[InOrder] = InOrder, seed: int = 0) -> Any:
    loop = new_loop(kind, seed)
    try:
        return loop.run_until_complete(main)
    finally:
        loop.close()


def start_in(process: int, coroutine: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
    PROCESS.set(process)
    task = asyncio.create_task(coroutine)
    PROCESS.set(0)
    return task


def test_a_long_sleep_takes_no_time_and_ends_exactly() -> None:
    async def main() -> float:
        await asyncio.sleep(1e6)
        return asyncio.get_running_loop().time()

    assert simulate(main()) == 1e6


def test_timers_run_in_the_order_of_their_time() -> None:
    async def main() -> list[int]:
        seen: list[int] = []
        for seconds in (3, 1, 2):
            asyncio.get_running_loop().call_later(seconds, seen.append, seconds)
        await asyncio.sleep(4)
        return seen

    assert simulate(main(), Shuffled) == [1, 2, 3]


def order_of_tasks(kind: type[InOrder], seed: int) -> str:
    async def main() -> str:
        seen: list[str] = []

        async def step(name: str) -> None:
            for _ in range(3):
                await asyncio.sleep(0)
                seen.append(name)

        await asyncio.gather(*(step(name) for name in "abc"))
        return "".join(seen)

    return simulate(main(), kind, seed)


def test_in_order_runs_tasks_as_asyncio_does() -> None:
    assert order_of_tasks(InOrder, 1) == "abcabcabc"


@pytest.mark.parametrize("kind", [Shuffled, Lopsided])
def test_other_orders_depend_on_the_seed_alone(kind: type[InOrder]) -> None:
    orders = [order_of_tasks(kind, seed) for seed in range(20)]
    assert len(set(orders)) > 5
    assert orders == [order_of_tasks(kind, seed) for seed in range(20)]


@pytest.mark.parametrize("seed", range(30))
def test_a_task_begins_before_a_later_callback_can_cancel_it(seed: int) -> None:
    async def main() -> bool:
        begun = asyncio.Event()

        async def work() -> None:
            begun.set()
            await asyncio.sleep(1)

        task = asyncio.create_task(work())
        asyncio.get_running_loop().call_soon(task.cancel)
        with pytest.raises(asyncio.CancelledError):
            await task
        return begun.is_set()

    assert simulate(main(), Shuffled, seed)


def test_a_deadlock_is_reported_with_the_stack_of_every_task() -> None:
    async def inner() -> None:
        await asyncio.get_running_loop().create_future()

    async def main() -> None:
        await asyncio.create_task(inner(), name="the other")

    with pytest.raises(DeadlockError, match=r"the other: .* inner"):
        simulate(main())


def test_an_endless_program_is_reported() -> None:
    async def main() -> None:
        while True:  # noqa: ASYNC110 - endless on purpose
            await asyncio.sleep(0)

    loop = new_loop(max_callbacks=100)
    with pytest.raises(TooManyCallbacksError, match="main"):
        loop.run_until_complete(main())
    loop.close()


@pytest.mark.parametrize(
    ("method", "call"),
    [
        ("create_server", lambda: asyncio.start_server(print, "127.0.0.1", 1)),
        ("create_connection", lambda: asyncio.open_connection("127.0.0.1", 1)),
    ],
)
def test_threads_and_sockets_are_refused(method, call) -> None:
    with pytest.raises(NotSimulatedError, match=method):
        simulate(call())


def test_an_error_in_a_callback_is_recorded() -> None:
    loop = new_loop()
    loop.call_soon(lambda: 1 / 0)
    loop.run_until_complete(asyncio.sleep(1))
    assert "ZeroDivisionError" in loop.errors[0]


def test_a_killed_process_runs_nothing_not_even_its_clean_up() -> None:
    seen: list[str] = []

    async def killed() -> None:
        try:
            asyncio.get_running_loop().call_later(2, seen.append, "timer")
            await asyncio.sleep(3)
            seen.append("woke up")
        finally:
            seen.append("cleaned up")

    async def main() -> list[str]:
        task = start_in(1, killed())
        await asyncio.sleep(1)
        loop.kill(1)
        task.cancel()
        await asyncio.sleep(10)
        return list(seen)

    loop = new_loop()
    assert loop.run_until_complete(main()) == []
    loop.close()


@pytest.mark.parametrize("kind", [InOrder, Shuffled, Lopsided])
def test_a_paused_process_runs_nothing_and_continues_in_order(kind: type[InOrder]) -> None:
    seen: list[tuple[float, int]] = []

    async def count() -> None:
        for number in range(3):
            await asyncio.sleep(1)
            seen.append((loop.time(), number))

    async def main() -> None:
        task = start_in(1, count())
        await asyncio.sleep(1.5)
        loop.pause(1)
        await asyncio.sleep(10)
        loop.resume(1)
        await task

    loop = new_loop(kind)
    loop.run_until_complete(main())
    loop.close()
    assert seen == [(1, 0), (11.5, 1), (12.5, 2)]


def test_an_action_happens_after_a_number_of_callbacks_of_one_process() -> None:
    async def hop() -> None:
        for _ in range(100):
            await asyncio.sleep(0)
            hops[PROCESS.get()] += 1

    async def main() -> None:
        tasks = [start_in(process, hop()) for process in (1, 2)]
        loop.after_callbacks(1, 10, lambda: loop.kill(1))
        await tasks[1]

    hops = {1: 0, 2: 0}
    loop = new_loop(Shuffled)
    loop.run_until_complete(main())
    assert loop.killed_s(1) == 0
    loop.close()
    assert hops == {1: 9, 2: 100}


def test_a_process_that_is_killed_while_paused_stays_dead() -> None:
    seen: list[object] = []

    async def main() -> None:
        start_in(1, asyncio.sleep(1)).add_done_callback(seen.append)
        loop.pause(1)
        await asyncio.sleep(2)
        loop.kill(1)
        loop.resume(1)
        await asyncio.sleep(2)

    loop = new_loop()
    loop.run_until_complete(main())
    loop.close()
    assert seen == []
