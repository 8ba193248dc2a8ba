"""Sessions leave memory when nothing runs in them, and come back from the log."""

from __future__ import annotations

import asyncio
import gc
import logging
from contextlib import aclosing, asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
import structlog
from echo_module import ECHO_MODULE

from orchestrator_interactive.interactions.stores import open_store
from service.config.config import InstanceConfig, ModuleConfig, PersonaConfig, WorkspaceConfig
from service.sessions.manager import InProcessSessionManager
from service.sessions.workspaces import Workspaces

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


def _objects() -> int:
    """How many things there are that the collector knows of."""
    gc.collect()
    return len(gc.get_objects())


@pytest.fixture
def quiet():
    """Without a line for each thing that is mounted."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    yield
    structlog.reset_defaults()


@pytest.fixture
def manager(tmp_path):
    @asynccontextmanager
    async def manager(idle_evict_s: float, **changes: Any) -> AsyncIterator[InProcessSessionManager]:
        quick = ModuleConfig(module="quick", source=str(ECHO_MODULE), config={"file": str(tmp_path / "noted")})
        instance = InstanceConfig(
            persona=PersonaConfig(name="Alpha", emoji=":owl:"), providers=(quick,), tools=(), hooks=(), **changes
        )
        workspaces = Workspaces(WorkspaceConfig(root=tmp_path / "files"))
        async with (
            aclosing(await open_store(f"sqlite:{tmp_path}/kept.db")) as store,
            InProcessSessionManager({"alpha": instance}, "quick", workspaces, store, idle_evict_s) as sessions,
        ):
            (tmp_path / "noted").write_text("")  # the check at the start begins a session, too
            yield sessions

    return manager


async def test_a_session_that_rests_ends_after_a_while_and_comes_back_from_the_log(manager, tmp_path):
    async with manager(0.01) as sessions:
        await sessions.execute("alpha", "T:C:1.0", "one")
        async with asyncio.timeout(10):
            while "session:end" not in (tmp_path / "noted").read_text():  # noqa: ASYNC110 - the hook only writes
                await asyncio.sleep(0.005)
        assert await sessions.execute("alpha", "T:C:1.0", "two") == "one | two"
    assert (tmp_path / "noted").read_text().split() == ["session:start", "session:end", "session:resume", "session:end"]


async def test_a_session_that_is_used_again_in_time_stays(manager, tmp_path):
    async with manager(900) as sessions:
        for prompt in ("one", "two"):
            await sessions.execute("alpha", "T:C:1.0", prompt)
        assert (tmp_path / "noted").read_text().split() == ["session:start"]


async def test_a_session_without_a_log_stays(manager, tmp_path):
    async with manager(0.001, context=ModuleConfig(module="context-simple")) as sessions:
        await sessions.execute("alpha", "T:C:1.0", "one")
        await asyncio.sleep(0.1)  # long enough to leave
        assert await sessions.execute("alpha", "T:C:1.0", "two") == "one | two"
        assert (tmp_path / "noted").read_text().split() == ["session:start"]
    assert (tmp_path / "noted").read_text().split() == ["session:start", "session:end"]


async def test_sessions_leave_in_the_order_in_which_they_were_used_last(manager, tmp_path):
    async with manager(0.2) as sessions:
        for place in ("1", "2", "1"):
            await sessions.execute("alpha", f"T:C:{place}", "hello")
        await asyncio.sleep(0.1)
        await sessions.execute("alpha", "T:C:1", "again")
        async with asyncio.timeout(10):
            while (tmp_path / "noted").read_text().count("session:end") < 1:  # noqa: ASYNC110 - the hook only writes
                await asyncio.sleep(0.005)
        assert await sessions.execute("alpha", "T:C:1", "and again") == "hello | hello | again | and again"
        assert "session:resume" not in (tmp_path / "noted").read_text()


@pytest.mark.timeout(300)
async def test_hundreds_of_conversations_take_up_no_more_memory_than_a_few(manager, quiet):
    async def grown(count: int, idle_evict_s: float) -> float:
        """How many objects there are more for each of so many conversations."""
        async with manager(idle_evict_s) as sessions:
            for number in range(20):  # what is made once
                await sessions.execute("alpha", f"T:C:0.{number}", "hello")
            before = _objects()
            for number in range(count):
                await sessions.execute("alpha", f"T:C:{count}.{number}", "hello")
            return (_objects() - before) / count

    kept, left = await grown(200, 900), await grown(800, 1e-6)
    assert kept > 100
    assert left < 1, f"{kept:.0f} for each session that is kept, {left:.2f} for each that has left"
