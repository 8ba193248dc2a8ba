"""The event loop of the simulation: virtual time, an order from a seed, and no outside world."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING, Any

import pytest
from simulated.engine import LIFE, Busy, Deadlock, InOrder, Lopsided, NotSimulated, Shuffled, SimulatedLoop

if TYPE_CHECKING:
    from collections.abc import Coroutine


def simulated(main: Coroutine[Any, Any, Any], kind: type[InOrder] = InOrder, seed: int = 0) -> Any:
    loop = SimulatedLoop(kind(random.Random(seed)))  # noqa: S311 - the seed is the point
    try:
        return loop.run_until_complete(main)
    finally:
        loop.close()


def test_a_long_sleep_takes_no_time_and_ends_to_the_instant() -> None:
    async def main() -> float:
        await asyncio.sleep(1e6)
        return asyncio.get_running_loop().time()

    assert simulated(main()) == 1e6


def test_timers_come_due_in_the_order_of_their_time() -> None:
    async def main() -> list[int]:
        seen: list[int] = []
        for seconds in (3, 1, 2):
            asyncio.get_running_loop().call_later(seconds, seen.append, seconds)
        await asyncio.sleep(4)
        return seen

    assert simulated(main(), Shuffled) == [1, 2, 3]


def _order_of_tasks(kind: type[InOrder], seed: int) -> str:
    async def main() -> str:
        seen: list[str] = []

        async def step(name: str) -> None:
            for _ in range(3):
                await asyncio.sleep(0)
                seen.append(name)

        await asyncio.gather(*(step(name) for name in "abc"))
        return "".join(seen)

    order: str = simulated(main(), kind, seed)
    return order


def test_in_order_tasks_take_turns_as_they_do_in_asyncio() -> None:
    assert _order_of_tasks(InOrder, 1) == "abcabcabc"


@pytest.mark.parametrize("kind", [Shuffled, Lopsided])
def test_other_orders_differ_from_seed_to_seed_and_each_replays(kind: type[InOrder]) -> None:
    orders = [_order_of_tasks(kind, seed) for seed in range(20)]
    assert len(set(orders)) > 5
    assert orders == [_order_of_tasks(kind, seed) for seed in range(20)]


@pytest.mark.parametrize("seed", range(30))
def test_a_task_begins_before_what_its_maker_causes_later(seed: int) -> None:
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

    assert simulated(main(), Shuffled, seed)


def test_a_deadlock_is_told_with_where_every_task_stands() -> None:
    async def inner() -> None:
        await asyncio.get_running_loop().create_future()

    async def main() -> None:
        other = asyncio.create_task(inner(), name="the other")
        await other

    with pytest.raises(Deadlock, match=r"the other: .* inner"):
        simulated(main())


def test_a_program_that_never_rests_is_told() -> None:
    async def main() -> None:
        while True:  # noqa: ASYNC110 - restless it is to be
            await asyncio.sleep(0)

    loop = SimulatedLoop(InOrder(random.Random(0)), most_callbacks=100)  # noqa: S311
    with pytest.raises(Busy, match="main"):
        loop.run_until_complete(main())
    loop.close()


def test_threads_and_sockets_are_refused_in_a_clear_sentence() -> None:
    async def thread() -> None:
        await asyncio.to_thread(print)

    async def socket() -> None:
        await asyncio.open_connection("127.0.0.1", 1)

    with pytest.raises(NotSimulated, match="run_in_executor"):
        simulated(thread())
    with pytest.raises(NotSimulated, match="create_connection"):
        simulated(socket())


def test_an_error_in_a_callback_is_kept() -> None:
    loop = SimulatedLoop(InOrder(random.Random(0)))  # noqa: S311
    loop.call_soon(lambda: 1 / 0)
    loop.run_until_complete(asyncio.sleep(1))
    assert "ZeroDivisionError" in loop.errors[0]


def test_what_is_killed_does_nothing_any_more_not_even_its_clean_up() -> None:
    seen: list[str] = []

    async def doomed() -> None:
        try:
            asyncio.get_running_loop().call_later(2, seen.append, "timer")
            await asyncio.sleep(3)
            seen.append("woke up")
        finally:
            seen.append("cleaned up")

    async def main() -> list[str]:
        LIFE.set(1)
        task = asyncio.create_task(doomed())
        LIFE.set(0)
        await asyncio.sleep(1)
        loop.kill(1)
        task.cancel()
        await asyncio.sleep(10)
        return list(seen)

    loop = SimulatedLoop(InOrder(random.Random(0)))  # noqa: S311
    assert loop.run_until_complete(main()) == []
    loop.close()


def in_a_life(life: int, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
    """Start it in this life."""
    LIFE.set(life)
    task = asyncio.create_task(work)
    LIFE.set(0)
    return task


@pytest.mark.parametrize("kind", [InOrder, Shuffled, Lopsided])
def test_what_is_held_does_nothing_until_it_is_let_go_and_then_goes_on_in_its_order(kind: type[InOrder]) -> None:
    seen: list[tuple[float, int]] = []

    async def counting() -> None:
        for number in range(3):
            await asyncio.sleep(1)
            seen.append((loop.time(), number))

    async def main() -> None:
        task = in_a_life(1, counting())
        await asyncio.sleep(1.5)
        loop.hold(1)
        await asyncio.sleep(10)
        loop.let_go(1)
        await task

    loop = SimulatedLoop(kind(random.Random(0)))  # noqa: S311
    loop.run_until_complete(main())
    loop.close()
    assert seen == [(1, 0), (11.5, 1), (12.5, 2)]


def test_something_is_done_after_so_many_callbacks_of_a_life_and_of_no_other() -> None:
    async def hopping() -> None:
        for _ in range(100):
            await asyncio.sleep(0)
            hops[LIFE.get()] += 1

    async def main() -> None:
        tasks = [in_a_life(life, hopping()) for life in (1, 2)]
        loop.after_callbacks(1, 10, lambda: loop.kill(1))
        await tasks[1]

    hops = {1: 0, 2: 0}
    loop = SimulatedLoop(Shuffled(random.Random(0)))  # noqa: S311
    loop.run_until_complete(main())
    assert loop.died_s(1) == 0
    loop.close()
    assert hops == {1: 9, 2: 100}


def test_what_is_killed_while_it_is_held_stays_dead() -> None:
    async def main() -> None:
        in_a_life(1, asyncio.sleep(1)).add_done_callback(seen.append)
        loop.hold(1)
        await asyncio.sleep(2)
        loop.kill(1)
        loop.let_go(1)
        await asyncio.sleep(2)

    seen: list[object] = []
    loop = SimulatedLoop(InOrder(random.Random(0)))  # noqa: S311
    loop.run_until_complete(main())
    loop.close()
    assert seen == []
