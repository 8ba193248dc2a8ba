"""The thread of a run that is steered, that meets an error, or that reaches a limit."""

from __future__ import annotations

from anthropic_server import text, tool_call
from imitations import user_texts

CONTINUE = "Write “continue” and I will carry on."


async def test_an_urgent_message_is_answered_during_a_tool_call_which_continues(opened, model):
    model.reply(tool_call("run_tests", {}), stop_reason="tool_use")
    model.reply(text("12 of 40 so far."))
    model.reply(text("All passed."))
    async with opened() as place:
        ts = await place.ask()
        await place.tests.reached.wait()
        await place.ana.say("general", "!how far are you", thread=ts)
        await place.posted(ts, "Incorporating your input… Running the tests — 12 of 40 passed…")
        await place.posted(ts, "12 of 40 so far.")
        assert not place.tests.left.is_set()
        place.tests.open()
        assert await place.said(ts) == ["12 of 40 so far.", "All passed."]
    assert "all passed" in str(model.bodies[-1]["messages"][-1])


async def test_after_a_stop_the_held_message_and_the_new_one_are_read_as_plain_messages(opened, model):
    model.reply(tool_call("run_tests", {}), stop_reason="tool_use")
    model.reply(text("Both, then."))
    async with opened() as place:
        ts = await place.ask()
        await place.tests.reached.wait()
        held = await place.ana.say("general", "look at b.md too", thread=ts)
        await place.reacted(held, "incoming_envelope")
        await place.ana.react("general", ts, "x")
        await place.posted(ts, "Stopped by")
        await place.ana.say("general", "and at c.md", thread=ts)
        await place.posted(ts, "Both, then.")
    words = [block for block in user_texts(model.bodies[-1]) if ".md" in block]
    assert [each.split(": ", 1)[1] for each in words] == ["look at b.md too", "and at c.md"]


async def test_a_run_that_reaches_its_step_limit_says_so_and_continues_when_it_is_asked_to(opened, model):
    model.reply(text("I look."), tool_call("list_files", {}), stop_reason="tool_use")
    model.reply(text("So far: one file."))
    async with opened(max_iterations=1) as place:
        ts = await place.ask()
        notice = f"⏸️ I stopped here: this run has reached its step limit. {CONTINUE}"
        assert await place.said(ts) == ["So far: one file.", notice]
        model.reply(text("And that was all."))
        await place.ana.say("general", "continue", thread=ts)
        await place.posted(ts, "And that was all.")


async def test_a_run_that_reaches_its_time_limit_names_the_cancelled_call(opened, model):
    model.reply(tool_call("run_tests", {}), stop_reason="tool_use")
    model.reply(text("I could not wait for the tests."))
    async with opened(max_duration_s=0.2, stop_grace_s=0) as place:
        said = await place.said(await place.ask())
        await place.tests.left.wait()
    notice = f"⏸️ I stopped here: this run has reached its time limit. {CONTINUE} Outcome unknown: Running the tests."
    assert said == ["I could not wait for the tests.", notice]
