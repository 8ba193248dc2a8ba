"""What a tool reports of its progress reaches whoever watches the call, and nobody else."""

import asyncio
import contextlib
import contextvars
import threading
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from orchestrator_interactive.kernel import report_progress, reporting


async def test_a_report_reaches_whoever_watches_the_call() -> None:
    heard: list[str] = []
    with reporting(heard.append):
        report_progress("1,200 files searched")
        report_progress("2,400 files searched")
    assert heard == ["1,200 files searched", "2,400 files searched"]


def test_a_report_that_nobody_watches_is_nothing() -> None:
    report_progress("half done")


async def test_a_report_is_one_short_line() -> None:
    heard: list[str] = []
    with reporting(heard.append):
        report_progress("  half\n\tdone ")
        report_progress("x" * 200)
        report_progress("y" * 201)
    assert heard == ["half done", "x" * 200, "y" * 199 + "…"]


@pytest.mark.parametrize("blank", ["", " ", "\n\t "])
async def test_blank_text_is_no_report(blank: str) -> None:
    heard: list[str] = []
    with reporting(heard.append):
        report_progress(blank)
    assert heard == []


async def test_a_child_task_reports_for_the_call_that_started_it() -> None:
    async def part(name: str) -> None:
        report_progress(name)

    heard: list[str] = []
    with reporting(heard.append):
        async with asyncio.TaskGroup() as group:
            group.create_task(part("one"))
            group.create_task(part("two"))
    assert heard == ["one", "two"]


async def test_a_thread_of_the_call_reports_on_the_event_loop_in_order() -> None:
    heard: list[tuple[str, int]] = []

    def work() -> None:
        for part in ("one", "two", "three"):
            report_progress(part)

    with reporting(lambda text: heard.append((text, threading.get_ident()))):
        await asyncio.to_thread(work)
    here = threading.get_ident()
    assert heard == [("one", here), ("two", here), ("three", here)]


async def test_calls_at_the_same_time_do_not_hear_each_other() -> None:
    heard: dict[str, list[str]] = {"a": [], "b": []}
    both_are_on = asyncio.Barrier(2)

    async def call(name: str) -> None:
        with reporting(heard[name].append):
            await both_are_on.wait()
            report_progress(f"{name} is half done")
            await both_are_on.wait()

    await asyncio.gather(call("a"), call("b"))
    assert heard == {"a": ["a is half done"], "b": ["b is half done"]}


async def test_a_call_within_a_call_is_heard_by_its_own_watcher_only() -> None:
    outer: list[str] = []
    inner: list[str] = []
    with reporting(outer.append):
        with reporting(inner.append):
            report_progress("inside")
        report_progress("outside")
    assert (outer, inner) == (["outside"], ["inside"])


async def test_what_outlives_its_call_is_heard_by_nobody() -> None:
    heard: list[str] = []
    call_is_over = asyncio.Event()

    async def late() -> None:
        await call_is_over.wait()
        report_progress("still at it")

    with reporting(heard.append):
        task = asyncio.create_task(late())
        report_progress("started")
    call_is_over.set()
    await task
    assert heard == ["started"]


async def test_a_thread_that_outlives_its_call_is_heard_by_nobody() -> None:
    heard: list[str] = []
    call_is_over = threading.Event()

    def late() -> None:
        call_is_over.wait(10)
        report_progress("still at it")

    with reporting(heard.append):
        thread = asyncio.create_task(asyncio.to_thread(late))
        await asyncio.sleep(0)  # let it have its copy of the context
    call_is_over.set()
    await thread
    assert heard == []


async def test_what_a_thread_said_at_the_end_is_not_heard_after_it() -> None:
    heard: list[str] = []
    with reporting(heard.append):
        run_in_a_thread(contextvars.copy_context(), "half done")
    await asyncio.sleep(0)
    assert heard == []


def test_a_report_to_an_event_loop_that_has_closed_is_nothing() -> None:
    heard: list[str] = []

    async def enter() -> contextvars.Context:
        stack.enter_context(reporting(heard.append))
        return contextvars.copy_context()

    stack = contextlib.ExitStack()
    run_in_a_thread(asyncio.run(enter()), "half done")
    assert heard == []


def test_a_call_that_was_never_finished_leaves_no_trace_where_it_is_cleared_away() -> None:
    heard: list[str] = []

    async def call() -> None:
        with reporting(heard.append):
            await asyncio.Event().wait()

    async def start() -> Coroutine[Any, Any, None]:
        started = call()
        contextvars.copy_context().run(started.send, None)
        return started

    asyncio.run(start()).close()
    report_progress("half done")
    assert heard == []


def run_in_a_thread(context: contextvars.Context, text: str) -> None:
    with ThreadPoolExecutor(1) as pool:
        pool.submit(context.run, report_progress, text).result()
