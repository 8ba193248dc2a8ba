"""Blocking work: bounded, fair between keys, and nothing of it is lost."""

import asyncio
import threading
from collections import Counter
from contextvars import ContextVar

import pytest
from agents import soon
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator_interactive.kernel.blocking import FairPool, run_blocking

KEYS = st.sampled_from("abc")


class Blocking:
    """A function that counts its simultaneous calls; each waits for the gate."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.now: Counter[str] = Counter()
        self.most = 0
        self.max_per_key = 0
        self.order: list[str] = []
        self.gate = threading.Event()
        self.begun = threading.Semaphore(0)

    def __call__(self, key: str) -> str:
        with self.lock:
            self.now[key] += 1
            self.most = max(self.most, self.now.total())
            self.max_per_key = max(self.max_per_key, self.now[key])
            self.order.append(key)
        self.begun.release()
        assert self.gate.wait(30)
        with self.lock:
            self.now[key] -= 1
        return key

    async def begins(self, calls: int = 1) -> None:
        for _ in range(calls):
            assert await asyncio.to_thread(self.begun.acquire, timeout=30)


@settings(deadline=None, max_examples=60)
@given(
    keys=st.lists(st.tuples(KEYS, st.booleans()), max_size=25),
    threads=st.integers(1, 4),
    max_per_key=st.integers(1, 3),
)
async def test_calls_are_bounded_and_each_is_made_once_unless_it_is_cancelled(
    keys: list[tuple[str, bool]], threads: int, max_per_key: int
) -> None:
    pool, work = FairPool("test", threads, max_per_key), Blocking()
    tasks = [asyncio.ensure_future(pool.run(key, work, key)) for key, _ in keys]
    for task, (_, is_cancelled) in zip(tasks, keys, strict=True):
        if is_cancelled:
            task.cancel()  # before it was in the queue, or while it waits there
    await asyncio.sleep(0)
    work.gate.set()
    outcomes = await soon(asyncio.gather(*tasks, return_exceptions=True))
    for (key, is_cancelled), outcome in zip(keys, outcomes, strict=True):
        assert isinstance(outcome, asyncio.CancelledError) if is_cancelled else outcome == key
    assert Counter(work.order) == Counter(key for key, is_cancelled in keys if not is_cancelled)
    assert work.most <= threads
    assert work.max_per_key <= max_per_key


async def test_one_key_with_many_calls_delays_another_by_one_call_at_most() -> None:
    pool, work = FairPool("test", threads=1, max_per_key=1), Blocking()
    many = [asyncio.ensure_future(pool.run("many", work, "many")) for _ in range(20)]
    await work.begins()
    few = [asyncio.ensure_future(pool.run("few", work, "few")) for _ in range(2)]
    await asyncio.sleep(0)
    work.gate.set()
    await soon(asyncio.gather(*many, *few))
    assert work.order[1:5] == ["many", "few", "many", "few"] or work.order[1:4] == ["few", "many", "few"]


async def test_one_key_does_not_get_all_threads() -> None:
    pool, work = FairPool("test", threads=2, max_per_key=1), Blocking()
    many = [asyncio.ensure_future(pool.run("many", work, "many")) for _ in range(5)]
    other = asyncio.ensure_future(pool.run("other", work, "other"))
    await work.begins(2)
    assert work.order == ["many", "other"]
    work.gate.set()
    await soon(asyncio.gather(*many, other))


async def test_a_call_that_waits_for_too_long_is_never_made() -> None:
    pool, work = FairPool("test", threads=1, max_per_key=1), Blocking()
    first = asyncio.ensure_future(pool.run("a", work, "a"))
    await work.begins()
    with pytest.raises(TimeoutError):
        await pool.run("a", work, "a", wait_s=0)
    work.gate.set()
    await soon(first)
    assert work.order == ["a"]


async def test_a_call_whose_thread_cannot_start_fails_and_is_never_made() -> None:
    pool, work = FairPool("test", threads=1, max_per_key=1), Blocking()
    work.gate.set()
    before = threading.stack_size(1 << 46)
    try:
        with pytest.raises(RuntimeError, match="can't start new thread"):
            await pool.run("a", work, "first")
    finally:
        threading.stack_size(before)
    assert await soon(pool.run("a", work, "second")) == "second"
    assert work.order == ["second"]


async def test_a_function_runs_in_the_context_of_its_caller_and_its_error_is_raised() -> None:
    name: ContextVar[str] = ContextVar("name")
    name.set("mine")
    assert await run_blocking("a", name.get) == "mine"
    with pytest.raises(ZeroDivisionError):
        await run_blocking("a", lambda: 1 // 0)
