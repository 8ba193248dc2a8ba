from __future__ import annotations

import asyncio
import contextlib

import pytest
from chat import EYES, HOURGLASS

from connector import RunFailed
from connector.protocols import InboxEntry, LeaseLost

MANY = 10


async def test_a_message_after_the_loop_has_closed_its_queue_starts_a_run_and_later_ones_are_injected_into_it(chat):
    thread = await chat.start()
    thread.run.listening = False
    late = [await thread.accept(f"late {n}") for n in range(3)]
    await thread.run.answer("first answer")
    run = await thread.next_run()
    assert (run.prompt, run.texts) == ("late 0", ["late 1", "late 2"])
    await run.answer("second answer")
    await thread.contains("second answer")
    await thread.marked(late[0], EYES)


async def test_messages_while_the_answer_is_posted_get_one_run_in_their_order(chat):
    thread = await chat.start_shown()
    post = chat.hold("chat.postMessage")
    await thread.run.answer("first answer")
    for number, who in enumerate(("ben", "ana", "ben")):
        await thread.say(f"@alpha late {number}", who)
    await chat.acknowledged()
    post.set()
    run = await thread.next_run()
    await run.injected("late 1", "late 2")
    assert run.prompt == "late 0"
    await run.answer("second answer")
    await thread.shows("first answer", "second answer")


@pytest.mark.parametrize("status", ["success", "incomplete", "cancelled", "error"])
async def test_an_undelivered_injection_starts_the_next_run_however_the_run_ends(chat, status):
    thread = await chat.start()
    await thread.inject("and this")
    if status == "error":
        await thread.run.fail(RunFailed("The model is away."))
        await thread.contains("⚠️ The model is away.")
    else:
        await thread.run.answer("the answer", status=status)
    assert (await thread.next_run()).prompt == "and this"


async def test_a_set_up_that_fails_is_reported_and_the_pending_messages_get_a_run(chat):
    chat.sessions.hold_setup = asyncio.Event()
    chat.sessions.setup_errors = [RunFailed("The files of this conversation cannot be used.")]
    thread = await chat.say("@alpha look")
    await thread.marked(thread.ts, HOURGLASS)
    await thread.say("early 0")
    await thread.accept("early 1")
    chat.sessions.hold_setup.set()
    run = await thread.next_run()
    assert (run.prompt, run.texts) == ("early 0", ["early 1"])
    await run.answer("ok")
    await thread.shows("⚠️ The files of this conversation cannot be used.", "ok")


async def test_a_cancellation_from_inside_a_run_loses_no_message(chat):
    thread = await chat.start_shown()
    thread.run.listening = False
    await thread.accept("late")
    thread.run._end.cancel()
    assert (await thread.next_run()).prompt == "late"


class FaultyStore:
    """A run store that delays reads of one conversation, and reports the next ones written to as lost."""

    def __init__(self, store) -> None:
        self._store = store
        self.slow_in = ""
        self.reached, self.answers, self.all_lost = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self.loses = 0
        self.lost: set[str] = set()

    def __getattr__(self, name):
        return getattr(self._store, name)

    async def fetch(self, conversation_id, *more):
        if conversation_id == self.slow_in:
            self.reached.set()
            await self.answers.wait()
        return await self._store.fetch(conversation_id, *more)

    async def write(self, conversation_id, *more):
        if len(self.lost) < self.loses:
            self.lost.add(conversation_id)
        if conversation_id not in self.lost:
            return await self._store.write(conversation_id, *more)
        if len(self.lost) == self.loses:
            self.all_lost.set()
        raise LeaseLost


class TestFaultyStore:
    @pytest.fixture
    def store(self, store):
        return FaultyStore(store)

    async def test_an_unreadable_entry_is_reported_though_the_run_ends_while_it_is_read(self, chat, runs, store):
        thread = await chat.start()
        store.slow_in = thread.run.conversation
        await runs.admit(store.slow_in, InboxEntry(f"{store.slow_in}:x", "message", {"a": "new form"}), "alpha")
        await store.reached.wait()
        await thread.run.answer("ok")
        await thread.contains("ok")
        another = await chat.start("@alpha and this")  # begins and ends while the first one waits
        await another.run.answer("done")
        await another.shows("done")
        store.answers.set()
        unreadable = "📭 Not accepted: I cannot read a message that another version saved. Please send it again."
        await thread.shows("ok", unreadable)
        assert store.slow_in not in await store.due(chat.slack.team_id, 5)

    async def test_conversations_that_are_lost_before_their_run_begins_use_no_hourglass(self, chat, store):
        store.loses = MANY
        for _ in range(MANY):
            await chat.say("@alpha look")
        await store.all_lost.wait()
        thread = await chat.start()
        await thread.marked(thread.ts, HOURGLASS)


async def test_shutdown_does_not_wait_for_a_run_that_would_begin_only_then(process, sessions, slack):
    async def release() -> None:
        await slack.until(lambda ws: not ws.bot_online)
        lookup.set()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(1):
                await sessions.next_run()
        posts.set()

    async with asyncio.timeout(8), asyncio.TaskGroup() as tasks, process(shutdown_grace_s=2) as chat:
        thread = await chat.start()
        await thread.status()
        # The first run is about to end. It waits until the message in the other thread has its author's name.
        posts, lookup = chat.hold("chat.postMessage"), chat.hold("users.info")
        await thread.run.answer("the answer")
        await chat.ben.say("random", "@alpha one more")
        await chat.acknowledged()
        tasks.create_task(release())
