"""A thread whose agent has an orchestrator of another author."""

from __future__ import annotations

from uuid import uuid4

import foreign_loops
import pytest
from anthropic_server import Gate, text, tool_call

from service.config.config import ModuleConfig


@pytest.fixture
def opened_with(tmp_path, opened):
    def open_(source, name):
        path = tmp_path / f"{name}_{uuid4().hex}.py"  # a process imports a module of one name once
        path.write_text(source)
        return opened(orchestrator=ModuleConfig(module="loop-foreign", source=str(path)))

    return open_


async def test_messages_during_a_run_without_steering_are_answered_together_in_the_next(opened_with, model):
    gate = Gate()
    model.reply(tool_call("run_tests", {}), stop_reason="tool_use")
    model.reply(gate, text("All passed."))
    model.reply(text("All three."))
    async with opened_with(foreign_loops.EXACT, "exact") as place:
        ts = await place.ask()
        await place.posted(ts, "Running the tests")
        await place.tests.reached.wait()
        said = [await place.ana.say("general", f"also {number}", thread=ts) for number in (1, 2, 3)]
        for each in said:
            await place.reacted(each, "incoming_envelope")
        place.tests.open()
        gate.open()
        await place.posted(ts, "All three.")
        for each in said:
            await place.reacted(each, "eyes")
        assert await place.said(ts) == ["All passed.", "All three."]
    assert len(model.requests) == 3
    assert [f"also {number}" in str(model.bodies[-1]["messages"][-1]) for number in (1, 2, 3)] == [True] * 3


async def test_a_message_during_a_run_is_read_by_a_loop_that_can_be_steered(opened_with, model):
    model.reply(tool_call("run_tests", {}), stop_reason="tool_use")
    model.reply(text("All passed, today."))
    async with opened_with(foreign_loops.STEERED, "steered") as place:
        ts = await place.ask()
        await place.tests.reached.wait()
        said = await place.ana.say("general", "and the date", thread=ts)
        await place.reacted(said, "incoming_envelope")
        place.tests.open()
        await place.reacted(said, "eyes")
        assert await place.said(ts) == ["All passed, today."]
    assert "and the date" in str(model.bodies[-1]["messages"][-1])


async def test_a_cross_stops_a_loop_that_looks_at_no_token(opened_with, model):
    model.reply(tool_call("run_tests", {}), stop_reason="tool_use")
    async with opened_with(foreign_loops.EXACT, "exact") as place:
        ts = await place.ask()
        await place.tests.reached.wait()
        for _ in range(2):
            await place.ana.say("general", "stop", thread=ts)
        assert (await place.said(ts))[-1].startswith("🛑 Stopped by Ana.")
        await place.tests.left.wait()
