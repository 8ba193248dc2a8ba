"""A stop ends a run in each of its states, from the Slack protocol to the tools."""

from __future__ import annotations

from contextlib import asynccontextmanager

import pytest
from anthropic_server import Gate, text, tool_call

PENDING = "1 message has not been read yet. I will read it with your next message."
UNKNOWN = "Outcome unknown: Running the tests."
RUN_TESTS = tool_call("run_tests", {})


@pytest.fixture
def run(opened):
    """Start a run with options of the loop, and check at the end that the thread works as before."""

    @asynccontextmanager
    async def run(**options):
        async with opened(**options) as place:
            ts = await place.ask()
            yield place, ts
            requests = len(place.model.requests)
            place.model.reply(text("Here I am."))
            await place.ana.say("general", "and now?", thread=ts)
            await place.posted(ts, "Here I am.")
            assert len(place.model.requests) == requests + 1, "the stop leaves nothing running"

    return run


async def stop(place, ts: str) -> None:
    await place.ana.say("general", "stop", thread=ts)


async def test_during_set_up(opened, model):
    async with opened() as place:
        place.set_up.close()
        ts = await place.ask()
        await place.set_up.reached.wait()
        early = await place.ana.say("general", "and this", thread=ts)
        await place.reacted(early, "incoming_envelope")
        await stop(place, ts)
        assert await place.said(ts) == [f"🛑 Stopped by Ana. {PENDING}"]
        await place.set_up.left.wait()
        place.set_up.open()
        assert model.requests == []
        model.reply(text("Here I am."))
        await place.ana.say("general", "and now?", thread=ts)
        await place.posted(ts, "Here I am.")
        assert "and this" in str(model.bodies[-1]["messages"])


async def test_during_the_answer(run, model):
    half = Gate()
    model.reply(text("I will begin with ", half, "too late"))
    async with run() as (place, ts):
        await half.reached.wait()
        await stop(place, ts)
        assert await place.said(ts) == ["I will begin with …", "🛑 Stopped by Ana."]
    assert [row["role"] for row in model.bodies[-1]["messages"]] == ["user", "assistant", "user"]


async def test_during_a_call_that_ends_within_the_grace_period(run, model):
    model.reply(tool_call("list_files", {}), RUN_TESTS, stop_reason="tool_use")
    async with run(stop_grace_s=30) as (place, ts):
        await place.tests.reached.wait()
        status = await place.posted(ts, "⚙️ Running the tests — 12 of 40 passed…")
        await place.ana.react("general", status.ts, "x")
        await place.slack.until(lambda _: not place.slack.socket_mode.delivery.outstanding)
        place.tests.open()
        assert await place.said(ts) == ["🛑 Stopped by Ana. 2 tool calls finished."]


async def test_during_a_call_that_does_not_end(run, model):
    model.reply(tool_call("list_files", {}), RUN_TESTS, stop_reason="tool_use")
    async with run(stop_grace_s=0.05) as (place, ts):
        await place.tests.reached.wait()
        status = "⚙️ Running the tests — 12 of 40 passed…"  # list_files has its result
        await place.slack.until(lambda ws: any(m.text == status for m in ws.thread("general", ts)))
        await stop(place, ts)
        assert await place.said(ts) == [f"🛑 Stopped by Ana. 1 tool call finished. {UNKNOWN}"]
        await place.tests.left.wait()


async def test_while_it_waits_to_retry(run, model):
    model.fail(529, "overloaded_error", headers={"retry-after": "50"})
    async with run() as (place, ts):
        await place.posted(ts, "; trying again in 5")
        await stop(place, ts)
        assert await place.said(ts) == ["🛑 Stopped by Ana."]
