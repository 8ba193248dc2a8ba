"""Support for tools: blocking work is bounded and fair between keys; a progress report reaches its call only."""

import asyncio
import contextlib
import contextvars
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest
from agents import soon
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator_interactive.kernel import report_progress, reporting, run_blocking
from orchestrator_interactive.kernel.tool_support import FairPool

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
    name: contextvars.ContextVar[str] = contextvars.ContextVar("name")
    name.set("mine")
    assert await run_blocking("a", name.get) == "mine"
    with pytest.raises(ZeroDivisionError):
        await run_blocking("a", lambda: 1 // 0)


def _report_in_a_thread(context: contextvars.Context) -> None:
    with ThreadPoolExecutor(1) as pool:
        pool.submit(context.run, report_progress, "half done").result()


@pytest.fixture
def reports() -> list[str]:
    return []


async def test_a_report_is_one_short_line(reports: list[str]) -> None:
    with reporting(reports.append):
        for text in ("  half\n\tdone ", "x" * 200, "y" * 201, "", " ", "\n\t "):
            report_progress(text)
    assert reports == ["half done", "x" * 200, "y" * 199 + "…"]


def test_without_a_listener_a_report_does_nothing() -> None:
    report_progress("half done")


async def test_a_child_task_reports_for_the_call_that_started_it(reports: list[str]) -> None:
    async def part(name: str) -> None:
        report_progress(name)

    with reporting(reports.append):
        async with asyncio.TaskGroup() as group:
            group.create_task(part("one"))
            group.create_task(part("two"))
    assert reports == ["one", "two"]


async def test_a_thread_of_the_call_reports_on_the_event_loop_in_order() -> None:
    reports: list[tuple[str, int]] = []

    def work() -> None:
        for part in ("one", "two", "three"):
            report_progress(part)

    with reporting(lambda text: reports.append((text, threading.get_ident()))):
        await asyncio.to_thread(work)
    assert reports == [(part, threading.get_ident()) for part in ("one", "two", "three")]


async def test_calls_at_the_same_time_have_their_own_reports() -> None:
    reports: dict[str, list[str]] = {"a": [], "b": []}
    barrier = asyncio.Barrier(2)

    async def call(name: str) -> None:
        with reporting(reports[name].append):
            await barrier.wait()
            report_progress(f"{name} is half done")
            await barrier.wait()

    await asyncio.gather(call("a"), call("b"))
    assert reports == {"a": ["a is half done"], "b": ["b is half done"]}


async def test_the_reports_of_a_call_within_a_call_reach_the_inner_listener_only(reports: list[str]) -> None:
    inner: list[str] = []
    with reporting(reports.append):
        with reporting(inner.append):
            report_progress("inside")
        report_progress("outside")
    assert (reports, inner) == (["outside"], ["inside"])


async def test_a_task_that_outlives_its_call_reports_nothing(reports: list[str]) -> None:
    is_over = asyncio.Event()

    async def late() -> None:
        await is_over.wait()
        report_progress("still at it")

    with reporting(reports.append):
        task = asyncio.create_task(late())
        report_progress("started")
    is_over.set()
    await task
    assert reports == ["started"]


async def test_a_thread_that_outlives_its_call_reports_nothing(reports: list[str]) -> None:
    is_over = threading.Event()

    def late() -> None:
        is_over.wait(10)
        report_progress("still at it")

    with reporting(reports.append):
        thread = asyncio.create_task(asyncio.to_thread(late))
        await asyncio.sleep(0)  # let it have its copy of the context
    is_over.set()
    await thread
    assert reports == []


async def test_the_last_report_of_a_thread_is_dropped_when_the_call_has_ended(reports: list[str]) -> None:
    with reporting(reports.append):
        _report_in_a_thread(contextvars.copy_context())
    await asyncio.sleep(0)
    assert reports == []


def test_a_report_to_a_closed_event_loop_does_nothing(reports: list[str]) -> None:
    async def enter() -> contextvars.Context:
        stack.enter_context(reporting(reports.append))
        return contextvars.copy_context()

    stack = contextlib.ExitStack()
    _report_in_a_thread(asyncio.run(enter()))
    assert reports == []


async def test_a_call_that_is_closed_in_another_context_leaves_the_listener_there(reports: list[str]) -> None:
    inner: list[str] = []

    async def call() -> None:
        with reporting(inner.append):
            await asyncio.Event().wait()

    started = call()
    contextvars.copy_context().run(started.send, None)
    with reporting(reports.append):
        started.close()
        report_progress("half done")
    assert (reports, inner) == (["half done"], [])
