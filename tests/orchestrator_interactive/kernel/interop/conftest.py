"""Sessions of amplifier-core with our modules in them, sessions of ours with its modules, and a way out of the process.

What is written against amplifier-core, as others write it, lies in `foreign_modules`.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import os
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import amplifier_core
import pytest
from agents import Recorder, ScriptedProvider, soon
from amplifier_core.events import ALL_EVENTS

from orchestrator_interactive.kernel import AmplifierSession, ModuleLoader
from orchestrator_interactive.kernel.interop import to_local_coordinator

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from orchestrator_interactive.kernel import ModuleCoordinator

# The first client of Anthropic's SDK in a process takes its time.
START_S = 30


class Departure:
    """Ends the process once everything else has: with pytest's status, and without the interpreter's own ending.

    amplifier-core's threads outlive Python's, and now and then they take a process down with a SIGSEGV. What is
    registered first is called last, so by then pytest has told everything and tidied up. An error in its tidying
    counts: Python keeps the last one that nobody caught.
    """

    def __init__(self) -> None:
        self.session: pytest.Session | None = None
        self.raised_before: object = None
        atexit.register(self.leave)

    def leave(self) -> None:
        if self.session is None:
            return
        status = int(self.session.exitstatus)
        if getattr(sys, "last_value", None) is not self.raised_before:
            status = status or 1
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):
                stream.flush()
        os._exit(status)


departure = Departure()


def pytest_sessionfinish(session: pytest.Session) -> None:
    departure.session = session


def pytest_unconfigure() -> None:
    departure.raised_before = getattr(sys, "last_value", None)


@dataclass
class Abroad:
    """A session of amplifier-core, and what our modules need there within a test's reach."""

    session: amplifier_core.AmplifierSession
    provider: ScriptedProvider
    events: Recorder = field(default_factory=Recorder)

    @property
    def coordinator(self) -> amplifier_core.ModuleCoordinator:
        return self.session.coordinator

    @property
    def home(self) -> ModuleCoordinator:
        return to_local_coordinator(self.coordinator)

    async def run(self, prompt: str = "go") -> str:
        return await soon(self.session.execute(prompt))

    def start(self, prompt: str = "go") -> asyncio.Task[str]:
        return asyncio.create_task(self.run(prompt))

    async def rows(self) -> list[dict[str, Any]]:
        return await self.coordinator.get("context").get_messages()

    def capability(self, name: str) -> Any:
        return self.coordinator.get_capability(name)

    def answer(self, event: str, result: amplifier_core.HookResult) -> None:
        """Answer every event of this name with a hook result of amplifier-core."""

        async def handler(_event: str, _data: dict[str, Any]) -> amplifier_core.HookResult:
            return result

        self.coordinator.hooks.register(event, handler)

    def change(self, event: str, **changes: Any) -> None:
        """Modify a part of every event of this name."""

        async def handler(_event: str, data: dict[str, Any]) -> amplifier_core.HookResult:
            return amplifier_core.HookResult(action="modify", data={**data, **changes})

        self.coordinator.hooks.register(event, handler)


@pytest.fixture
async def abroad() -> AsyncIterator[Callable[..., Any]]:
    """Makes sessions of amplifier-core with `loop-interactive` and `context-simple` in them.

    What is listed in the plan is loaded by its name; a scripted provider and tools may be mounted besides. `people` is
    who is asked and shown things. Every event is recorded.
    """
    sessions: list[amplifier_core.AmplifierSession] = []

    async def make(
        *steps: Any, tools: Any = (), plan: Any = None, loop: Any = None, people: Any = None, **session: Any
    ) -> Abroad:
        orchestrator = {"module": "loop-interactive", "config": loop or {}}
        config = {"session": {"orchestrator": orchestrator, "context": "context-simple", **session}, **(plan or {})}
        core = amplifier_core.AmplifierSession(config, approval_system=people, display_system=people)
        sessions.append(core)
        await asyncio.wait_for(core.initialize(), START_S)
        made = Abroad(core, ScriptedProvider(*steps))
        made.events.listen(core.coordinator.hooks, *ALL_EVENTS, "injection:applied")
        if not (plan or {}).get("providers"):
            await made.home.mount("providers", made.provider)
        for tool in tools:
            await made.home.mount("tools", tool)
        return made

    yield make
    for session in sessions:
        await soon(session.cleanup())


@pytest.fixture
def guests() -> Path:
    """The folder of the modules that were written against amplifier-core."""
    return Path(__file__).parent / "foreign_modules"


@pytest.fixture
async def host(guests: Path) -> AsyncIterator[Callable[..., Any]]:
    """Makes sessions of ours that find the guests beside the installed modules."""
    sessions: list[AmplifierSession] = []

    async def make(approvals: Any = None, **plan: Any) -> AmplifierSession:
        session = {"orchestrator": "loop-interactive", "context": "context-simple", **plan.pop("session", {})}
        loader = ModuleLoader(search_paths=[guests])
        ours = AmplifierSession({"session": session, **plan}, loader=loader, approval_system=approvals)
        sessions.append(ours)
        await asyncio.wait_for(ours.initialize(), START_S)
        return ours

    yield make
    for ours in sessions:
        await soon(ours.cleanup())
