"""Sessions of amplifier-core with our modules, and our sessions with its modules.

`foreign_modules` has modules that are written for amplifier-core.
"""

import asyncio
import atexit
import contextlib
import os
import sys
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import amplifier_core
import pytest
from agents import Recorder, ScriptedProvider, soon
from amplifier_core.events import ALL_EVENTS

from orchestrator_interactive.kernel import AmplifierSession, ModuleCoordinator, ModuleLoader
from orchestrator_interactive.kernel.interop import to_local_coordinator

# The first client of Anthropic's SDK in a process starts slowly.
START_S = 30


class ProcessExit:
    """End the process with pytest's status before the interpreter finalises.

    Threads of amplifier-core outlive the interpreter and sometimes crash it with SIGSEGV. `atexit` calls the first
    registered function last, so pytest has reported and cleaned up by then. `sys.last_value` has an error of the
    clean-up.
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


process_exit = ProcessExit()


def pytest_sessionfinish(session: pytest.Session) -> None:
    process_exit.session = session


def pytest_unconfigure() -> None:
    process_exit.raised_before = getattr(sys, "last_value", None)


@dataclass
class CoreSession:
    """A session of amplifier-core, with the provider and the events that a test looks at."""

    session: amplifier_core.AmplifierSession
    provider: ScriptedProvider
    events: Recorder = field(default_factory=Recorder)

    @property
    def coordinator(self) -> amplifier_core.ModuleCoordinator:
        return self.session.coordinator

    @property
    def local(self) -> ModuleCoordinator:
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
        """Return this hook result for every event of the name."""

        async def handler(_event: str, _data: dict[str, Any]) -> amplifier_core.HookResult:
            return result

        self.coordinator.hooks.register(event, handler)

    def change(self, event: str, **changes: Any) -> None:
        """Modify these fields of every event of the name."""

        async def handler(_event: str, data: dict[str, Any]) -> amplifier_core.HookResult:
            return amplifier_core.HookResult(action="modify", data={**data, **changes})

        self.coordinator.hooks.register(event, handler)


@pytest.fixture
async def core_session() -> AsyncIterator[Callable[..., Any]]:
    """Make sessions of amplifier-core with `loop-interactive` and `context-simple`.

    The plan lists modules by name; a scripted provider and tools are also mounted. `people` is the approval and
    display system. Every event is recorded.
    """
    sessions: list[amplifier_core.AmplifierSession] = []

    async def make(
        *steps: Any, tools: Any = (), plan: Any = None, loop: Any = None, people: Any = None, **session: Any
    ) -> CoreSession:
        orchestrator = {"module": "loop-interactive", "config": loop or {}}
        config = {"session": {"orchestrator": orchestrator, "context": "context-simple", **session}, **(plan or {})}
        core = amplifier_core.AmplifierSession(config, approval_system=people, display_system=people)
        sessions.append(core)
        await asyncio.wait_for(core.initialize(), START_S)
        made = CoreSession(core, ScriptedProvider(*steps))
        made.events.listen(core.coordinator.hooks, *ALL_EVENTS, "injection:applied")
        if not (plan or {}).get("providers"):
            await made.local.mount("providers", made.provider)
        for tool in tools:
            await made.local.mount("tools", tool)
        return made

    yield make
    for session in sessions:
        await soon(session.cleanup())


@pytest.fixture
def foreign_modules() -> Path:
    """Return the folder of the modules that are written for amplifier-core."""
    return Path(__file__).parent / "foreign_modules"


@pytest.fixture
async def local_session(foreign_modules: Path) -> AsyncIterator[Callable[..., Any]]:
    """Make sessions of ours that find the foreign modules and the installed ones."""
    sessions: list[AmplifierSession] = []

    async def make(approvals: Any = None, **plan: Any) -> AmplifierSession:
        session = {"orchestrator": "loop-interactive", "context": "context-simple", **plan.pop("session", {})}
        loader = ModuleLoader(search_paths=[foreign_modules])
        ours = AmplifierSession({"session": session, **plan}, loader=loader, approval_system=approvals)
        sessions.append(ours)
        await asyncio.wait_for(ours.initialize(), START_S)
        return ours

    yield make
    for ours in sessions:
        await soon(ours.cleanup())
