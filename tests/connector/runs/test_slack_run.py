from __future__ import annotations

import pytest
from chat import ENVELOPE, HOURGLASS

from connector import RunFailed
from local_slack import ErrorResponse, ServerError


async def test_a_mention_gets_an_hourglass_and_a_status_and_at_the_end_only_the_answer_remains(chat):
    thread = await chat.start_shown("@alpha look at this")
    assert (thread.run.instance, thread.run.prompt) == ("alpha", "look at this")
    assert (await thread.status()).username is None, "only the bot itself can edit its status message"
    await thread.run.answer("**Done** & dusted")
    await thread.shows("*Done* &amp; dusted")
    assert [(m.username, m.icon_emoji) for m in thread.posts] == [("Alpha", ":owl:")]


async def test_the_answer_is_posted_before_the_status_is_removed(chat):
    thread = await chat.start_shown()
    chat.slack.record.clear()
    await thread.run.answer("ok")
    await thread.shows("ok")
    methods = [entry.get("method") for entry in chat.slack.record]
    assert methods.index("chat.postMessage") < methods.index("chat.delete")


async def test_an_interim_text_is_a_message_of_its_own_before_the_answer(chat):
    thread = await chat.start()
    await thread.run.progress("text", text="So far: fine.")
    await thread.run.answer("And the tests are fine too.")
    await thread.shows("So far: fine.", "And the tests are fine too.")


async def test_of_a_text_that_an_urgent_message_cut_the_thread_gets_the_complete_sentences(chat):
    thread = await chat.start()
    await thread.run.progress("text", text="**I", part=1, partial=True)
    await thread.run.progress("text", text="It is green. And the", part=2, partial=True)
    await thread.run.answer("Done.")
    await thread.shows("It is green.", "Done.")


async def test_a_failed_run_is_reported_and_the_next_message_works(chat):
    thread = await chat.start()
    await thread.run.fail(RunFailed("The model's service cannot be reached at the moment."))
    await thread.shows("⚠️ The model's service cannot be reached at the moment.")
    await thread.say("again")
    await (await thread.next_run()).answer("here I am")
    await thread.contains("here I am")


async def test_an_unexpected_error_is_reported_without_its_details(chat):
    thread = await chat.start()
    await thread.run.fail(KeyError("secret detail"))
    (text,) = await thread.ended()
    assert text.startswith("⚠️ Something went wrong on my side.")
    assert "secret" not in text


@pytest.mark.parametrize("answer", ["", "```\n```", "&nbsp;"])
async def test_an_answer_that_shows_nothing_is_replaced_by_a_sentence(chat, answer):
    thread = await chat.start()
    await thread.run.answer(answer)
    await thread.shows("I am done and have nothing to add.")


@pytest.mark.parametrize(
    "fault", [ServerError(503), ServerError(200), ErrorResponse("user_not_found"), ErrorResponse("missing_scope")]
)
async def test_a_run_begins_without_the_name_of_its_author(chat, fault):
    chat.fail("users.info", fault)
    assert (await chat.start()).run.prompt == "look"


async def test_the_hourglass_does_not_wait_for_the_name_of_the_author(chat):
    chat.hold("users.info")
    thread = await chat.say("@alpha look")
    await thread.marked(thread.ts, HOURGLASS, within_s=3)


async def test_the_envelope_does_not_wait_for_the_name_of_another_author(chat):
    thread = await chat.start_shown()
    chat.hold("users.info")
    await thread.say("from Ben", who="ben")
    reply = await thread.say("from Ana, whose name is known")
    await thread.marked(reply, ENVELOPE, within_s=3)


def tool(label: str | None, outcome: str) -> dict:
    return {"tool": "bash", "id": label or "0", "label": label, "outcome": outcome}


async def test_the_text_before_a_stop_is_posted_before_the_stop_notice(chat):
    thread = await chat.start()
    await thread.stop()
    await thread.run.answer("I will begin with", status="cancelled", tools=[tool("Reading a.md", "finished")])
    await thread.shows("I will begin with …", "🛑 Stopped by Ana. 1 tool call finished.")


async def test_a_failed_run_names_the_call_with_an_unknown_outcome(chat):
    thread = await chat.start()
    await thread.run.fail(RunFailed("The model is away."), tools=[tool("Running <!channel>\nthe tests", "unknown")])
    await thread.shows("⚠️ The model is away. Outcome unknown: Running &lt;!channel&gt; the tests.")


@pytest.mark.parametrize("reason", [{"reason": "denied"}, {}])
async def test_a_denied_run_and_one_without_a_reason_post_only_their_answer(chat, reason):
    thread = await chat.start()
    await thread.run.answer("Operation denied: not today", status="incomplete", **reason)
    await thread.shows("Operation denied: not today")
