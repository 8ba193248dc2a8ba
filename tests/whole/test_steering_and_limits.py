"""What a person in the thread sees of a run that is steered, that meets trouble, and that meets a limit."""

from __future__ import annotations

from anthropic_server import Gate, text, tool_call

GO_ON = "Write “continue” and I will carry on."


async def test_an_urgent_message_cuts_the_answer_and_is_answered(opened, model):
    half = Gate()
    model.reply(text("First, the roadmap ", half, "too late"))
    model.reply(text("The budget, then."))
    async with opened() as place:
        ts = await place.ask()
        await half.reached.wait()
        steer = await place.ana.say("general", "!the budget only", thread=ts)
        await place.reacted(steer, "eyes")
        assert await place.said(ts) == ["First, the roadmap …", "The budget, then."]
    first, second = model.requests
    assert first.left, "the answer was not waited for"
    assert [row["role"] for row in second.body["messages"]] == ["user", "assistant", "user"]
    assert second.body["messages"][-1]["content"][-1]["text"].endswith("- Ana (U0ANA): !the budget only")


async def test_an_urgent_message_is_answered_while_a_tool_is_at_work_and_the_tool_is_not_harmed(opened, model):
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


async def test_a_plain_message_waits_for_the_tool(opened, model):
    model.reply(tool_call("run_tests", {}), stop_reason="tool_use")
    model.reply(text("All passed, and quickly."))
    async with opened() as place:
        ts = await place.ask()
        await place.tests.reached.wait()
        steer = await place.ana.say("general", "how fast are they", thread=ts)
        await place.reacted(steer, "incoming_envelope")
        place.tests.open()
        assert await place.said(ts) == ["All passed, and quickly."]
    assert len(model.requests) == 2


async def test_a_busy_service_shows_in_the_status_and_the_run_goes_on_by_itself(opened, model):
    model.fail(529, "overloaded_error", headers={"retry-after": "3"})
    model.reply(text("Here I am."))
    async with opened() as place:
        ts = await place.ask()
        await place.posted(ts, "The model's service is not available; trying again in")
        assert await place.said(ts) == ["Here I am."]


async def test_a_service_that_stays_away_is_told_once_the_run_has_tried_enough(opened, model):
    for _ in range(3):
        model.fail(503)
    async with opened(max_retries=2, retry_base_delay_s=0) as place:
        ts = await place.ask()
        text_ = "⚠️ The model provider is not available at the moment. Send a message to try again."
        assert await place.said(ts) == [text_]
    assert len(model.requests) == 3


async def test_a_run_that_reaches_its_limit_of_steps_says_so_and_goes_on_when_asked_to(opened, model):
    model.reply(text("I look."), tool_call("list_files", {}), stop_reason="tool_use")
    model.reply(text("So far: one file."))
    async with opened(max_iterations=1) as place:
        ts = await place.ask()
        notice = f"⏸️ I stopped here: this run has reached its step limit. {GO_ON}"
        assert await place.said(ts) == ["So far: one file.", notice]
        model.reply(text("And that was all."))
        await place.ana.say("general", "go on", thread=ts)
        await place.posted(ts, "And that was all.")


async def test_a_run_that_has_used_up_its_tokens_says_so(opened, model):
    model.reply(tool_call("list_files", {}), stop_reason="tool_use", usage={"input_tokens": 5000})
    model.reply(text("So far: nothing."))
    async with opened(max_tokens=1000) as place:
        ts = await place.ask()
        notice = f"⏸️ I stopped here: this run has reached its token limit. {GO_ON}"
        assert await place.said(ts) == ["So far: nothing.", notice]


async def test_a_run_whose_time_is_up_says_so_and_names_the_tool_that_it_cut(opened, model):
    model.reply(tool_call("run_tests", {}), stop_reason="tool_use")
    model.reply(text("I could not wait for the tests."))
    async with opened(max_duration_s=0.2, stop_grace_s=0) as place:
        ts = await place.ask()
        said = await place.said(ts)
        await place.tests.left.wait()
    notice = f"⏸️ I stopped here: this run has reached its time limit. {GO_ON} Outcome unknown: Running the tests."
    assert said == ["I could not wait for the tests.", notice]


async def test_a_refusal_is_told(opened, model):
    model.reply(text("I would rather"), stop_reason="refusal")
    async with opened() as place:
        ts = await place.ask()
        said = await place.said(ts)
    assert said[0] == "I would rather"
    assert said[1].startswith("⏸️ The model declined this request. Rephrase it, or start a new thread.")


async def test_an_answer_that_is_too_long_for_one_call_is_one_text_and_told_where_it_ends(opened, model):
    for part in ("one ", "two ", "three ", "four"):
        model.reply(text(part), stop_reason="max_tokens")
    async with opened() as place:
        ts = await place.ask()
        assert await place.said(ts) == [
            "one two three four",
            f"⏸️ My answer was cut off because it became too long. {GO_ON}",
        ]
