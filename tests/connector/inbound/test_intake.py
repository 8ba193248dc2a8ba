from __future__ import annotations

import asyncio

import pytest
from chat import Chat

from connector.inbound.intake import LookUps, NoAnswer
from local_slack import LocalSlack, RetrySchedule, ServerError
from local_slack.delivery.faults import Dropped


async def test_a_message_that_is_delivered_again_after_its_run_starts_no_other_run(chat):
    thread = await chat.start()
    reply = await thread.inject("and that")
    await thread.run.deliver()
    await thread.run.answer("ok")
    await thread.shows("ok")
    chat.deliver(chat.posted(reply, "and that", thread_ts=thread.ts))
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
    await thread.edit(thread.ts, "good evening")
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


@pytest.fixture
async def lossy(process):
    """A chat in a Slack that soon repeats a lost event."""
    async with (
        LocalSlack(limits=None, retries=RetrySchedule(0.3, (0.05, 0.1, 0.1))) as slack,
        process(on=slack) as chat,
    ):
        yield chat


async def test_a_late_stop_holds_back_only_the_messages_before_it(lossy):
    lossy.sessions.obedient = True
    thread = await lossy.start()
    lossy.slack.deliveries.next(Dropped())
    await thread.say("stop")
    await thread.inject("and this")
    await thread.contains("🛑 Stopped by Ana.")
    assert (await thread.next_run()).prompt == "and this"


async def test_a_cross_that_arrives_before_its_message_stops_the_run_of_the_message(lossy):
    lossy.sessions.obedient = True
    lossy.slack.deliveries.next(Dropped(), times=2)
    thread = await lossy.say("@alpha look")
    await thread.cross(who="ben")
    await thread.contains("🛑 Stopped by Ben.")
    await lossy.acknowledged()
    assert lossy.sessions.idle
    assert len(lossy.sessions.prompts) <= 1


async def test_a_cross_is_acknowledged_while_slack_is_away_and_stops_the_run_afterwards(process, sessions):
    sessions.obedient = True
    async with LocalSlack() as slack, process(on=slack) as chat:
        thread = await chat.say("nothing for a bot")
        slack.deliveries.next(Dropped(), times=2)
        mention = await thread.say("@alpha look")
        chat.fail("conversations.replies", ServerError(503), times=3)
        await thread.cross(mention, who="ben")
        await thread.contains("🛑 Stopped by Ben.")
        await chat.acknowledged()
        of_the_cross = {e["envelope"] for e in slack.record if e.get("about") == "reaction_added"}
        assert not [e for e in slack.record if e["what"] == "not_acked" and e["envelope"] in of_the_cross]


async def test_replies_in_a_thread_without_an_agent_are_not_looked_up(chat):
    thread = await chat.say("nothing for a bot")
    await chat.acknowledged()
    for number in range(5):
        await thread.say(f"indeed {number}", who="ben")
    await thread.cross(who="ben")
    await chat.acknowledged()
    assert chat.calls("conversations.replies") == []
    await thread.say("@alpha and you?")
    assert (await thread.next_run()).prompt == "and you?"


async def test_a_cross_on_the_first_message_of_a_known_thread_is_not_looked_up(chat):
    thread = await chat.start()
    await thread.run.answer("ok")
    await thread.shows("ok")
    before = chat.calls("conversations.replies")
    await thread.cross(who="ben")
    await chat.acknowledged()
    assert chat.calls("conversations.replies") == before


async def test_an_unknown_thread_is_looked_up_once(process, slack, sessions):
    thread = await Chat(slack, sessions).say("nothing for a bot")
    slack.socket_mode.delivery.close()  # the event is never delivered
    async with process() as chat:
        for text in ("indeed", "so it is"):
            await thread.say(text, who="ben")
            await chat.acknowledged()
            await slack.until(lambda _: chat.calls("conversations.replies"))
            await (await chat.start()).status()
        assert len(chat.calls("conversations.replies")) == 1


async def test_few_look_ups_are_made_concurrently_and_of_many_the_last_are_dropped():
    asked = []

    async def never() -> None:
        asked.append(1)
        await asyncio.Event().wait()

    look_ups = LookUps(None)  # type: ignore[arg-type] - the calls are given
    asking = [asyncio.create_task(look_ups.answer(never)) for _ in range(40)]
    done, pending = await asyncio.wait(asking, timeout=0.05)
    assert (len(asked), len(done), len(pending)) == (5, 30, 10)
    assert all(isinstance(task.exception(), NoAnswer) for task in done)
    for task in pending:
        task.cancel()
    await asyncio.wait(pending)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(look_ups.answer(never), 0.01)
    assert len(asked) == 6, "there is room again"
