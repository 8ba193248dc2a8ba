"""The ends of runs in the logs of the service."""

from __future__ import annotations

import asyncio
from uuid import uuid4

import foreign_loops
import pytest
from anthropic_server import Gate, text
from session_tests import HERE

from connector.protocols import RunFailed
from orchestrator_interactive.interactions import InteractionStack
from orchestrator_interactive.interactions.states import RunFinishedState
from orchestrator_interactive.interactions.stores.memory import MemoryStore
from service.config.config import ModuleConfig


@pytest.mark.parametrize("is_foreign", [False, True], ids=["loop-interactive", "a loop without execution events"])
async def test_the_log_has_the_end_of_each_run_however_it_ends(model, manager, tmp_path, is_foreign):
    store, fields = MemoryStore(), {}
    if is_foreign:
        path = tmp_path / f"loop_{uuid4().hex}.py"  # a process imports a module of one name once
        path.write_text(foreign_loops.EXACT)
        fields["orchestrator"] = ModuleConfig(module="loop-foreign", source=str(path))
    gate = Gate()
    async with manager(store=store, **fields) as sessions:
        assert await sessions.execute("alpha", HERE, "one") == "fine"
        model.reply(gate, text("late"))
        running = asyncio.create_task(sessions.execute("alpha", HERE, "two"))
        await gate.reached.wait()
        assert sessions.stop("alpha", HERE, immediate=True)
        assert (await asyncio.gather(running, return_exceptions=True))[0] != "late"
        gate.open()
        model.fail(400, "invalid_request_error")
        with pytest.raises(RunFailed):
            await sessions.execute("alpha", HERE, "three")
        gate = Gate()
        model.reply(gate, text("late"))
        running = asyncio.create_task(sessions.execute("alpha", HERE, "four"))
        await gate.reached.wait()
        running.cancel()  # as at a shutdown
        await asyncio.wait({running})
        gate.open()
        assert await sessions.execute("alpha", HERE, "five") == "fine"
    stack = InteractionStack(store, HERE, "alpha")
    states = [entry.state async for entry in stack.iter_last_n(await stack.length())]
    ends = [each.status for each in states if isinstance(each, RunFinishedState)]
    assert ends == ["completed", "cancelled", "error", "unknown", "completed"]
