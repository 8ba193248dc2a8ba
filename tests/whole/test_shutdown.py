"""A service that is asked to end hands over what is on, and ends in time."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from anthropic_server import Gate, text, tool_call
from scenario import EYES, scenario

if TYPE_CHECKING:
    from pathlib import Path

SUSPENDED = "⏸️ The service is restarting. I will continue in a moment."


async def test_a_tool_may_end_and_another_replica_goes_on_with_the_same_status(tmp_path: Path):
    silent = Gate()
    async with scenario(tmp_path, "redis", replicas=2) as there:
        one, other = there.replicas.each
        there.board.choose(await there.start(one))
        await there.start(other)
        there.model.reply(tool_call("run_tests", {}))
        there.model.reply(silent, text("All passed."))
        await there.say("@alpha check it")
        await there.tests.reached.wait()
        status = await there.sees("Running the tests")
        ending = asyncio.create_task(one.terminate())
        await one.serving.says("service.stopping")
        there.board.choose(None)
        there.tests.open()
        assert await ending == 0
        await silent.reached.wait()
        assert (await there.sees("⚙️")).ts == status.ts
        silent.open()
        assert await there.told() == ["All passed."]
        assert there.tests.calls == 1
        assert "all passed" in str(there.model.bodies[-1]["messages"][-1])
        assert '"run.taken_over"' in other.log


async def test_a_tool_that_does_not_end_is_cut_within_the_grace_and_told_of(tmp_path: Path):
    async with scenario(tmp_path, "sqlite") as there:
        (one,) = there.replicas.each
        await there.start(one)
        there.model.reply(tool_call("run_tests", {}))
        await there.say("@alpha check it")
        await there.tests.reached.wait()
        await there.sees("Running the tests")
        assert await one.terminate(within_s=8) == 0
        await there.tests.left.wait()
        there.model.reply(text("I do not know what came of them."))
        await there.start(one)
        await there.sees("I do not know what came of them.")
        said = await there.told()
        assert said[-1] == "I do not know what came of them."
        assert there.tests.calls == 1


async def test_a_model_call_is_given_up_and_made_anew(tmp_path: Path):
    half = Gate()
    async with scenario(tmp_path, "sqlite") as there:
        (one,) = there.replicas.each
        await there.start(one)
        there.model.reply(text("I begin ", half, "too late"))
        await there.say("@alpha check it")
        await half.reached.wait()
        status = await there.sees("⚙️")
        steer = await there.say("and this")
        await there.sees_mark(steer, "incoming_envelope")
        assert await one.terminate(within_s=8) == 0
        assert there.model.requests[0].left, "nobody waits for the answer any more"
        assert there.stage.said(there.root) == [SUSPENDED], "people see what is going on"
        silent = Gate()
        there.model.reply(silent, text("Both."))
        await there.start(one)
        await silent.reached.wait()
        assert (await there.sees("⚙️")).ts == status.ts
        silent.open()
        assert await there.told() == ["Both."]
        await there.sees_mark(steer, EYES)
        assert "Ana (U0ANA): and this" in str(there.model.bodies[-1]["messages"])
