"""Processes of the service with one store and one workspace."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

from service_process import Serving, free_address, serving

READY = "service.ready"
_READY_WITHIN_S = 60.0
_AGAIN_AFTER_S = 0.3


@dataclass
class Replica:
    """One place at which processes of the service run, one after the other; `past` are those that have ended."""

    name: str
    env: Mapping[str, str]
    config: Path
    command: Sequence[str] = ("run",)
    ready: str = READY
    past: list[Serving] = field(default_factory=list)
    _now: Serving | None = None
    _exit: AsyncExitStack = field(default_factory=AsyncExitStack)

    @property
    def serving(self) -> Serving:
        """The process that runs here.

        Raises:
            AssertionError: none does.
        """
        assert self._now is not None, f"{self.name} does not run"
        return self._now

    @property
    def is_up(self) -> bool:
        return self._now is not None and self._now.process.returncode is None

    async def start(self) -> Serving:
        """Start a process here, again where one ends at once, as a supervisor does; it is ready when this returns."""
        async with asyncio.timeout(_READY_WITHIN_S):
            while True:
                if self._now is not None:  # it has ended by itself
                    await self._put_away(self._now)
                self._now = await self._exit.enter_async_context(
                    serving(self.env, "--config", str(self.config), command=self.command)
                )
                if await self._is_ready(self._now):
                    return self._now
                await asyncio.sleep(_AGAIN_AFTER_S)

    async def _is_ready(self, process: Serving) -> bool:
        """Wait until it is; False: it has ended."""
        ready, ended = asyncio.create_task(process.says(self.ready)), asyncio.create_task(process.process.wait())
        done, late = await asyncio.wait((ready, ended), return_when=asyncio.FIRST_COMPLETED)
        for task in late:
            task.cancel()
        await asyncio.gather(*late, return_exceptions=True)
        return ready in done

    async def kill(self) -> None:
        """End its process at once."""
        await self._ended(signal.SIGKILL)

    async def terminate(self, within_s: float = 20) -> int:
        """Ask its process to end; returns the exit code."""
        return await self._ended(signal.SIGTERM, within_s)

    def freeze(self) -> None:
        """Pause its process until `thaw`."""
        self.serving.process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self.serving.process.send_signal(signal.SIGCONT)

    @property
    def log(self) -> str:
        """All that its processes have said."""
        there = [self._now] if self._now else []
        return "".join(f"--- {self.name}, pid {each.process.pid}\n{each.output}" for each in [*self.past, *there])

    async def _ended(self, number: signal.Signals, within_s: float = 10) -> int:
        process = self.serving
        code = await process.ended(number, within_s)
        await self._put_away(process)
        return code

    async def _put_away(self, process: Serving) -> None:
        await self._exit.aclose()  # so that its last output is read
        self.past.append(process)
        self._now = None

    async def close(self) -> None:
        if self._now is not None and self._now.process.returncode is None:
            self.thaw()
        await self._exit.aclose()


@dataclass
class Replicas:
    """Replicas of one service; at the end their logs are written into `folder`.

    `sessions` is the place of the process that runs their agents, if they do not run them themselves.
    """

    each: tuple[Replica, ...]
    folder: Path
    sessions: Replica | None = None

    @classmethod
    def of(cls, count: int, env: Mapping[str, str], config: Path, *, remote: bool = False) -> Self:
        """Replicas that are not started yet; `remote`: with a process for their agents."""
        sessions = None
        if remote:
            address = free_address()
            command = ("sessions", "serve", "--listen", address)
            sessions = Replica("sessions", env, config, command, "sessions.ready")
            env = {**env, "AMPLIFIER_SLACK_SESSIONS": f"grpc://{address}"}
        each = tuple(Replica(f"replica-{name}", env, config) for name in "abcd"[:count])
        return cls(each, config.parent, sessions)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await asyncio.gather(*(replica.close() for replica in self.all))
        self.write_logs()

    @property
    def all(self) -> tuple[Replica, ...]:
        return self.each if self.sessions is None else (*self.each, self.sessions)

    def write_logs(self) -> None:
        for replica in self.all:
            (self.folder / f"{replica.name}.log").write_text(replica.log)

    def lines_about(self, *words: str) -> list[str]:
        """Return the log lines that contain all these words."""
        lines = [(replica.name, line) for replica in self.each for line in replica.log.splitlines()]
        return [f"{name}: {line}" for name, line in lines if any(word in line for word in words)]
