"""A progress report of a tool reaches the listener of its call, and no other."""

import asyncio
import contextlib
import contextvars
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from orchestrator_interactive.kernel import report_progress, reporting


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
