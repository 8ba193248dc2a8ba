"""On SIGTERM the service hands its runs over, and ends in time."""

from __future__ import annotations

import asyncio

from anthropic_server import Gate, text, tool_call
from scenario import ENVELOPE, EYES, scenario

SUSPENDED = "⏸️ The service is restarting. I will continue in a moment."


async def test_a_tool_call_may_end_and_another_replica_continues_with_the_same_status_message(tmp_path):
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


async def test_a_model_call_is_cancelled_and_repeated_by_the_next_process(tmp_path):
    half, silent = Gate(), Gate()
    async with scenario(tmp_path, "sqlite") as there:
        (one,) = there.replicas.each
        await there.start(one)
        there.model.reply(text("I begin ", half, "too late"))
        await there.say("@alpha check it")
        await half.reached.wait()
        status = await there.sees("⚙️")
        steer = await there.say("and this")
        await there.sees_mark(steer, ENVELOPE)
        assert await one.terminate(within_s=8) == 0
        assert there.model.requests[0].left
        assert there.stage.said(there.root) == [SUSPENDED]
        there.model.reply(silent, text("Both."))
        await there.start(one)
        await silent.reached.wait()
        assert (await there.sees("⚙️")).ts == status.ts
        silent.open()
        assert await there.told() == ["Both."]
        await there.sees_mark(steer, EYES)
        assert "Ana (U0ANA): and this" in str(there.model.bodies[-1]["messages"])
