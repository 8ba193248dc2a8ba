"""Threads for blocking work of tools, bounded in number and shared fairly between conversations."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from concurrent.futures import Future
from contextvars import copy_context
from dataclasses import dataclass, field
from functools import partial
from threading import Condition, Thread
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

T = TypeVar("T")

_THREADS = 4
_MAX_PER_KEY = 2
# How long a thread waits for another call before it ends.
_IDLE_TIMEOUT_S = 0.02


@dataclass(slots=True, eq=False)
class _Job:
    key: Hashable
    function: Callable[[], Any]
    outcome: Future[Any] = field(default_factory=Future)
    was_abandoned: bool = False

    def abandon(self) -> None:
        """Remove the job from the queue unless it has started."""
        self.was_abandoned = self.outcome.cancel()


class FairPool:
    """Run blocking functions in at most `threads` threads, at most `max_per_key` for the same key.

    The keys take turns, so one with many calls delays the others by one call at most. Threads end when no call waits
    for them.

    Args:
        on_thread_end: called in a thread before it ends.
    """

    def __init__(
        self, name: str, threads: int, max_per_key: int, on_thread_end: Callable[[], object] = lambda: None
    ) -> None:
        self._name = name
        self._max_threads = threads
        self._max_per_key = max_per_key
        self._on_thread_end = on_thread_end
        self._changed = Condition()
        self._threads = self._idle = self._queued = 0
        self._running: Counter[Hashable] = Counter()
        # The key whose turn it is comes first.
        self._queues: dict[Hashable, deque[_Job]] = {}

    async def run(self, key: Hashable, function: Callable[..., T], *arguments: Any, wait_s: float | None = None) -> T:
        """Return the result of the function. Context variables are those of the caller.

        Cancelling the caller removes the call from the queue; a function that has started runs to its end.

        Raises:
            TimeoutError: the call did not start within `wait_s` seconds and was removed.
        """
        job = _Job(key, partial(copy_context().run, function, *arguments))
        self._add(job)
        timer = None if wait_s is None else asyncio.get_running_loop().call_later(wait_s, job.abandon)
        try:
            result: T = await asyncio.wrap_future(job.outcome)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if job.was_abandoned and not (task and task.cancelling()):
                raise TimeoutError from None
            raise
        finally:
            if timer is not None:
                timer.cancel()
        return result

    def _add(self, job: _Job) -> None:
        with self._changed:
            if self._threads < self._max_threads and self._queued >= self._idle:
                # Start the thread first, so that the job is not in the queue if this fails.
                Thread(target=self._work, name=self._name).start()
                self._threads += 1
            self._queues.setdefault(job.key, deque()).append(job)
            self._queued += 1
            self._changed.notify()

    def _work(self) -> None:
        is_leaving = False
        while (job := self._next(is_leaving=is_leaving)) or not is_leaving:
            is_leaving = job is None
            if job is None:
                self._on_thread_end()
                continue
            report = _run_job(job)
            with self._changed:
                self._running -= Counter([job.key])  # drops counts of 0
                self._changed.notify()
            report()

    def _next(self, *, is_leaving: bool) -> _Job | None:
        """Take the next job, or None if there is none; a leaving thread is then no longer counted."""
        with self._changed:
            if not is_leaving:
                self._idle += 1
                self._changed.wait_for(self._next_jobs, _IDLE_TIMEOUT_S)
                self._idle -= 1
            while (jobs := self._next_jobs()) is not None:
                job = jobs.popleft()
                self._queued -= 1
                del self._queues[job.key]
                if jobs:
                    self._queues[job.key] = jobs  # behind the other keys
                if job.outcome.set_running_or_notify_cancel():
                    self._running[job.key] += 1
                    return job
            self._threads -= is_leaving
            return None

    def _next_jobs(self) -> deque[_Job] | None:
        """Return the jobs of the key whose turn it is."""
        return next((jobs for key, jobs in self._queues.items() if self._running[key] < self._max_per_key), None)


def _run_job(job: _Job) -> Callable[[], None]:
    """Call the function of a job; return a function that sets its outcome."""
    try:
        return partial(job.outcome.set_result, job.function())
    except BaseException as e:  # noqa: BLE001 - the caller gets it
        return partial(job.outcome.set_exception, e)


_POOL = FairPool("blocking", _THREADS, _MAX_PER_KEY)


async def run_blocking(key: Hashable, function: Callable[..., T], *arguments: Any) -> T:
    """Run a blocking function in one of four threads that all tools share.

    Calls are scheduled round-robin by `key`, such as the workspace folder. Cancelling the caller removes the call from
    the queue; a function that has started runs to its end.
    """
    return await _POOL.run(key, function, *arguments)
