"""Cancellation of a run in two stages."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack
from enum import Enum
from typing import TYPE_CHECKING

import structlog

from orchestrator_interactive.kernel.error_boundary import ErrorBoundary

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from contextlib import AbstractContextManager

log = structlog.get_logger(__name__)


class CancellationState(Enum):
    NONE = "none"
    GRACEFUL = "graceful"
    IMMEDIATE = "immediate"


class _Watch:
    # A class is several times cheaper than a generator, and the loop enters two per turn.
    __slots__ = ("_callback", "_token", "_watchers")

    def __init__(
        self, token: CancellationToken, watchers: dict[object, Callable[[], object]], callback: Callable[[], object]
    ) -> None:
        self._token, self._watchers, self._callback = token, watchers, callback

    def __enter__(self) -> None:
        self._watchers[self] = self._callback
        if self._token.is_cancelled:
            with ExitStack() as undo:
                undo.callback(self._watchers.pop, self)
                self._callback()
                undo.pop_all()

    def __exit__(self, *_: object) -> None:
        del self._watchers[self]


class CancellationToken:
    """Cancellation state of a run. Belongs to one event loop.

    The state only advances, none → graceful → immediate, until `reset`. A request made before a run starts applies to
    that run: the owner of the run resets the token when the run has *ended*.
    """

    def __init__(self) -> None:
        self._state = CancellationState.NONE
        self.is_cancelled = False
        self._watchers: dict[object, Callable[[], object]] = {}  # of `watch`, and one for each child
        self._callbacks: list[Callable[[], Awaitable[None]]] = []
        self._tools: dict[str, str] = {}

    @property
    def state(self) -> str:
        return self._state.value

    @property
    def is_graceful(self) -> bool:
        return self._state is CancellationState.GRACEFUL

    @property
    def is_immediate(self) -> bool:
        return self._state is CancellationState.IMMEDIATE

    def request_graceful(self) -> bool:
        """End the model call in flight and start no new tool. Returns whether this changed anything."""
        return self._advance(CancellationState.GRACEFUL) if not self.is_cancelled else False

    def request_immediate(self) -> bool:
        """Cancel running tools too. Returns whether this changed anything."""
        return self._advance(CancellationState.IMMEDIATE) if not self.is_immediate else False

    def reset(self) -> None:
        self._state = CancellationState.NONE
        self.is_cancelled = False

    @property
    def running_tools(self) -> set[str]:
        """The ids of the tool calls that an orchestrator has reported as running."""
        return set(self._tools)

    @property
    def running_tool_names(self) -> list[str]:
        return list(self._tools.values())

    def register_tool_start(self, tool_call_id: str, tool_name: str) -> None:
        self._tools[tool_call_id] = tool_name

    def register_tool_complete(self, tool_call_id: str) -> None:
        self._tools.pop(tool_call_id, None)

    def on_cancel(self, callback: Callable[[], Awaitable[None]]) -> None:
        """Register a callback that `ModuleCoordinator.request_cancel` awaits."""
        self._callbacks.append(callback)

    async def trigger_callbacks(self) -> None:
        """Await every `on_cancel` callback; failures are logged."""
        for callback in list(self._callbacks):
            with ErrorBoundary(log, "cancellation.callback_failed"):
                await callback()

    def register_child(self, child: CancellationToken) -> None:
        """Make a child session's token follow this one."""

        def advance() -> None:
            if self.is_immediate:
                child.request_immediate()
            elif self.is_graceful:
                child.request_graceful()

        self._watchers[child] = advance
        advance()

    def unregister_child(self, child: CancellationToken) -> None:
        self._watchers.pop(child, None)

    def watch(self, callback: Callable[[], object]) -> AbstractContextManager[None]:
        """Call `callback` synchronously at every state change, and at entry if cancellation was already requested."""
        return _Watch(self, self._watchers, callback)

    async def wait(self, *, immediate: bool = False) -> None:
        """Wait until the token is cancelled; with `immediate`, until its state is immediate."""
        reached = asyncio.Event()

        def check() -> None:
            if self.is_immediate or (self.is_graceful and not immediate):
                reached.set()

        with self.watch(check):
            await reached.wait()

    def _advance(self, state: CancellationState) -> bool:
        self._state = state
        self.is_cancelled = True
        for callback in list(self._watchers.values()):
            with ErrorBoundary(log, "cancellation.watcher_failed"):
                callback()
        return True
