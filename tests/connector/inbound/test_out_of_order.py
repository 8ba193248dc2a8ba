from __future__ import annotations

import asyncio

import pytest
from chat import Chat

from connector.events import SlackMessage
from connector.inbound.access_policy import Actor
from connector.inbound.out_of_order import LookUps, LRUSet, NoAnswer, UnroutedReplies
from local_slack import LocalSlack, RetrySchedule, ServerError
from local_slack.delivery.faults import Dropped

ACTOR = Actor("U1", "C1")


@pytest.fixture
async def slack():
    """Slack repeats a lost event soon."""
    async with LocalSlack(limits=None, retries=RetrySchedule(0.3, (0.05, 0.1, 0.1))) as slack:
        yield slack


async def test_a_late_stop_holds_back_only_the_messages_before_it(chat):
    chat.sessions.obedient = True
    thread = await chat.start()
    chat.slack.deliveries.next(Dropped())
    await thread.say("stop")
    await thread.inject("and this")
    await thread.contains("🛑 Stopped by Ana.")
    assert (await thread.next_run()).prompt == "and this"


async def test_a_cross_that_arrives_before_its_message_stops_the_run_of_the_message(chat):
    chat.sessions.obedient = True
    chat.slack.deliveries.next(Dropped(), times=2)
    thread = await chat.say("@alpha look")
    await thread.cross(who="ben")
    await thread.contains("🛑 Stopped by Ben.")
    await chat.acknowledged()
    assert chat.sessions.idle
    assert len(chat.sessions.prompts) <= 1


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


def reply(ts: str, text: str = "hm", thread_ts: str = "1.0") -> SlackMessage:
    return SlackMessage("T1", "C1", ts, thread_ts, "U1", text, (), direct=False)


def test_unrouted_replies_are_returned_once_in_the_order_of_their_posts():
    replies = UnroutedReplies()
    for each in (reply("4.0"), reply("3.0"), reply("2.0"), reply("5.0", thread_ts="2.5"), reply("6.0")):
        replies.add(each, ACTOR)
    replies.edit(reply("3.0", "aha"), ACTOR, "8.0")
    replies.edit(reply("3.0", "an earlier edit"), ACTOR, "7.0")
    replies.add(reply("3.0"), ACTOR)
    replies.edit(reply("9.0"), ACTOR, "9.1")
    replies.drop("T1:C1:6.0")
    replies.add(reply("6.0"), ACTOR)
    returned = [(each.ts, each.text, edited_ts) for each, _, edited_ts in replies.take_after("T1:C1:1.0", "2.0")]
    assert returned == [("3.0", "aha", "8.0"), ("4.0", "hm", "")]
    assert replies.take_after("T1:C1:1.0", "2.0") == []


def test_the_latest_unrouted_replies_and_names_are_remembered():
    replies, names = UnroutedReplies(), LRUSet()
    for number in range(1, 10_002):
        replies.add(reply(f"{number}.0", thread_ts="0.5"), ACTOR)
        names.add(str(number))
    assert len(replies.take_after("T1:C1:0.5", "0.0")) == 1_000
    assert ("1" in names, "2" in names) == (False, True)
