"""An event loop in virtual time that picks the next callback from a seed.

asyncio runs callbacks first in, first out. Every order here keeps this much of it:

- The steps of one task are in order: a task has at most one step in the queue.
- Callbacks of one object run in the order in which they were queued.
- Nothing overtakes the first step of a task that was queued earlier: a task that is cancelled before its first step
  never runs, and no clean-up code could handle that.

Everything else may overtake: two tasks that wake up, the callbacks of one future, timers due at the same time.
`test_asyncio_in_any_order.py` shows that the primitives of asyncio work in every order.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import heapq
import itertools
import random
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

# The simulated process that a callback belongs to; contexts inherit it. `SimulatedLoop.kill` ends it.
PROCESS: contextvars.ContextVar[int] = contextvars.ContextVar("process", default=0)


class DeadlockError(Exception):
    """Nothing is ready, no timer is left, and the main task is not done."""


class TooManyCallbacksError(Exception):
    """The main task is not done after very many callbacks."""


class NotSimulatedError(Exception):
    """The simulation has no threads, sockets, processes or signals."""


class Ready:
    """A callback that may run, and the handle of it that asyncio keeps.

    `owner` is its task or object; `begins` marks the first step of a task. asyncio's own handles do more than is needed
    here, and every callback has one.
    """

    __slots__ = ("_args", "_callback", "_context", "_is_cancelled", "_when_s", "begins", "owner", "process")

    def __init__(self, callback: Any, args: tuple[Any, ...], context: Any, owner: Any, *, begins: bool, when_s: float):
        self._callback = callback
        self._args = args
        self._context = context
        self._is_cancelled = False
        self._when_s = when_s
        self.begins = begins
        self.owner = owner
        self.process: int = context.get(PROCESS, 0)

    def cancel(self) -> None:
        self._is_cancelled = True
        self._callback = self._args = None

    def cancelled(self) -> bool:
        return self._is_cancelled

    def when(self) -> float:
        return self._when_s

    def run(self, loop: SimulatedLoop) -> None:
        try:
            self._context.run(self._callback, *self._args)
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException as e:  # noqa: BLE001 - as asyncio does
            loop.call_exception_handler({"message": f"Exception in {self._callback!r}", "exception": e})


class InOrder:
    """The order of asyncio: first in, first out. Each callback takes up to `max_pause_s`."""

    def __init__(self, rng: random.Random, max_pause_s: float = 0.0):
        self._rng = rng
        self._max_pause_s = max_pause_s

    def pick(self, ready: Sequence[Ready]) -> int:
        return 0

    def pause_s(self) -> float:
        # Where callbacks take time, timers come due between the steps of a task that never waits.
        return self._rng.random() * self._max_pause_s if self._max_pause_s else 0.0


class Shuffled(InOrder):
    """Any callback, with equal probability."""

    def pick(self, ready: Sequence[Ready]) -> int:
        return _first_of_its_owner(ready, self._rng.randrange(_choices(ready)))


class Lopsided(InOrder):
    """Some tasks are always faster than others, until that changes.

    A race that needs several steps of one task between two steps of another is rare with fair draws, and common here.
    """

    def __init__(self, rng: random.Random, max_pause_s: float = 0.0):
        super().__init__(rng, max_pause_s)
        self._weights: dict[asyncio.Task[Any], float] = {}

    def pick(self, ready: Sequence[Ready]) -> int:
        if self._rng.random() < 0.1:  # against starvation
            return _first_of_its_owner(ready, self._rng.randrange(_choices(ready)))
        weights = [self._weight(each.owner) for each in ready[: _choices(ready)]]
        index = weights.index(max(weights))
        owner = ready[index].owner
        if isinstance(owner, asyncio.Task) and self._rng.random() < 0.03:
            self._weights[owner] = 0.0
        return _first_of_its_owner(ready, index)

    def _weight(self, owner: Any) -> float:
        if not isinstance(owner, asyncio.Task):
            return self._rng.random()
        if owner not in self._weights:
            self._weights[owner] = self._rng.random()
        return self._weights[owner]


def order_for(rng: random.Random) -> InOrder:
    """Choose an order; in some of them callbacks take up to 20 or 200 µs."""
    kind = rng.choice([InOrder, Shuffled, Shuffled, Lopsided])
    return kind(rng, rng.choice([0.0, 0.0, 20e-6, 200e-6]))


def _choices(ready: Sequence[Ready]) -> int:
    """Count the callbacks that may run next: up to the first one that begins a task."""
    return next((i + 1 for i, each in enumerate(ready) if each.begins), len(ready))


def _first_of_its_owner(ready: Sequence[Ready], index: int) -> int:
    owner = ready[index].owner
    return index if owner is None else next(i for i, each in enumerate(ready) if each.owner is owner)


class _Task(asyncio.Task[Any]):
    """A task with a hash of its own: sets of tasks, such as those of a TaskGroup, have the same order in each run."""

    def __init__(self, coro: Any, number: int, **options: Any):
        self._number = number
        super().__init__(coro, **options)

    def __hash__(self) -> int:
        return self._number


class SimulatedLoop(asyncio.AbstractEventLoop):
    """An event loop without a clock, a socket or a thread.

    `order` picks the next of the ready callbacks. If none is ready, time jumps to the next timer. The same order and
    the same program give the same schedule. After `max_callbacks` a program counts as hung.
    """

    def __init__(self, order: InOrder, max_callbacks: int = 100_000):
        self.tasks: list[asyncio.Task[Any]] = []
        self.errors: list[str] = []
        self.callbacks = 0
        self._order = order
        self._max_callbacks = max_callbacks
        self._now_s = 0.0
        self._ready: list[Ready] = []
        self._timers: list[tuple[float, int, Ready]] = []
        self._numbers = itertools.count()
        self._creates_task = self._running = self._closed = False
        self._processes: dict[asyncio.Task[Any], int] = {}
        self._killed_s: dict[int, float] = {}
        self._killed_tasks: list[asyncio.Task[Any]] = []
        self._paused: dict[int, list[Ready]] = {}
        self._countdowns: dict[int, tuple[int, Callable[[], object]]] = {}

    def time(self):
        return self._now_s

    def run_until_complete(self, future):
        """Run until `future` is done.

        Raises:
            DeadlockError: it can never be done; the message shows where every task is suspended.
            TooManyCallbacksError: it is not done after `max_callbacks`.
        """
        main = asyncio.ensure_future(future, loop=self)
        asyncio._set_running_loop(self)
        self._running = True
        try:
            while not main.done():
                self._run_one()
        finally:
            self._running = False
            asyncio._set_running_loop(None)
        return main.result()

    def pending(self) -> list[asyncio.Task[Any]]:
        """Return the tasks that have not ended, in the order of their creation."""
        return [task for task in self.tasks if not task.done()]

    def process_of(self, task: asyncio.Task[Any]) -> int:
        return self._processes[task]

    def kill(self, process: int) -> None:
        """End a process as SIGKILL does: none of its callbacks runs again, and no clean-up either."""
        self._killed_s.setdefault(process, self._now_s)
        self._killed_tasks += [task for task in self.pending() if self._processes[task] == process]
        self.tasks = [task for task in self.tasks if self._processes[task] != process]
        self._paused.pop(process, None)
        self._countdowns.pop(process, None)

    def killed_s(self, process: int) -> float | None:
        """Return the time at which a process was killed."""
        return self._killed_s.get(process)

    def pause(self, process: int) -> None:
        """Run none of the callbacks of a process until `resume`: it gets no processor while time passes."""
        self._paused.setdefault(process, [])

    def resume(self, process: int) -> None:
        self._ready += self._paused.pop(process, ())

    def after_callbacks(self, process: int, count: int, action: Callable[[], object]) -> None:
        """Call `action` once `count` callbacks of a process have run. Replaces an earlier action."""
        self._countdowns[process] = count, action

    def close(self):
        """Drop all pending tasks without running them further."""
        self._closed = True
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # coroutines that were never awaited
            for task in (*self.pending(), *self._killed_tasks):
                task._log_destroy_pending = False
                with contextlib.suppress(
                    Exception, BaseExceptionGroup
                ):  # a coroutine may refuse; it will not run again
                    task.get_coro().close()
        self._ready.clear()
        self._timers.clear()

    def call_soon(self, callback, *args, context=None):
        context = context or contextvars.copy_context()
        owner = getattr(callback, "__self__", None)
        handle = Ready(callback, args, context, owner, begins=self._creates_task, when_s=self._now_s)
        self._ready.append(handle)
        return handle

    call_soon_threadsafe = call_soon  # there is one thread

    def call_later(self, delay, callback, *args, context=None):
        return self.call_at(self._now_s + delay, callback, *args, context=context)

    def call_at(self, when, callback, *args, context=None):
        context = context or contextvars.copy_context()
        handle = Ready(callback, args, context, None, begins=False, when_s=when)
        heapq.heappush(self._timers, (when, next(self._numbers), handle))
        return handle

    def run_in_executor(self, _executor, function, *args):
        """Call a function at once: there is one thread."""
        future = self.create_future()
        try:
            future.set_result(function(*args))
        except Exception as e:  # noqa: BLE001 - the future has it
            future.set_exception(e)
        return future

    def create_future(self):
        return asyncio.Future(loop=self)

    def create_task(self, coro, *, name=None, **options):
        self._creates_task = True
        try:
            number = len(self._processes)
            task = _Task(coro, number, loop=self, name=name or f"task {number}", **options)
        finally:
            self._creates_task = False
        self.tasks.append(task)
        context = options.get("context") or contextvars.copy_context()
        self._processes[task] = context.get(PROCESS, 0)
        return task

    def get_debug(self):
        return False

    def is_running(self):
        return self._running

    def is_closed(self):
        return self._closed

    def call_exception_handler(self, context):
        if not self._closed:
            self.errors.append(f"{context['message']}: {context.get('exception')!r}")

    def _run_one(self) -> None:
        self._wake()
        ready = self._ready.pop(self._order.pick(self._ready))
        if self._is_void(ready):
            return
        if ready.process in self._paused:
            self._paused[ready.process].append(ready)
            return
        self.callbacks += 1
        if self.callbacks > self._max_callbacks:
            raise TooManyCallbacksError(f"Not done after {self._max_callbacks} callbacks. {self._describe_tasks()}")
        ready.run(self)
        self._now_s += self._order.pause_s()
        if ready.process in self._countdowns:
            count, action = self._countdowns[ready.process]
            self._countdowns[ready.process] = count - 1, action
            if count <= 1:
                del self._countdowns[ready.process]
                action()

    def _wake(self) -> None:
        """Make due timers ready; if nothing is ready, advance the time to the next timer."""
        while self._timers and (self._timers[0][0] <= self._now_s or not self._ready):
            when, _, ready = heapq.heappop(self._timers)
            if not self._is_void(ready):
                self._now_s = max(self._now_s, when)
                self._ready.append(ready)
        if not self._ready:
            raise DeadlockError(f"No callback will ever run again. {self._describe_tasks()}")

    def _is_void(self, ready: Ready) -> bool:
        return ready.cancelled() or ready.process in self._killed_s

    def _describe_tasks(self) -> str:
        return "Tasks:\n" + "\n".join(f"  {stack_of(task)}" for task in self.pending())


def _refuse(name: str) -> Callable[..., Any]:
    def refuse(*_: Any, **__: Any) -> Any:
        raise NotSimulatedError(f"{NotSimulatedError.__doc__} loop.{name} was called.")

    return refuse


for _name in vars(asyncio.AbstractEventLoop).keys() - vars(SimulatedLoop).keys():
    if not _name.startswith("_"):
        setattr(SimulatedLoop, _name, _refuse(_name))


def stack_of(task: asyncio.Task[Any]) -> str:
    """Return a task's name and its frames, outermost first, down to the innermost await."""
    frames: list[str] = []
    at: Any = task.get_coro()
    while at is not None:
        frame = getattr(at, "cr_frame", None) or getattr(at, "gi_frame", None)
        if frame is not None:
            frames.append(f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno} {frame.f_code.co_name}")
        at = getattr(at, "cr_await", None) or getattr(at, "gi_yieldfrom", None)
    return f"{task.get_name()}: {' > '.join(frames) or 'not begun'}"
