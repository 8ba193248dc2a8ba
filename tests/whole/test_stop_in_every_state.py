"""A stop ends a run in whatever state it is, through the real Slack protocol and down to the real tools."""

from __future__ import annotations

from anthropic_server import Gate, text, tool_call

NOTHING_RUNS = "Nothing is running here."
UNREAD = "1 message has not been read yet. I will read it with your next message."


async def stop(place, ts: str) -> None:
    await place.ana.say("general", "stop", thread=ts)


async def goes_on(place, ts: str) -> list[dict]:
    """The thread works as ever; gives the conversation as the model reads it then."""
    asked = len(place.model.requests)
    place.model.reply(text("Here I am."))
    await place.ana.say("general", "and now?", thread=ts)
    await place.posted(ts, "Here I am.")
    assert len(place.model.requests) == asked + 1, "the stop has left nothing at work"
    return place.model.bodies[-1]["messages"]


async def test_during_set_up(opened):
    async with opened() as place:
        place.set_up.close()
        ts = await place.ask()
        await place.set_up.reached.wait()
        early = await place.ana.say("general", "and this", thread=ts)
        await place.reacted(early, "incoming_envelope")
        await stop(place, ts)
        assert await place.said(ts) == [f"🛑 Stopped by Ana. {UNREAD}"]
        await place.set_up.left.wait()
        place.set_up.open()
        assert place.model.requests == []
        assert "and this" in str(await goes_on(place, ts))


async def test_while_the_model_has_said_nothing_yet(opened, model):
    silent = Gate()
    model.reply(silent, text("too late"))
    async with opened() as place:
        ts = await place.ask()
        await silent.reached.wait()
        await stop(place, ts)
        assert await place.said(ts) == ["🛑 Stopped by Ana."]
        await goes_on(place, ts)


async def test_while_the_answer_streams(opened, model):
    half = Gate()
    model.reply(text("I will begin with ", half, "too late"))
    async with opened() as place:
        ts = await place.ask()
        await half.reached.wait()
        await stop(place, ts)
        assert await place.said(ts) == ["I will begin with …", "🛑 Stopped by Ana."]
        rows = await goes_on(place, ts)
        assert [row["role"] for row in rows] == ["user", "assistant", "user"]


async def test_while_a_tool_runs_that_ends_within_the_grace_period(opened, model):
    model.reply(tool_call("list_files", {}), tool_call("run_tests", {}), stop_reason="tool_use")
    async with opened(stop_grace_s=30) as place:
        ts = await place.ask()
        await place.tests.reached.wait()
        status = await place.posted(ts, "⚙️ Running the tests — 12 of 40 passed…")
        await place.ana.react("general", status.ts, "x")
        await place.slack.until(lambda _: not place.slack.socket_mode.delivery.outstanding)
        place.tests.open()
        assert await place.said(ts) == ["🛑 Stopped by Ana. 2 tool calls finished."]
        await goes_on(place, ts)


async def test_while_a_tool_runs_that_does_not_end(opened, model):
    model.reply(tool_call("list_files", {}), tool_call("run_tests", {}), stop_reason="tool_use")
    async with opened(stop_grace_s=0.05) as place:
        ts = await place.ask()
        await place.tests.reached.wait()
        only_tests = "⚙️ Running the tests — 12 of 40 passed…"  # not "(2 tools active)": list_files has its result
        await place.slack.until(
            lambda ws: any(m.text == only_tests for m in ws.thread(place.slack.channel("general").id, ts))
        )
        await stop(place, ts)
        text = "🛑 Stopped by Ana. 1 tool call finished. Outcome unknown: Running the tests."
        assert await place.said(ts) == [text]
        await place.tests.left.wait()
        await goes_on(place, ts)


async def test_twice_while_a_tool_runs_that_could_go_on_for_long(opened, model):
    model.reply(tool_call("run_tests", {}), stop_reason="tool_use")
    async with opened(stop_grace_s=600) as place:
        ts = await place.ask()
        await place.tests.reached.wait()
        steer = await place.ana.say("general", "and this", thread=ts)
        await place.reacted(steer, "incoming_envelope")
        await stop(place, ts)
        await place.slack.until(lambda _: not place.slack.socket_mode.delivery.outstanding)
        await place.ana.react("general", ts, "x")
        text = f"🛑 Stopped by Ana. Outcome unknown: Running the tests. {UNREAD}"
        assert await place.said(ts) == [text]
        await place.tests.left.wait()
        assert "and this" in str(await goes_on(place, ts))


async def test_while_an_urgent_message_is_answered_beside_a_tool_at_work(opened, model):
    model.reply(tool_call("run_tests", {}), stop_reason="tool_use")
    half = Gate()
    model.reply(text("The tests ", half, "too late"))
    async with opened(stop_grace_s=0.05) as place:
        ts = await place.ask()
        await place.tests.reached.wait()
        await place.ana.say("general", "!how far are you", thread=ts)
        await half.reached.wait()
        await stop(place, ts)
        text_ = "🛑 Stopped by Ana. Outcome unknown: Running the tests."
        assert await place.said(ts) == ["The tests …", text_]
        await place.tests.left.wait()
        await goes_on(place, ts)


async def test_while_it_waits_to_ask_the_model_again(opened, model):
    model.fail(529, "overloaded_error", headers={"retry-after": "50"})
    async with opened() as place:
        ts = await place.ask()
        await place.posted(ts, "; trying again in 5")
        await stop(place, ts)
        assert await place.said(ts) == ["🛑 Stopped by Ana."]
        await goes_on(place, ts)


async def test_after_the_end(opened, model):
    model.reply(text("Done."))
    async with opened() as place:
        ts = await place.ask()
        await place.posted(ts, "Done.")
        await place.said(ts)
        await stop(place, ts)
        await place.posted(ts, NOTHING_RUNS)
        await goes_on(place, ts)
