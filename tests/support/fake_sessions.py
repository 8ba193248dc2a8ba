"""A session manager whose runs the test controls."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from connector import Refused, RunFailed
from connector.protocols import NO_TALK, MessageAuthor, MessageFile, People, QueueFull, ThreadTalk

ProgressCallback = Callable[[str, dict[str, Any]], Awaitable[None]]


@dataclass(frozen=True)
class Injected:
    """An injection into a run."""

    id: str
    text: str
    author: MessageAuthor
    files: tuple[MessageFile, ...]
    talk: ThreadTalk = NO_TALK


@dataclass
class FakeRun:
    """One execution; it lasts until the test ends it.

    Args:
        read: ids of the delivered messages.
        fence: fencing token of the lease.
        resumed: whether it continues the run of another process.
        listening: whether its loop still accepts injections.
        full: whether its injection queue is full.
        refuses: whether it refuses injections; `refused` counts them.
    """

    instance: str
    conversation: str
    prompt: str
    on_progress: ProgressCallback
    read: set[str] = field(default_factory=set)
    author: MessageAuthor | None = None
    files: tuple[MessageFile, ...] = ()
    notes: tuple[str, ...] = ()
    talk: ThreadTalk = NO_TALK
    people: People | None = None
    fence: int | None = None
    resumed: bool = False
    suspended: bool = False
    injections: list[Injected] = field(default_factory=list)
    stops: list[bool] = field(default_factory=list)
    listening: bool = True
    full: bool = False
    refuses: bool = False
    refused: int = 0
    set_up: bool = False
    _end: asyncio.Future[str] = field(default_factory=lambda: asyncio.get_running_loop().create_future())
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def texts(self) -> list[str]:
        """The texts of the injections."""
        return [each.text for each in self.injections]

    async def until(self, predicate: Callable[[FakeRun], bool]) -> None:
        """Wait until the predicate is true of this run."""
        async with asyncio.timeout(50):
            while not predicate(self):
                await self._changed.wait()
                self._changed.clear()

    async def injected(self, *texts: str) -> None:
        """Wait until the injections have these texts."""
        await self.until(lambda run: run.texts == [*texts])

    async def stopped(self, *immediate: bool) -> None:
        """Wait until the stops are these; by default one graceful stop."""
        await self.until(lambda run: run.stops == [*(immediate or (False,))])

    def wake(self) -> None:
        self._changed.set()

    async def progress(self, event: str, **data: Any) -> None:
        await self.on_progress(event, data)

    async def deliver(self) -> None:
        """Deliver the injections, as the loop does at an injection point."""
        for each in self.injections:
            self.read.update((each.id, *(talk.id for talk in each.talk.messages)))
        data = {"ids": [s.id for s in self.injections], "messages": [s.text for s in self.injections]}
        await self.on_progress("injection:applied", {**data, "count": len(self.injections)})

    def obey(self) -> None:
        """End without a text, as a loop does after a stop."""
        self.listening = False
        if not self._end.done():
            self._end.set_result("")

    async def answer(self, text: str, *, status: str = "success", **more: Any) -> None:
        self.listening = False
        await self.on_progress("complete", {"iterations": 1, "status": status, **more})
        self._end.set_result(text)

    async def fail(self, error: Exception, **more: Any) -> None:
        self.listening = False
        await self.on_progress("complete", {"iterations": 1, "status": "error", **more})
        self._end.set_exception(error)


class FakeSessionManager:
    """A session manager that passes every run to the test, in order.

    Attributes:
        hold_setup: holds a run before its loop accepts injections.
        hold_keeping: holds files before they are stored.
        setup_errors: errors of the next set-ups.
        obedient: whether a run ends by itself when it is stopped or suspended.
        forgetful: error of `delivered`, as of a lost log.
        prompts: prompts of all runs.
        overlapped: prompts of runs that began during another run of their conversation.
        injected: texts of the injections of all runs.
        kept: the stored files, by id; `dropped`: ids of removed files.
    """

    def __init__(self) -> None:
        self._runs: asyncio.Queue[FakeRun] = asyncio.Queue()
        self._active: dict[tuple[str, str], FakeRun] = {}
        self._read: dict[tuple[str, str], set[str]] = {}
        self.hold_setup: asyncio.Event | None = None
        self.hold_keeping: asyncio.Event | None = None
        self.setup_errors: list[Exception] = []
        self.obedient = False
        self.forgetful: RunFailed | None = None
        self.prompts: list[str] = []
        self.injected: list[str] = []
        self.overlapped: list[str] = []
        self.kept: dict[str, bytes] = {}
        self.dropped: list[str] = []

    async def next_run(self) -> FakeRun:
        async with asyncio.timeout(50):
            return await self._runs.get()

    @property
    def idle(self) -> bool:
        return self._runs.empty() and not self._active

    async def execute(
        self,
        instance_name: str,
        conversation_id: str,
        prompt: str,
        on_progress: ProgressCallback | None = None,
        *,
        message_id: str | None = None,
        author: MessageAuthor | None = None,
        written_s: float | None = None,
        files: tuple[MessageFile, ...] = (),
        notes: Mapping[str, str] | None = None,
        talk: ThreadTalk = NO_TALK,
        people: People | None = None,
        fence: int | None = None,
    ) -> str:
        assert message_id is not None
        assert written_s is not None
        run = self._run(instance_name, conversation_id, prompt, on_progress, fence)
        run.author, run.files, run.notes = author, files, tuple((notes or {}).values())
        run.talk, run.people = talk, people
        return await self._held(run, message_id)

    async def resume(
        self,
        instance_name: str,
        conversation_id: str,
        on_progress: ProgressCallback | None = None,
        *,
        people: People | None = None,
        fence: int | None = None,
    ) -> str:
        run = self._run(instance_name, conversation_id, "", on_progress, fence)
        run.resumed, run.people = True, people
        return await self._held(run, None)

    def _run(
        self, instance: str, conversation: str, prompt: str, on_progress: ProgressCallback | None, fence: int | None
    ) -> FakeRun:
        assert on_progress is not None
        assert fence is not None
        if any(active == conversation for _instance, active in self._active):
            self.overlapped.append(prompt)
        read = self._read.setdefault((instance, conversation), set())
        run = self._active[instance, conversation] = FakeRun(
            instance, conversation, prompt, on_progress, read, fence=fence
        )
        self.prompts.append(prompt)
        return run

    async def _held(self, run: FakeRun, message_id: str | None) -> str:
        try:
            if self.hold_setup is not None:
                await self.hold_setup.wait()
            if self.setup_errors:
                raise self.setup_errors.pop(0)
            if self.obedient and run.stops:
                await run.on_progress("complete", {"iterations": 0, "status": "cancelled"})
                return ""
            await run.on_progress("executing", {"prompt": run.prompt})
            if self.obedient and run.stops:
                await run.on_progress("complete", {"iterations": 0, "status": "cancelled"})
                return ""
            if message_id is not None:
                run.read.update((message_id, *(each.id for each in run.talk.messages)))
            await run.on_progress("thinking", {"iteration": 1})
            run.set_up = True
            self._runs.put_nowait(run)
            answer = await run._end
            if self.obedient and (run.stops or run.suspended):
                status = "suspended" if run.suspended else "cancelled"
                await run.on_progress("complete", {"iterations": 1, "status": status})
            return answer
        finally:
            del self._active[run.instance, run.conversation]

    async def delivered(
        self, instance_name: str, conversation_id: str, ids: Collection[str], *, fence: int | None = None
    ) -> frozenset[str]:
        assert fence is not None
        if self.forgetful is not None:
            raise self.forgetful
        return frozenset(self._read.get((instance_name, conversation_id), set()) & set(ids))

    def inject(
        self,
        instance_name: str,
        conversation_id: str,
        prompt: str,
        *,
        message_id: str,
        author: MessageAuthor,
        written_s: float,
        files: tuple[MessageFile, ...] = (),
        talk: ThreadTalk = NO_TALK,
    ) -> bool:
        run = self._active.get((instance_name, conversation_id))
        if run is None or not run.listening:
            return False
        if run.refuses:
            run.refused += 1
            run.wake()
            raise Refused("It has no words; send it with some.")
        if run.full:
            raise QueueFull
        run.injections.append(Injected(message_id, prompt, author, files, talk))
        self.injected.append(prompt)
        run.wake()
        return True

    async def keep_file(  # noqa: PLR0917 - the parts of a file
        self, instance_name: str, conversation_id: str, file_id: str, name: str, mimetype: str, content: Path
    ) -> MessageFile:
        if self.hold_keeping is not None:
            await self.hold_keeping.wait()
        self.kept[file_id] = await asyncio.to_thread(content.read_bytes)
        return MessageFile(name, f"{name}: {mimetype}")

    async def drop_files(self, instance_name: str, conversation_id: str, file_ids: Collection[str]) -> None:
        for each in file_ids:
            self.kept.pop(each, None)
        self.dropped += file_ids

    async def edit(
        self, instance_name: str, conversation_id: str, message_id: str, text: str, files: tuple[MessageFile, ...] = ()
    ) -> bool:
        run = self._active.get((instance_name, conversation_id))
        for place, steer in enumerate(run.injections if run else ()):
            if steer.id == message_id and message_id not in run.read:
                run.injections[place] = replace(steer, text=text, files=files)
                run.wake()
                return True
        return False

    async def withdraw(self, instance_name: str, conversation_id: str, message_id: str) -> bool:
        run = self._active.get((instance_name, conversation_id))
        waiting = [
            each for each in (run.injections if run else ()) if each.id == message_id and each.id not in run.read
        ]
        for steer in waiting:
            run.injections.remove(steer)
            run.wake()
        return bool(waiting)

    def suspend(self, instance_name: str, conversation_id: str) -> bool:
        run = self._active.get((instance_name, conversation_id))
        if run is None:
            return False
        run.suspended = True
        run.wake()
        if self.obedient and run.set_up:
            run.obey()
        return True

    def stop(self, instance_name: str, conversation_id: str, *, immediate: bool = False, agent: str = "") -> bool:
        run = self._active.get((instance_name, conversation_id))
        if run is None:
            return False
        run.stops.append(immediate)
        run.wake()
        if self.obedient and run.set_up:
            run.obey()
        return True


__all__ = ["FakeRun", "FakeSessionManager", "RunFailed"]
