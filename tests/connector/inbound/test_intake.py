from __future__ import annotations

import pytest


async def test_a_message_that_is_delivered_again_after_its_run_starts_no_other_run(chat):
    thread = await chat.start()
    steer = await thread.inject("and that")
    await thread.run.deliver()
    await thread.run.answer("ok")
    await thread.shows("ok")
    chat.deliver(chat.posted(steer, "and that", thread_ts=thread.ts))
    chat.deliver(chat.posted(thread.ts, f"<@{chat.slack.bot_user_id}> look"))
    await chat.starts_next()


async def test_a_message_that_is_delivered_again_after_a_restart_starts_no_other_run(process):
    async with process() as chat:
        thread = await chat.start()
        await thread.run.answer("ok")
        await thread.shows("ok")
    async with process() as chat:
        chat.deliver(chat.posted(thread.ts, f"<@{chat.slack.bot_user_id}> look"))
        await chat.starts_next()


@pytest.mark.parametrize("fields", [{"bot_id": "B0OTHER"}, {"subtype": "channel_join"}, {"user": None}])
async def test_a_mention_by_no_person_starts_nothing(chat, fields):
    mention = chat.posted("1700000000.000200", f"<@{chat.slack.bot_user_id}> look")
    chat.deliver({**mention, **fields})
    chat.deliver({**mention, **fields, "type": "app_mention"})
    await chat.starts_next()


async def test_edits_deletions_and_reactions_outside_of_the_threads_of_an_agent_start_nothing(chat):
    thread = await chat.say("good morning")
    await thread.edit(thread.ts, "@alpha good morning")
    await thread.cross()
    await chat.ana.unreact("general", thread.ts, "x")
    await thread.delete(thread.ts)
    await chat.ana.call("conversations.create", name="new")
    await chat.starts_next()


async def test_a_reply_that_is_also_sent_to_the_channel_is_injected_once(chat):
    thread = await chat.start()
    await chat.ana.say("general", "for all to see", thread=thread.ts, broadcast=True)
    await thread.run.injected("for all to see")
    await chat.starts_next()
    assert thread.run.texts == ["for all to see"]


async def test_a_mention_without_words_is_answered_once_by_whichever_process_receives_its_events(process, slack):
    async with process() as chat, process():
        threads = [await chat.say("@alpha") for _ in range(6)]
        await chat.acknowledged()
        for thread in threads:
            await thread.contains("Hi! Tell me what I can do for you.")
    assert [len(thread.posts) for thread in threads] == [1] * 6
    assert chat.sessions.idle
