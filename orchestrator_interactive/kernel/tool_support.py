"""Support for tools: the current call, progress reports, and threads for work that blocks."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import Counter, deque
from concurrent.futures import Future
from contextvars import ContextVar, copy_context
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Hashable, Iterator
    from contextlib import AbstractContextManager

T = TypeVar("T")

_MAX_PROGRESS_CHARS = 200
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
        self._changed = threading.Condition()
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
                threading.Thread(target=self._work, name=self._name).start()
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


def report_progress(text: str) -> None:
    """Report the progress of a tool call. Users see it in the status message; the model does not.

    The text becomes one line of at most 200 characters; blank text is ignored. Works in the tool's own tasks and in
    `run_blocking`. Does nothing without an enclosing `reporting`, such as in a test or under another kernel.
    """
    if (reporter := _reporter.get()) is not None and (line := " ".join(text.split())):
        reporter.emit(line if len(line) <= _MAX_PROGRESS_CHARS else f"{line[: _MAX_PROGRESS_CHARS - 1]}…")


def reporting(callback: Callable[[str], object]) -> AbstractContextManager[None]:
    """Pass each progress line of the enclosed code to `callback`, on the event loop of the caller.

    Reports of tasks and threads that outlive the block are dropped.
    """
    return _Reporter(callback)


class _Reporter:
    __slots__ = ("_callback", "_loop", "_outer", "_thread")

    def __init__(self, callback: Callable[[str], object]) -> None:
        self._callback: Callable[[str], object] | None = callback

    def __enter__(self) -> None:
        self._loop, self._thread = asyncio.get_running_loop(), threading.get_ident()
        self._outer = _reporter.get()
        _reporter.set(self)

    def __exit__(self, *_: object) -> None:
        self._callback = None
        if _reporter.get() is self:  # false if an unfinished task is garbage-collected
            _reporter.set(self._outer)

    def emit(self, line: str) -> None:
        if threading.get_ident() == self._thread:
            self._hand_over(line)
        elif self._callback is not None:
            with contextlib.suppress(RuntimeError):  # the event loop is closed
                self._loop.call_soon_threadsafe(self._hand_over, line)

    def _hand_over(self, line: str) -> None:
        if self._callback is not None:
            self._callback(line)


_reporter: ContextVar[_Reporter | None] = ContextVar("reporter", default=None)


@dataclass(frozen=True, slots=True)
class ApprovalDetails:
    """The text for people of a hook that asks for the approval of a tool call, and its addressees.

    Args:
        render: returns the arguments as Markdown, in readable form.
        risk: why people are asked, in one line.
        rule: name of the rule by which they are asked.
        approvers, needed, always: as of a request to people in the service.
    """

    render: Callable[[dict[str, Any]], Awaitable[str]]
    risk: str
    rule: str
    approvers: tuple[str, ...] = ("owner",)
    needed: int = 1
    always: tuple[str, ...] = ()


# The capability of a sub-agent's session that is `CallContext.authors` of the call for which it works.
CALLERS = "session.callers"


@dataclass(slots=True, eq=False)
class CallContext:
    """The tool call on whose behalf the current task runs; see `current_call`.

    Args:
        arguments: as the hooks modified them so far.
        on_awaiting: called when `is_awaiting` changes.
        has_begun: whether the tool runs, or has run.
        approval: the text of a hook that asks people to approve the call.
        decision: how the call was allowed or denied, in JSON types; the log keeps it with the result.
        usage: tokens and cost of the sub-agent that has worked for the call, as in the event `complete`.
        authors: reads from the log which people (ids) wrote the messages that led to the call; a blank id stands for
            messages of unknown authors. On the authority of several people, no call may use what belongs to one.
    """

    id: str
    name: str
    arguments: dict[str, Any]
    on_awaiting: Callable[[], object]
    authors: Callable[[], Awaitable[frozenset[str]]] | None = None
    has_begun: bool = False
    approval: ApprovalDetails | None = None
    decision: dict[str, Any] | None = None
    usage: dict[str, Any] | None = None
    _waits: int = 0
    _on_message: Callable[[], object] | None = None
    _asked_s: float | None = None

    @property
    def is_awaiting(self) -> bool:
        """Whether the call waits for a person or another agent.

        Messages do not wait for such a call, and a suspended run leaves it to its next owner, which repeats it.
        """
        return self._waits > 0

    @contextlib.contextmanager
    def awaiting_others(
        self, on_message: Callable[[], object] | None = None, asked_s: float | None = None
    ) -> Iterator[None]:
        """Report that the enclosed code waits for a person or another agent.

        `on_message` is called if a message to the agent arrives in that time: it is the awaited answer. `asked_s`: when
        an earlier process asked, in seconds since the epoch; then a message that was written since is the answer, too.
        """
        self._waits, self._on_message, self._asked_s = self._waits + 1, on_message, asked_s
        self.on_awaiting()
        try:
            yield
        finally:
            self._waits, self._on_message = self._waits - 1, None
            self.on_awaiting()

    def take_message(self, written_s: float | None = None) -> bool:
        """Answer the call by a message that arrives, or that was written at this time and has arrived before.

        Returns False if the message cannot answer it.
        """
        if written_s is not None and (self._asked_s is None or written_s < self._asked_s):
            return False
        answer, self._on_message = self._on_message, None
        if answer is not None:
            answer()
        return answer is not None


current_call: ContextVar[CallContext | None] = ContextVar("current_call", default=None)
