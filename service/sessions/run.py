"""The state of one run, including the time before it has a session."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, TypeVar

from orchestrator_interactive.kernel.cancellation import CancellationToken
from orchestrator_interactive.loop.tasks import CancellableTask

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine

    from connector.protocols import People, ProgressCallback
    from orchestrator_interactive.kernel import AmplifierSession

T = TypeVar("T")


class SessionRun:
    """A run that can be stopped and suspended before and while it has a session.

    A resumed run is not aborted by a stop before it has a session: its loop must first emit the text that it produced
    before the interruption.
    """

    def __init__(self, people: People | None = None, *, is_resumed: bool = False) -> None:
        """`people` are those whom the run may ask; `None`: no one."""
        self.people = people
        self.is_resumed = is_resumed
        self._stop = CancellationToken()
        self.session: AmplifierSession | None = None
        self._is_suspended = False
        self._abort: Callable[[], None] | None = None

    @property
    def was_stopped(self) -> bool:
        return self._stop.is_cancelled

    @property
    def is_aborted(self) -> bool:
        """Whether the run was stopped or suspended before it had a session."""
        return self._is_suspended or (self._stop.is_cancelled and not self.is_resumed)

    def stop(self, *, immediate: bool) -> bool:
        """Stop the run. Return whether this changed its state."""
        return self._stop.request_immediate() if immediate else self._stop.request_graceful()

    def suspend(self) -> bool:
        """Suspend the run at its next turn boundary. Return whether this changed its state."""
        if self.session is not None:
            suspend = self.capability("orchestrator.suspend")
            return bool(suspend()) if suspend else False
        if self.is_aborted:
            return False
        self._is_suspended = True
        if self._abort is not None:
            self._abort()
        return True

    def capability(self, name: str) -> Any:
        """Return a capability of the session; `None` if there is no session or no such capability."""
        return self.session.coordinator.get_capability(name) if self.session else None

    async def unless_aborted(self, set_up: Callable[[], Awaitable[T]]) -> T | None:
        """Await `set_up` and return its result; `None` if the run is stopped or suspended before that."""

        def abort() -> None:
            if self.is_aborted and not timeout.expired():
                timeout.reschedule(0)

        if self._is_suspended:
            return None
        try:
            async with asyncio.timeout(None) as timeout:
                self._abort = abort
                with self._stop.watch(abort):
                    return await set_up()
        except TimeoutError:
            if not timeout.expired():
                raise
            return None
        finally:
            self._abort = None

    async def run_to_end(self, session: AmplifierSession, work: Callable[[], Coroutine[Any, Any, str]]) -> str | None:
        """Run the session's work and return its answer; at the end, withdraw the injections that were not consumed.

        `None`: the run was suspended before the work began. If the caller is cancelled, suspend the run and cancel its
        tools; propagate the cancellation once it has ended.
        """
        token = session.coordinator.cancellation
        self._stop.register_child(token)

        async def begin() -> str | None:
            if self._is_suspended:
                return None
            self.session = session  # a suspension from here on meets the loop
            return await work()

        working = CancellableTask(begin())

        def suspend() -> None:
            self.suspend()
            working.cancel(grace_s=None)

        try:
            await working.wait(suspend)
            answer = working.result()
            if answer is None:
                return None
            # Text that is in the log although the loop was cancelled before it returned it.
            unconfirmed_text = self.capability("orchestrator.unconfirmed_text")
            return (await unconfirmed_text() if unconfirmed_text else "") or answer
        finally:
            self._stop.unregister_child(token)
            token.reset()
            receipts, withdraw = map(self.capability, ("orchestrator.receipts", "orchestrator.withdraw_message"))
            for receipt in receipts() if receipts is not None and withdraw is not None else ():
                if receipt.state == "waiting":
                    withdraw(receipt.id)
            self.session = None

    async def emit_aborted(self, on_progress: ProgressCallback | None) -> str:
        """Emit the `complete` event of a run that was aborted before its loop started."""
        # A resumed run still has text to emit: its next owner emits it.
        hands_over = self._is_suspended and (self.is_resumed or not self._stop.is_cancelled)
        status = "suspended" if hands_over else "cancelled"
        if on_progress is not None:
            await on_progress("complete", {"iterations": 0, "status": status, "waiting": 0})
        return ""
