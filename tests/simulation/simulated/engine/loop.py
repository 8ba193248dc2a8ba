"""The loop itself."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import heapq
import itertools
import warnings
from typing import TYPE_CHECKING, Any, TypeVar, TypeVarTuple

from .order import Order, Ready
from .stalls import standing

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Generator

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

# Whose callbacks die together: whatever is started in a context in which this is set has the same life.
LIFE: contextvars.ContextVar[int] = contextvars.ContextVar("life", default=0)


class Deadlock(Exception):  # noqa: N818 - what it is called
    """Nothing is ready, no timer is left, and the main task is not done."""


class Busy(Exception):  # noqa: N818 - a fact about the loop
    """The main task is not done after very many callbacks."""


class NotSimulated(Exception):  # noqa: N818 - a fact about the loop
    """The simulation has no threads, sockets, processes or signals."""


class SimulatedLoop(asyncio.AbstractEventLoop):
    """An event loop without a clock, a socket or a thread.

    The `order` says which of the ready callbacks runs next. Where nothing is ready, time jumps to the next timer. The
    same order and the same program give the same schedule.

    Args:
        order: the order of callbacks, and how long they take.
        most_callbacks: after so many, a program counts as hung.
    """

    def __init__(self, order: Order, most_callbacks: int = 100_000) -> None:
        self.tasks: list[asyncio.Task[Any]] = []
        self.errors: list[str] = []
        self.callbacks = 0
        self._order = order
        self._most_callbacks = most_callbacks
        self._now = 0.0
        self._ready: list[Ready] = []
        self._timers: list[tuple[float, int, Ready]] = []
        self._numbers = itertools.count()
        self._making_a_task = False
        self._running = False
        self._closed = False
        self._dead: dict[int, float] = {}
        self._lives: dict[asyncio.Task[Any], int] = {}
        self._corpses: list[asyncio.Task[Any]] = []
        self._held: dict[int, list[Ready]] = {}
        self._countdowns: dict[int, tuple[int, Callable[[], object]]] = {}

    def time(self) -> float:
        return self._now

    def run_until_complete(self, future: Awaitable[T]) -> T:  # type: ignore[override]
        """Run until it is done.

        Raises:
            Deadlock: it never will be; the message says where every task stands.
            Busy: it may be, but not within `most_callbacks`.
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
        """The tasks that have not ended, in the order in which they were made."""
        return [task for task in self.tasks if not task.done()]

    def life_of(self, task: asyncio.Task[Any]) -> int:
        """The life that a task ends with."""
        return self._lives[task]

    def kill(self, life: int) -> None:
        """End a life as a killed process ends: none of its callbacks runs any more, no clean-up either."""
        self._dead.setdefault(life, self._now)
        self._corpses += [task for task in self.pending() if self._lives[task] == life]
        self.tasks = [task for task in self.tasks if self._lives[task] != life]
        self._held.pop(life, None)
        self._countdowns.pop(life, None)

    def died_s(self, life: int) -> float | None:
        """When it was killed; `None`: it was not."""
        return self._dead.get(life)

    def hold(self, life: int) -> None:
        """Run none of its callbacks until it is let go: a process that gets no processor, while time goes on."""
        self._held.setdefault(life, [])

    def let_go(self, life: int) -> None:
        self._ready += self._held.pop(life, ())

    def after_callbacks(self, life: int, count: int, do: Callable[[], object]) -> None:
        """Call `do` between two callbacks, once so many of this life have run; this replaces what was to be done."""
        self._countdowns[life] = count, do

    def close(self) -> None:
        """Give up on whatever is pending, without running it any further."""
        self._closed = True
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about coroutines that were to be awaited
            for task in (*self.pending(), *self._corpses):
                task._log_destroy_pending = False  # type: ignore[attr-defined]
                with contextlib.suppress(Exception, BaseExceptionGroup):  # it may refuse; it will not run again anyway
                    task.get_coro().close()
        self._ready.clear()
        self._timers.clear()

    def call_soon(
        self, callback: Callable[[*Ts], object], *args: *Ts, context: contextvars.Context | None = None
    ) -> asyncio.Handle:
        context = context or contextvars.copy_context()
        handle = asyncio.Handle(callback, args, self, context)
        owner = getattr(callback, "__self__", None)
        self._ready.append(Ready(handle, owner, context.get(LIFE, 0), begins=self._making_a_task))
        return handle

    call_soon_threadsafe = call_soon  # there is one thread

    def call_later(
        self, delay: float, callback: Callable[[*Ts], object], *args: *Ts, context: contextvars.Context | None = None
    ) -> asyncio.TimerHandle:
        return self.call_at(self._now + delay, callback, *args, context=context)

    def call_at(
        self, when: float, callback: Callable[[*Ts], object], *args: *Ts, context: contextvars.Context | None = None
    ) -> asyncio.TimerHandle:
        context = context or contextvars.copy_context()
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        heapq.heappush(self._timers, (when, next(self._numbers), Ready(handle, None, context.get(LIFE, 0))))
        return handle

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(
        self, coro: Generator[Any, None, T] | Coroutine[Any, Any, T], *, name: str | None = None, **options: Any
    ) -> asyncio.Task[T]:
        self._making_a_task = True
        try:
            task = asyncio.Task(coro, loop=self, name=name or f"task {len(self._lives)}", **options)
        finally:
            self._making_a_task = False
        self.tasks.append(task)
        context = options.get("context") or contextvars.copy_context()
        self._lives[task] = context.get(LIFE, 0)
        return task

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return self._running

    def is_closed(self) -> bool:
        return self._closed

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        if not self._closed:
            self.errors.append(f"{context['message']}: {context.get('exception')!r}")

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """It stays in the heap until its time, and is passed over then."""

    def _run_one(self) -> None:
        self._wake()
        ready = self._ready.pop(self._order.pick(self._ready))
        if self._is_void(ready):
            return
        if ready.life in self._held:
            self._held[ready.life].append(ready)
            return
        self.callbacks += 1
        if self.callbacks > self._most_callbacks:
            raise Busy(f"Not done after {self._most_callbacks} callbacks. {self._standing()}")
        ready.handle._run()
        self._now += self._order.pause_s()
        if ready.life in self._countdowns:
            self._count_down(ready.life)

    def _count_down(self, life: int) -> None:
        count, do = self._countdowns[life]
        if count > 1:
            self._countdowns[life] = count - 1, do
        else:
            del self._countdowns[life]
            do()

    def _wake(self) -> None:
        """Make ready what is due; where nothing is ready, let time pass until something is."""
        while self._timers and (self._timers[0][0] <= self._now or not self._ready):
            when, _, ready = heapq.heappop(self._timers)
            if self._is_void(ready):
                continue
            self._now = max(self._now, when)
            self._ready.append(ready)
        if not self._ready:
            raise Deadlock(f"Nothing will ever happen again. {self._standing()}")

    def _is_void(self, ready: Ready) -> bool:
        return ready.handle.cancelled() or ready.life in self._dead

    def _standing(self) -> str:
        return "Tasks:\n" + "\n".join(f"  {standing(task)}" for task in self.pending())


_OUTSIDE = (
    "run_in_executor",
    "set_default_executor",
    "getaddrinfo",
    "getnameinfo",
    "create_connection",
    "create_server",
    "start_tls",
    "sendfile",
    "create_unix_connection",
    "create_unix_server",
    "connect_accepted_socket",
    "create_datagram_endpoint",
    "connect_read_pipe",
    "connect_write_pipe",
    "subprocess_shell",
    "subprocess_exec",
    "add_reader",
    "remove_reader",
    "add_writer",
    "remove_writer",
    "sock_recv",
    "sock_recv_into",
    "sock_recvfrom",
    "sock_recvfrom_into",
    "sock_sendall",
    "sock_sendto",
    "sock_connect",
    "sock_accept",
    "sock_sendfile",
    "add_signal_handler",
    "remove_signal_handler",
)


def _refusing(name: str) -> Callable[..., Any]:
    def refuse(*_: Any, **__: Any) -> Any:
        raise NotSimulated(f"{NotSimulated.__doc__} It was asked for loop.{name}.")

    return refuse


for _name in _OUTSIDE:
    setattr(SimulatedLoop, _name, _refusing(_name))
