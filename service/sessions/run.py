"""One run of a session, from the moment that it is asked for."""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from orchestrator_interactive.kernel.cancellation import CancellationToken
from orchestrator_interactive.loop.tasks import CancellableTask

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Iterator

    from connector.protocols import ProgressCallback
    from orchestrator_interactive.kernel import AmplifierSession

T = TypeVar("T")


class SessionRun:
    """A run that may be stopped and suspended before it has a session, and while it has one (`session`).

    One that goes on (`is_resumed`) is not cut by a stop: its loop is to tell first what it had said before.
    """

    def __init__(self, *, is_resumed: bool = False) -> None:
        self._is_resumed = is_resumed
        self._stop = CancellationToken()
        self.session: AmplifierSession | None = None
        self._is_suspended = False
        self._cut: Callable[[], None] | None = None

    @property
    def is_cut(self) -> bool:
        """Whether it was stopped or suspended while it had no session."""
        return self._is_suspended or (self._stop.is_cancelled and not self._is_resumed)

    def stop(self, *, immediate: bool) -> bool:
        """Stop it; whether that changed anything."""
        return self._stop.request_immediate() if immediate else self._stop.request_graceful()

    def suspend(self) -> bool:
        """Have it end at its next boundary; whether that changed anything."""
        if self.session is not None:
            suspend = self.door("orchestrator.suspend")
            return bool(suspend()) if suspend else False
        if self.is_cut:
            return False
        self._is_suspended = True
        if self._cut is not None:
            self._cut()
        return True

    def door(self, capability: str) -> Any:
        """What the loop offers under this name; `None` where there is no loop, or it does not offer that."""
        return self.session.coordinator.get_capability(capability) if self.session else None

    async def unless_cut(self, set_up: Callable[[], Awaitable[T]]) -> T | None:
        """What the set-up gives; `None`: the run was stopped or suspended before there was anything."""

        def cut() -> None:
            if self.is_cut and not patience.expired():
                patience.reschedule(0)

        if self._is_suspended:
            return None
        try:
            async with asyncio.timeout(None) as patience:
                self._cut = cut
                with self._stop.watch(cut):
                    return await set_up()
        except TimeoutError:
            if not patience.expired():
                raise
            return None
        finally:
            self._cut = None

    @contextmanager
    def on(self, session: AmplifierSession) -> Iterator[None]:
        """The run has this session; afterwards what its loop has not read is nobody's there."""
        token = session.coordinator.cancellation
        self.session = session
        self._stop.register_child(token)
        try:
            yield
        finally:
            self._stop.unregister_child(token)
            token.reset()
            self._give_up_unread()
            self.session = None

    async def to_its_end(self, work: Coroutine[Any, Any, T]) -> T:
        """What the session's work gives.

        Where the caller is cancelled, nobody has stopped the run: it is suspended, its tools are cut, and once it has
        ended the cancellation goes on.
        """
        working = CancellableTask(work)

        def cut() -> None:
            self.suspend()
            working.task.cancel()

        await working.end(cut)
        return working.task.result()

    async def whole(self, answer: str) -> str:
        """The answer, or what the log has of it though the loop was cut before it knew that."""
        unsaid = self.door("orchestrator.unsaid")
        return (await unsaid() if unsaid else "") or answer

    async def tell_cut(self, on_progress: ProgressCallback | None) -> str:
        """Tell the end of a run that was cut before its loop began, as that would."""
        # One that goes on has something to tell before it ends: the next owner does.
        hands_over = self._is_suspended and (self._is_resumed or not self._stop.is_cancelled)
        status = "suspended" if hands_over else "cancelled"
        if on_progress is not None:
            await on_progress("complete", {"iterations": 0, "status": status, "waiting": 0})
        return ""

    def _give_up_unread(self) -> None:
        receipts, withdraw = self.door("orchestrator.receipts"), self.door("orchestrator.withdraw_message")
        if receipts is not None and withdraw is not None:
            for receipt in receipts():
                if receipt.state == "waiting":
                    withdraw(receipt.id)
