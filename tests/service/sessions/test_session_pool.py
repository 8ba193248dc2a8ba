"""Idle sessions leave memory and are restored from the log."""

from __future__ import annotations

import asyncio
import gc
import logging

import pytest
import structlog
from echo_module import ECHO_MODULE

from service.config.config import ModuleConfig


@pytest.fixture
def noted(tmp_path):
    return tmp_path / "noted"


@pytest.fixture
def evicting(started, noted):
    """Start a manager that evicts idle sessions; the module `quick` notes when sessions start and end."""

    def start(idle_evict_s, **fields):
        noted.write_text("")
        quick = ModuleConfig(module="quick", source=str(ECHO_MODULE), config={"file": str(noted)})
        options = {"idle_evict_s": idle_evict_s}
        return started(provider="quick", options=options, providers=(quick,), tools=(), hooks=(), **fields)

    return start


def events(noted):
    return noted.read_text().split()


async def first_end(noted):
    async with asyncio.timeout(50):
        while "session:end" not in events(noted):  # noqa: ASYNC110 - the hook only writes
            await asyncio.sleep(0.005)


async def test_an_idle_session_is_evicted_and_restored_from_the_log(evicting, noted):
    async with evicting(0.01) as sessions:
        await sessions.execute("alpha", "T:C:1.0", "one")
        await first_end(noted)
        assert await sessions.execute("alpha", "T:C:1.0", "two") == "one | two"
    assert events(noted) == ["session:start", "session:end", "session:resume", "session:end"]


@pytest.mark.parametrize(("idle_evict_s", "context"), [(900, "context-stack"), (0.001, "context-simple")])
async def test_a_session_in_use_or_without_a_log_is_not_evicted(evicting, noted, idle_evict_s, context):
    async with evicting(idle_evict_s, context=ModuleConfig(module=context)) as sessions:
        await sessions.execute("alpha", "T:C:1.0", "one")
        await asyncio.sleep(0.1)  # longer than the shorter limit
        assert await sessions.execute("alpha", "T:C:1.0", "two") == "one | two"
        assert events(noted) == ["session:start"]
    assert events(noted) == ["session:start", "session:end"]


async def test_the_least_recently_used_session_is_evicted_first(evicting, noted):
    async with evicting(0.2) as sessions:
        for conversation in ("1", "2", "1"):
            await sessions.execute("alpha", f"T:C:{conversation}", "hello")
        await asyncio.sleep(0.1)
        await sessions.execute("alpha", "T:C:1", "again")
        await first_end(noted)
        assert await sessions.execute("alpha", "T:C:1", "and again") == "hello | hello | again | and again"
        assert "session:resume" not in events(noted)


@pytest.mark.timeout(300)
async def test_evicted_sessions_use_no_memory(evicting):
    def objects():
        gc.collect()
        return len(gc.get_objects())

    async def objects_per_conversation(count, idle_evict_s):
        async with evicting(idle_evict_s) as sessions:
            for number in range(20):  # warm-up
                await sessions.execute("alpha", f"T:C:0.{number}", "hello")
            before = objects()
            for number in range(count):
                await sessions.execute("alpha", f"T:C:{count}.{number}", "hello")
            return (objects() - before) / count

    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    try:
        idle, evicted = await objects_per_conversation(200, 900), await objects_per_conversation(800, 1e-6)
    finally:
        structlog.reset_defaults()
    assert idle > 100
    assert evicted < 1, f"{idle:.0f} for each idle session, {evicted:.2f} for each evicted one"
