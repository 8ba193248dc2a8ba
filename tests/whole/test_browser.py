"""From the keyboard of a person to the model and back, with every real part between them."""

from __future__ import annotations

import pytest
from anthropic_server import Gate, text, tool_call
from playwright.async_api import expect

pytestmark = pytest.mark.browser

ASK = "look through the notes and suggest improvements"


async def test_a_thread_is_answered_and_steered_on_the_way(seat, model):
    thinking, writing = Gate(), Gate()
    model.reply(thinking, tool_call("read_file", {"path": "notes.md"}), stop_reason="tool_use")
    model.reply(writing, text("Here is **what I found**, tests included."))

    await seat.write(seat.channel, f"@alpha {ASK}")
    await seat.see_reaction(seat.channel, ASK, "hourglass_flowing_sand")
    await seat.see(seat.thread, "⚙️ Thinking…")
    await seat.write(seat.thread, "and check the tests")
    await seat.see_reaction(seat.thread, "and check the tests", "incoming_envelope")
    await seat.picture("1-steered")
    thinking.open()

    await writing.reached.wait()
    await seat.see_reaction(seat.thread, "and check the tests", "eyes")
    await seat.see(seat.thread, "⚙️ Incorporating your input…")
    await seat.picture("2-incorporating")
    writing.open()

    answer = await seat.see(seat.thread, "Here is what I found, tests included.")
    await expect(answer).to_have_attribute("data-author", "Alpha")
    await expect(seat.message(seat.thread, "⚙️")).to_have_count(0)
    await seat.see_reaction(seat.channel, ASK, "hourglass_flowing_sand", gone=True)
    await seat.picture("3-answered")

    assert model.bodies[0]["messages"][-1]["content"][-1]["text"] == f"Ana (U0ANA): {ASK}"
    last = model.bodies[1]["messages"][-1]["content"]
    assert last[0]["type"] == "tool_result", "the file was really read"
    assert "Ana (U0ANA): and check the tests" in last[-1]["text"]


async def test_a_cross_on_the_status_stops_the_run_and_the_thread_goes_on_from_there(seat, model):
    never = Gate()
    model.reply(text("I will begin with ", never, "everything"))
    await seat.write(seat.channel, f"@alpha {ASK}")
    status = await seat.see(seat.thread, "⚙️")
    await never.reached.wait()
    await seat.react(status, "x")

    await seat.see(seat.thread, "🛑 Stopped by Ana.")
    await expect(seat.message(seat.thread, "⚙️")).to_have_count(0)
    await seat.see_reaction(seat.channel, ASK, "hourglass_flowing_sand", gone=True)
    await seat.picture("4-stopped")

    model.reply(text("Only the roadmap, then."))
    await seat.write(seat.thread, "only the roadmap please")
    await seat.see(seat.thread, "Only the roadmap, then.")
    rows = [(m["role"], m["content"][-1]["text"]) for m in model.bodies[-1]["messages"]]
    assert rows == [
        ("user", f"Ana (U0ANA): {ASK}"),
        ("assistant", "I will begin with "),
        ("user", "Ana (U0ANA): only the roadmap please"),
    ]


async def test_an_exclamation_mark_cuts_the_answer_and_a_stop_says_what_is_done_and_what_is_not(
    gated_seat, model, tests_at_work
):
    seat, half = gated_seat, Gate()
    model.reply(text("First, the roadmap. It ", half, "too late"))
    model.reply(text("The budget."), tool_call("list_files", {}), tool_call("run_tests", {}), stop_reason="tool_use")
    await seat.write(seat.channel, f"@alpha {ASK}")
    await half.reached.wait()
    await seat.see(seat.thread, "⚙️")
    await seat.write(seat.thread, "!only the budget, and run its tests")
    await seat.see(seat.thread, "First, the roadmap. It")
    await seat.see_reaction(seat.thread, "!only the budget", "eyes")
    await tests_at_work.reached.wait()
    status = await seat.see(seat.thread, "Running the tests — 12 of 40 passed…")
    await seat.picture("8-urgent")

    await seat.write(seat.thread, "and the dates")
    await seat.see_reaction(seat.thread, "and the dates", "incoming_envelope")
    await seat.react(status, "x")
    receipt = await seat.see(
        seat.thread, "🛑 Stopped by Ana. 1 tool call finished. Outcome unknown: Running the tests."
    )
    await expect(receipt).to_contain_text("1 message has not been read yet. I will read it with your next message.")
    await expect(seat.message(seat.thread, "⚙️")).to_have_count(0)
    await tests_at_work.left.wait()
    await seat.picture("9-stop-receipt")


async def test_a_direct_message_is_answered_without_a_mention(seat, model):
    model.reply(text("Hello Ana."))
    await seat.by("dm-alpha").click()
    await expect(seat.by("composer", seat.channel)).to_have_attribute("placeholder", "Message Alpha")
    await seat.write(seat.channel, "hello")
    answer = await seat.see(seat.channel, "Hello Ana.")
    await expect(answer).to_have_attribute("data-author", "Alpha")


async def test_a_model_that_fails_is_told_in_plain_words_and_the_next_message_works(seat, model):
    model.fail(401, "authentication_error", "invalid x-api-key")
    await seat.write(seat.channel, f"@alpha {ASK}")
    await seat.see(seat.thread, "The model provider does not accept our API key.")
    await seat.see_reaction(seat.channel, ASK, "hourglass_flowing_sand", gone=True)
    model.reply(text("Here I am."))
    await seat.write(seat.thread, "and now?")
    await seat.see(seat.thread, "Here I am.")


async def test_two_people_steer_one_run_and_the_model_knows_them_apart(seat, model, browser, play_url):
    held = Gate()
    model.reply(held, tool_call("list_files", {}), stop_reason="tool_use")
    model.reply(text("Done for both."))
    await seat.write(seat.channel, f"@alpha {ASK}")
    await held.reached.wait()
    await seat.write(seat.thread, "mind the budget")
    await seat.see_reaction(seat.thread, "mind the budget", "incoming_envelope")
    await seat.by("person-switch").click()
    await seat.by("person-option-ben").click()
    await seat.by("thread-summary", seat.message(seat.channel, ASK)).click()
    await seat.write(seat.thread, "and the dates")
    await seat.see_reaction(seat.thread, "and the dates", "incoming_envelope")
    held.open()
    await seat.see(seat.thread, "Done for both.")
    row = model.bodies[-1]["messages"][-1]["content"][-1]["text"]
    assert row.endswith("- Ana (U0ANA): mind the budget\n- Ben (U0BEN): and the dates")
