"""From the keyboard of a person to the model and back, with all real parts."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest
from anthropic_server import Gate, text, tool_call
from playwright.async_api import expect
from service_process import AMPLIFIER_SLACK

pytestmark = pytest.mark.browser

ASK = "look through the notes and suggest improvements"


async def test_two_people_steer_a_run_and_the_thread_shows_its_state_and_its_answer(page, model):
    thinking, writing = Gate(), Gate()
    model.reply(thinking, tool_call("read_file", {"path": "notes.md"}), stop_reason="tool_use")
    model.reply(writing, text("Here is **what I found**, tests included."))

    await page.write(page.channel, f"@alpha {ASK}")
    await page.see_reaction(page.channel, ASK, "hourglass_flowing_sand")
    await page.see(page.thread, "⚙️ Thinking…")
    await page.write(page.thread, "and check the tests")
    await page.see_reaction(page.thread, "and check the tests", "incoming_envelope")
    await page.by("person-switch").click()
    await page.by("person-option-ben").click()
    await page.by("thread-summary", page.message(page.channel, ASK)).click()
    await page.write(page.thread, "@alpha and the dates")
    await page.see_reaction(page.thread, "and the dates", "incoming_envelope")
    await page.screenshot("1-steered")
    thinking.open()

    await writing.reached.wait()
    await page.see_reaction(page.thread, "and check the tests", "eyes")
    await page.see(page.thread, "⚙️ Incorporating your input…")
    await page.screenshot("2-incorporating")
    writing.open()

    answer = await page.see(page.thread, "Here is what I found, tests included.")
    await expect(answer).to_have_attribute("data-author", "Alpha")
    await expect(page.message(page.thread, "⚙️")).to_have_count(0)
    await page.see_reaction(page.channel, ASK, "hourglass_flowing_sand", gone=True)
    await page.screenshot("3-answered")

    assert model.bodies[0]["messages"][-1]["content"][-1]["text"] == f"Ana (U0ANA): {ASK}"
    last = model.bodies[1]["messages"][-1]["content"]
    assert last[0]["type"] == "tool_result", "the file was really read"
    assert last[-1]["text"].endswith("- Ana (U0ANA): and check the tests\n- Ben (U0BEN): and the dates")


async def test_a_cross_on_the_status_stops_the_run_and_the_next_message_continues_from_there(page, model):
    never = Gate()
    model.reply(text("I will begin with ", never, "everything"))
    await page.write(page.channel, f"@alpha {ASK}")
    status = await page.see(page.thread, "⚙️")
    await never.reached.wait()
    await page.react(status, "x")

    await page.see(page.thread, "🛑 Stopped by Ana.")
    await expect(page.message(page.thread, "⚙️")).to_have_count(0)
    await page.see_reaction(page.channel, ASK, "hourglass_flowing_sand", gone=True)
    await page.screenshot("4-stopped")

    model.reply(text("Only the roadmap, then."))
    await page.write(page.thread, "only the roadmap please")
    await page.see(page.thread, "Only the roadmap, then.")
    rows = [(m["role"], m["content"][-1]["text"]) for m in model.bodies[-1]["messages"]]
    assert rows == [
        ("user", f"Ana (U0ANA): {ASK}"),
        ("assistant", "I will begin with "),
        ("user", "Ana (U0ANA): only the roadmap please"),
    ]


async def test_an_urgent_message_interrupts_the_answer_and_a_stop_names_finished_and_unknown_calls(
    page, model, tests_tool
):
    half = Gate()
    model.reply(text("First, the roadmap. It ", half, "too late"))
    model.reply(text("The budget."), tool_call("list_files", {}), tool_call("run_tests", {}), stop_reason="tool_use")
    await page.write(page.channel, f"@alpha {ASK}")
    await half.reached.wait()
    await page.see(page.thread, "⚙️")
    await page.write(page.thread, "!only the budget, and run its tests")
    await page.see(page.thread, "First, the roadmap.")
    await page.see_reaction(page.thread, "!only the budget", "eyes")
    await tests_tool.reached.wait()
    status = await page.see(page.thread, "Running the tests — 12 of 40 passed…")
    await page.screenshot("8-urgent")

    await page.write(page.thread, "and the dates")
    await page.see_reaction(page.thread, "and the dates", "incoming_envelope")
    await page.react(status, "x")
    notice = await page.see(page.thread, "🛑 Stopped by Ana. 1 tool call finished. Outcome unknown: Running the tests.")
    await expect(notice).to_contain_text("1 message has not been read yet. I will read it with your next message.")
    await expect(page.message(page.thread, "⚙️")).to_have_count(0)
    await tests_tool.left.wait()
    await page.screenshot("9-stop-notice")


async def test_a_rejected_key_is_reported_in_plain_words_and_the_next_message_works(page, model):
    model.fail(401, "authentication_error", "invalid x-api-key")
    await page.write(page.channel, f"@alpha {ASK}")
    await page.see(page.thread, "The model provider does not accept our API key.")
    await page.see_reaction(page.channel, ASK, "hourglass_flowing_sand", gone=True)
    model.reply(text("Here I am."))
    await page.write(page.thread, "and now?")
    await page.see(page.thread, "Here I am.")


async def test_without_a_bot_the_page_gives_the_command_that_connects_one(open_page, environment, tmp_path):
    page = await open_page(environment.slack.url)
    note = page.by("offline-note")
    await expect(note).to_contain_text("No bot is connected. Start one with")
    command = await note.locator("code").inner_text()
    assert f"SLACK_API_URL={environment.slack.api_url} " in command
    path = f"{Path(AMPLIFIER_SLACK).parent}:{os.environ['PATH']}"
    env = {"HOME": str(tmp_path), "PATH": path, "PYTHONPATH": os.environ.get("PYTHONPATH", "")}
    bot = await asyncio.create_subprocess_shell(command, cwd=tmp_path, env=env, start_new_session=True)
    try:
        await expect(note).to_be_hidden(timeout=20_000)
        await page.write(page.channel, "@alpha hello")
        await page.see(page.thread, "offline demo")
    finally:
        os.killpg(bot.pid, signal.SIGTERM)
        await bot.wait()
    await expect(note).to_be_visible()


async def test_a_prompt_in_direct_messages_is_answered_in_its_thread_by_an_agent_that_knows_the_channel_beside_it(
    page, model
):
    model.reply(text("I read notes."))
    for place in ("dm-alpha", "channel-general", "dm-alpha"):
        await page.by(place).click()
    await page.by("suggested-prompts", page.channel).get_by_role("button", name="What can you do?").click()
    await page.see(page.thread, "I read notes.")
    await expect(page.by("thread-title")).to_have_text("help")
    await expect(page.message(page.channel, "I read notes.")).to_have_count(0)
    await page.screenshot("direct-message")
    note, prompt = (each["text"] for each in model.bodies[0]["messages"][-1]["content"][-2:])
    assert "The author of the next message looks at the channel C0GENERAL, next to this conversation." in note
    assert prompt == "Ana (U0ANA): help"


async def test_an_approval_is_given_at_home_a_question_in_the_thread_and_text_approves_nothing(page, model):
    model.reply(tool_call("write_file", {"path": "plan.md", "content": "# Plan\n"}), stop_reason="tool_use")
    await page.write(page.channel, "@alpha plan the launch")
    question = await page.see(page.thread, "Allow write_file?")
    await expect(question).to_contain_text("+# Plan")
    await page.see(page.thread, "Waiting for your answer")
    await page.screenshot("approval")
    model.reply(text("I wait for your click."))
    await page.write(page.thread, "yes, approved")
    await page.see(page.thread, "I wait for your click.")
    await expect(page.by("action-request_choose_0")).to_be_visible()

    await page.by("dm-alpha").click()
    await page.by("tab-home").click()
    home = page.by("home")
    await expect(home).to_contain_text("Allow write_file?")
    await expect(home).to_contain_text("waits for an answer")
    await page.screenshot("home")
    model.reply(text("Planned."))
    await page.by("action-request_choose_0", home).click()
    await expect(home).to_contain_text("1 run,")
    await expect(page.by("action-request_choose_0", home)).to_have_count(0)

    await page.by("channel-general").click()
    await page.by("thread-summary", page.message(page.channel, "plan the launch")).click()
    await page.see(page.thread, "Ana allowed it")
    await page.see(page.thread, "Planned.")
    ask = {"question": "Which date?", "options": ["3 May", "10 May"]}
    model.reply(tool_call("ask_user", ask), stop_reason="tool_use")
    await page.write(page.thread, "and choose a date")
    await page.see(page.thread, "Which date?")
    await page.screenshot("question")
    model.reply(text("It is settled."))
    await page.by("action-request_choose_1", page.thread).click()
    await page.see(page.thread, "Ana: 10 May")
    await page.see(page.thread, "It is settled.")
    assert "10 May" in str(model.bodies[-1]["messages"][-1]["content"])
