"""A conversation in the service: a session of its manager, which evicts idle sessions."""

from __future__ import annotations

import asyncio
from functools import cache
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.loops import PROMPT
from orchestrator_interactive.interactions.stores import open_store
from service.config.config import InstanceConfig, ModuleConfig, PersonaConfig, WorkspaceConfig
from service.sessions.manager import InProcessSessionManager
from service.sessions.workspaces import Workspaces

MODULES = str(Path(__file__).with_name("served_modules.py"))
TURNS = 20

_managers: dict[asyncio.AbstractEventLoop, InProcessSessionManager] = {}
_names = count()


class ServedConversation:
    def __init__(self, manager: InProcessSessionManager) -> None:
        self._manager = manager
        self._name = f"conversation {next(_names)}"

    async def run(self, turns: int) -> None:
        if turns != TURNS:
            raise ValueError(f"A run has {TURNS} turns here.")
        await self._manager.execute("alpha", self._name, PROMPT, message_id=f"{self._name}: message", fence=1)

    @property
    def remains(self) -> object:
        return self._manager


async def served(messages: int) -> ServedConversation:
    """Make an empty conversation over SQLite."""
    if messages:
        raise ValueError("A conversation begins empty here.")
    loop = asyncio.get_running_loop()
    if loop not in _managers:
        _managers[loop] = await _manager(len(_managers))
    return ServedConversation(_managers[loop])


async def _manager(number: int) -> InProcessSessionManager:
    folder = Path(_folder().name)
    instance = InstanceConfig(
        persona=PersonaConfig(name="Alpha", emoji=":owl:"),
        providers=(ModuleConfig(module="model", source=MODULES, config={"turns": TURNS}),),
        tools=(ModuleConfig(module="look", source=MODULES),),
        orchestrator=ModuleConfig(module="loop-interactive", config={"max_iterations": 1000}),
    )
    store = await open_store(f"sqlite:{folder}/log-{number}.db")
    workspaces = Workspaces(WorkspaceConfig(root=folder / "files"))
    return await InProcessSessionManager({"alpha": instance}, "", workspaces, store).__aenter__()


@cache
def _folder() -> TemporaryDirectory[str]:
    """Return the folder of this process; it is removed at exit."""
    return TemporaryDirectory(prefix="benchmark-")
