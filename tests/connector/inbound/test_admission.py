"""Replies that arrive before the mention that calls an agent into their thread."""

from __future__ import annotations

import asyncio

import pytest
from chat import Chat

from connector.events import SlackMessage
from connector.inbound.access_policy import Actor, LatestEntries
from connector.inbound.admission import UnroutedReplies
from local_slack import HeldUntil, LocalSlack, RetrySchedule, ServerError
from local_slack.delivery.faults import Dropped

LOST_TWICE = 2  # both events of a mention


def mention_of(chat, ts: str, **fields) -> dict:
    """Return the event of a mention that Slack delivers again."""
    return chat.posted(ts, f"<@{chat.slack.bot_user_id}> beta: look", **fields)


async def test_replies_that_arrive_before_a_mention_are_injected_in_their_order_as_they_are_then(process, sessions):
    retries = RetrySchedule(0.3, (0.05, 0.1, 0.1))
    async with LocalSlack(limits=None, retries=retries) as slack, process(on=slack) as chat:
        thread = await chat.say("the tests are flaky")
        await thread.say("so they are")
        await chat.acknowledged()
        slack.deliveries.next(Dropped(), times=LOST_TWICE)
        await thread.say("@alpha look at the code")
        await thread.say("but only at the parser")
        word, gone = await thread.say("and its tetss"), await thread.say("or not")
        await thread.edit(word, "and its tests")
        await thread.delete(gone)
        run = await thread.next_run()
        assert run.prompt == "look at the code"
        await run.injected("but only at the parser", "and its tests")
        await chat.acknowledged()
        assert run.texts == ["but only at the parser", "and its tests"]
        assert run.injections[1].id.endswith(f":{word}")


async def test_a_reply_that_arrived_in_an_older_version_before_its_mention_is_read_as_it_is_now(chat):
    deliveries, thread = chat.slack.deliveries, await chat.say("the tests are flaky")
    await chat.acknowledged()
    deliveries.next(HeldUntil(mention_arrives := asyncio.Event()), times=2)
    await thread.say("@alpha look at the code")
    word = await thread.say("and its tetss")
    await chat.slack.until(lambda _: chat.slack.socket_mode.delivery.outstanding == 2)
    deliveries.next(HeldUntil(edit_arrives := asyncio.Event()))
    await thread.edit(word, "and its tests")
    mention_arrives.set()
    run = await thread.next_run()
    await run.injected("and its tests")
    edit_arrives.set()
    await chat.acknowledged()
    await thread.inject("and the docs")
    assert run.texts == ["and its tests", "and the docs"]


@pytest.mark.parametrize("is_delivered", [False, True])
async def test_an_edit_that_is_older_than_the_admitted_version_changes_nothing(chat, is_delivered):
    thread, deliveries = await chat.start_shown(), chat.slack.deliveries
    await chat.acknowledged()
    deliveries.next(HeldUntil(mention_arrives := asyncio.Event()), times=2)
    await thread.say("@alpha and I?", "ben")
    reply = await thread.say("one", "ben")
    await chat.slack.until(lambda _: chat.slack.socket_mode.delivery.outstanding == 2)
    deliveries.next(HeldUntil(edit_arrives := asyncio.Event()))
    for words in ("two", "three"):
        await chat.ben.edit("general", reply, words)
    await chat.slack.until(lambda _: chat.slack.socket_mode.delivery.outstanding == 3)
    mention_arrives.set()
    await thread.run.injected("and I?", "three")
    if is_delivered:
        await thread.run.deliver()
    edit_arrives.set()
    await chat.acknowledged()
    await thread.inject("the next one")
    assert thread.run.texts == ["and I?", "three", "the next one"]


@pytest.mark.parametrize("is_root", [True, False])
async def test_a_reply_to_a_mention_that_a_dead_process_received_is_for_its_instance(process, slack, sessions, is_root):
    chat = Chat(slack, sessions)
    thread = await chat.say("@alpha beta: look" if is_root else "the tests are flaky")
    other = await chat.say("nothing for a bot")
    mention = thread.ts if is_root else await thread.say("@alpha beta: look")
    slack.socket_mode.delivery.close()  # these events are never delivered
    for each in (other, thread):
        await each.say("and the tests")
    async with process():
        run = await thread.next_run()
        assert (run.instance, run.prompt) == ("beta", "look")
        await run.injected("and the tests")
        chat.deliver(mention_of(chat, mention, **({} if is_root else {"thread_ts": thread.ts})))
        await chat.acknowledged()
    assert sessions.prompts == ["look"]


@pytest.fixture
async def late(process, slack, sessions):
    """A thread with a mention that was lost, and a reply that an earlier process acknowledged."""
    thread = await Chat(slack, sessions).say("the tests are flaky")
    async with process():
        slack.deliveries.next(Dropped(), times=LOST_TWICE)
        mention = await thread.say("@alpha beta: look")
        await thread.say("at the parser")
        await slack.until(lambda _: slack.socket_mode.delivery.outstanding == LOST_TWICE)
    slack.socket_mode.delivery.close()
    return thread, mention_of(thread.chat, mention, thread_ts=thread.ts)


async def test_a_reply_that_was_acknowledged_before_its_mention_arrived_is_read_by_the_next_process(process, late):
    thread, mention = late
    async with process() as chat:
        chat.deliver(mention)
        run = await thread.next_run()
        assert (run.instance, run.prompt) == ("beta", "look")
        await run.injected("at the parser")
    assert chat.sessions.prompts == ["look"]


@pytest.fixture
async def catching_up(process, late):
    """The run of a late mention, whose thread cannot be read yet; how to post there, and to release the thread."""
    thread, mention = late
    async with process() as chat:
        read = chat.hold("conversations.replies")
        chat.deliver(mention)
        await thread.next_run()

        async def accept(text: str) -> None:
            ts = await thread.say(text)
            chat.deliver(chat.posted(ts, text, thread_ts=thread.ts))
            await thread.marked(ts, "incoming_envelope")

        yield thread, accept, read


async def test_a_message_that_arrives_while_the_thread_is_read_follows_the_earlier_ones(catching_up):
    thread, accept, read = catching_up
    await accept("and at the printer")
    assert thread.run.injections == []
    read.set()
    await thread.run.injected("at the parser", "and at the printer")


async def test_an_urgent_message_and_those_after_it_do_not_wait_long_for_the_earlier_ones(catching_up):
    thread, accept, read = catching_up
    await accept("!hurry")
    await thread.run.injected("!hurry")
    await accept("and at the printer")
    await thread.run.injected("!hurry", "and at the printer")
    read.set()
    await thread.run.injected("!hurry", "and at the printer", "at the parser")


async def test_a_message_that_waits_for_earlier_ones_without_a_run_is_marked_as_accepted(catching_up):
    thread, accept, read = catching_up
    await thread.run.answer("ok")
    await accept("and at the printer")
    read.set()
    run = await thread.next_run()
    assert run.prompt == "at the parser"
    await run.injected("and at the printer")


async def test_of_many_threads_that_cannot_be_read_few_keep_their_lease(process, store):
    """The others wait in the store, and continue with the next message."""
    async with LocalSlack(limits=None) as slack, process(on=slack, rate_scale=1_000) as chat:
        chat.fail("conversations.replies", ServerError(503), times=10_000)
        threads = [await chat.say(f"thread {number}") for number in range(25)]
        for thread in threads:
            await thread.say("@alpha look")
            await (await thread.next_run()).answer("ok")

        async def released() -> list:
            records = [await store.record(thread.run.conversation) for thread in threads[20:]]
            return [thread for thread, record in zip(threads[20:], records, strict=True) if not record.is_owned]

        async with asyncio.timeout(10):
            while not (free := await released()):  # noqa: ASYNC110 - a lease has no event
                await asyncio.sleep(0.02)
        await free[0].say("and this")
        assert (await free[0].next_run()).prompt == "and this"


def reply(ts: str, text: str = "hm", thread_ts: str = "1.0") -> SlackMessage:
    return SlackMessage("T1", "C1", ts, thread_ts, "U1", text, (), direct=False)


def test_unrouted_replies_are_returned_once_in_the_order_of_their_posts():
    replies = UnroutedReplies()
    for each in (reply("4.0"), reply("3.0"), reply("2.0"), reply("5.0", thread_ts="2.5"), reply("6.0")):
        replies.add(each, Actor("U1", "C1"))
    replies.edit(reply("3.0", "aha"), Actor("U1", "C1"), "8.0")
    replies.edit(reply("3.0", "an earlier edit"), Actor("U1", "C1"), "7.0")
    replies.add(reply("3.0"), Actor("U1", "C1"))
    replies.edit(reply("9.0"), Actor("U1", "C1"), "9.1")
    replies.drop("T1:C1:6.0")
    replies.add(reply("6.0"), Actor("U1", "C1"))
    returned = [(each.ts, each.text, edited_ts) for each, _, edited_ts in replies.take_after("T1:C1:1.0", "2.0")]
    assert returned == [("3.0", "aha", "8.0"), ("4.0", "hm", "")]
    assert replies.take_after("T1:C1:1.0", "2.0") == []


def test_the_latest_unrouted_replies_and_names_are_remembered():
    replies, names = UnroutedReplies(), LatestEntries(10_000)
    for number in range(1, 10_002):
        replies.add(reply(f"{number}.0", thread_ts="0.5"), Actor("U1", "C1"))
        names[str(number)] = None
    assert len(replies.take_after("T1:C1:0.5", "0.0")) == 1_000
    assert ("1" in names, "2" in names) == (False, True)
