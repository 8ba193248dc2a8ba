"""The thread of a run that is steered, that meets an error, or that reaches a limit."""

from __future__ import annotations

from anthropic_server import Gate, text, tool_call

CONTINUE = "Write “continue” and I will carry on."


async def test_an_urgent_message_interrupts_the_answer_and_is_answered(opened, model):
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
    assert first.left, "the request is cancelled"
    assert [row["role"] for row in second.body["messages"]] == ["user", "assistant", "user"]
    assert second.body["messages"][-1]["content"][-1]["text"].endswith("- Ana (U0ANA): !the budget only")


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


async def test_a_plain_message_waits_for_the_tool_call(opened, model):
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


async def test_a_busy_provider_is_shown_in_the_status_and_the_run_continues_by_itself(opened, model):
    model.fail(529, "overloaded_error", headers={"retry-after": "3"})
    model.reply(text("Here I am."))
    async with opened() as place:
        ts = await place.ask()
        await place.posted(ts, "The model's service is not available; trying again in")
        assert await place.said(ts) == ["Here I am."]


async def test_an_unavailable_provider_is_reported_after_the_last_retry(opened, model):
    for _ in range(3):
        model.fail(503)
    async with opened(max_retries=2, retry_base_delay_s=0) as place:
        notice = "⚠️ The model provider is not available at the moment. Send a message to try again."
        assert await place.said(await place.ask()) == [notice]
    assert len(model.requests) == 3


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


async def test_a_refusal_of_the_model_is_reported_after_its_text(opened, model):
    model.reply(text("I would rather"), stop_reason="refusal")
    async with opened() as place:
        notice = "⏸️ The model declined this request. Rephrase it, or start a new thread."
        first, second = await place.said(await place.ask())
    assert (first, second.startswith(notice)) == ("I would rather", True)


async def test_an_answer_in_several_calls_is_one_text_and_its_end_is_reported(opened, model):
    for part in ("one ", "two ", "three ", "four"):
        model.reply(text(part), stop_reason="max_tokens")
    async with opened() as place:
        notice = f"⏸️ My answer was cut off because it became too long. {CONTINUE}"
        assert await place.said(await place.ask()) == ["one two three four", notice]
