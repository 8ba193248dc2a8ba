"""Sessions leave memory when nothing runs in them, and come back from the log."""

from __future__ import annotations

import asyncio
import gc
import logging
import tracemalloc
from contextlib import aclosing, asynccontextmanager
from typing import TYPE_CHECKING

import pytest
import structlog
from quick_module import QUICK_MODULE

from orchestrator_interactive.interactions.stores import open_store
from service.config import InstanceConfig, ModuleConfig, PersonaConfig, WorkspaceConfig
from service.sessions import InProcessSessionManager
from service.workspaces import Workspaces

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

@pytest.fixture
def quiet():
    """Without a line for each thing that is mounted."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    yield
    structlog.reset_defaults()


@pytest.fixture
def manager(tmp_path):
    @asynccontextmanager
    async def manager(idle_evict_s: float, *, noting: bool = True) -> AsyncIterator[InProcessSessionManager]:
        quick = ModuleConfig(
            module="quick", source=str(QUICK_MODULE), config={"file": str(tmp_path / "noted")} if noting else {}
        )
        instance = InstanceConfig(persona=PersonaConfig(name="Alpha", emoji=":owl:"), providers=(quick,))
        workspaces = Workspaces(WorkspaceConfig(root=tmp_path / "files"))
        async with (
            aclosing(await open_store(f"sqlite:{tmp_path}/kept.db")) as store,
            InProcessSessionManager({"alpha": instance}, "quick", workspaces, store, idle_evict_s) as sessions,
        ):
            (tmp_path / "noted").write_text("")  # the check at the start begins a session, too
            yield sessions

    return manager


async def test_a_session_that_rests_ends_after_a_while_and_comes_back_from_the_log(manager, tmp_path):
    ended = asyncio.Event()
    async with manager(0.01) as sessions:
        await sessions.execute("alpha", "T:C:1.0", "one")
        async with asyncio.timeout(10):
            while "session:end" not in (tmp_path / "noted").read_text():
                await asyncio.sleep(0.005)
        assert await sessions.execute("alpha", "T:C:1.0", "two") == "one | two"
        ended.set()
    assert (tmp_path / "noted").read_text().split() == ["session:start", "session:end", "session:resume", "session:end"]


async def test_a_session_that_is_used_again_in_time_stays(manager, tmp_path):
    async with manager(900) as sessions:
        for prompt in ("one", "two"):
            await sessions.execute("alpha", "T:C:1.0", prompt)
        assert (tmp_path / "noted").read_text().split() == ["session:start"]


@pytest.mark.timeout(300)
async def test_the_memory_does_not_grow_with_the_conversations_that_rest(manager, quiet):
    import time
    async def bytes_of(count: int, idle_evict_s: float) -> float:
        async with manager(idle_evict_s, noting=False) as sessions:
            await sessions.execute("alpha", "T:C:0.0", "hello")
            gc.collect()
            tracemalloc.start()
            t=time.perf_counter()
            for number in range(count):
                await sessions.execute("alpha", f"T:C:{idle_evict_s}.{number}", "hello")
            print("each", (time.perf_counter()-t)/count)
            gc.collect()
            used, _ = tracemalloc.get_traced_memory()
            tracemalloc.stop()
            return used / count
    print(await bytes_of(200, 900))
    print(await bytes_of(200, 1e-9))
    print(await bytes_of(1000, 1e-9))
