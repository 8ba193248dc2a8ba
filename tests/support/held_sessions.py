"""A session manager whose runs do what the test says, when it says so."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from connector import Refused, RunFailed

if TYPE_CHECKING:
    from collections.abc import Callable

    from connector import Steer
    from connector.protocols import ProgressCallback


@dataclass
class HeldRun:
    """One execution, held until the test ends it. `listening` is whether its loop still reads steers."""

    instance: str
    conversation: str
    prompt: str
    on_progress: ProgressCallback
    steers: list[Steer] = field(default_factory=list)
    stops: list[bool] = field(default_factory=list)
    listening: bool = True
    full: bool = False
    set_up: bool = False
    _end: asyncio.Future[str] = field(default_factory=lambda: asyncio.get_running_loop().create_future())
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    async def until(self, predicate: Callable[[HeldRun], bool]) -> None:
        """Wait until the connector has brought about what the predicate says of this run."""
        async with asyncio.timeout(10):
            while not predicate(self):
                await self._changed.wait()
                self._changed.clear()

    def wake(self) -> None:
        self._changed.set()

    async def progress(self, event: str, **data: Any) -> None:
        await self.on_progress(event, data)

    async def read_steers(self) -> None:
        """What the loop does at an injection point."""
        data = {"ids": [s.id for s in self.steers], "messages": [s.text for s in self.steers]}
        await self.on_progress("injection:applied", {**data, "count": len(self.steers)})

    def obey(self) -> None:
        """End as a loop does that is told to stop and has said nothing yet."""
        self.listening = False
        if not self._end.done():
            self._end.set_result("")

    async def answer(self, text: str, *, status: str = "success", waiting: int = 0, **more: Any) -> None:
        self.listening = False
        await self.on_progress("complete", {"iterations": 1, "status": status, "waiting": waiting, **more})
        self._end.set_result(text)

    async def fail(self, error: Exception, *, waiting: int = 0, **more: Any) -> None:
        self.listening = False
        await self.on_progress("complete", {"iterations": 1, "status": "error", "waiting": waiting, **more})
        self._end.set_exception(error)


class HeldSessions:
    """Hands every execution to the test, in order.

    `hold_setup` holds a run before its loop listens, `setup_errors` are what the next set-ups fail with, and where
    `obedient` a run ends by itself when it is stopped. `prompts` are those of all runs, `overlapped` those of runs that
    began while another one was on in their conversation; `injected` are the texts of the steers of all runs.
    """

    def __init__(self) -> None:
        self._runs: asyncio.Queue[HeldRun] = asyncio.Queue()
        self._active: dict[tuple[str, str], HeldRun] = {}
        self.hold_setup: asyncio.Event | None = None
        self.setup_errors: list[Exception] = []
        self.obedient = False
        self.prompts: list[str] = []
        self.injected: list[str] = []
        self.overlapped: list[str] = []

    async def next_run(self) -> HeldRun:
        async with asyncio.timeout(10):
            return await self._runs.get()

    @property
    def idle(self) -> bool:
        return self._runs.empty() and not self._active

    async def execute(
        self, instance_name: str, conversation_id: str, prompt: str, on_progress: ProgressCallback | None = None
    ) -> str:
        assert on_progress is not None
        key = (instance_name, conversation_id)
        if any(conversation == conversation_id for _instance, conversation in self._active):
            self.overlapped.append(prompt)
        run = HeldRun(instance_name, conversation_id, prompt, on_progress)
        self._active[key] = run
        self.prompts.append(prompt)
        try:
            if self.hold_setup is not None:
                await self.hold_setup.wait()
            if self.setup_errors:
                raise self.setup_errors.pop(0)
            if self.obedient and run.stops:
                await on_progress("complete", {"iterations": 0, "status": "cancelled", "waiting": 0})
                return ""
            await on_progress("executing", {"prompt": prompt})
            await on_progress("thinking", {"iteration": 1})
            run.set_up = True
            self._runs.put_nowait(run)
            answer = await run._end
            if self.obedient and run.stops:
                data = {"iterations": 1, "status": "cancelled", "waiting": len(run.steers)}
                await on_progress("complete", data)
            return answer
        finally:
            del self._active[key]

    def inject(self, instance_name: str, conversation_id: str, steer: Steer) -> bool:
        run = self._active.get((instance_name, conversation_id))
        if run is None or not run.listening:
            return False
        if run.full:
            raise Refused("100 messages are waiting already; send this one later.")
        run.steers.append(steer)
        self.injected.append(steer.text)
        run.wake()
        return True

    def stop(self, instance_name: str, conversation_id: str, *, immediate: bool = False) -> bool:
        run = self._active.get((instance_name, conversation_id))
        if run is None:
            return False
        run.stops.append(immediate)
        run.wake()
        if self.obedient and run.set_up:
            run.obey()
        return True


__all__ = ["HeldRun", "HeldSessions", "RunFailed"]
