"""A store that answers late, or says that a conversation is lost, keeps nobody from being told what is to be told."""

from __future__ import annotations

import asyncio
from contextlib import aclosing

import pytest

from connector.protocols import InboxEntry, LeaseLost
from service.store import open_run_store

UNREADABLE = "📭 Not accepted: I cannot read a message that another version saved. Please send it again."
MANY = 10


class OddStore:
    """A store that holds up what is fetched in one conversation, and says that the next ones written to are lost."""

    def __init__(self, store) -> None:
        self._store = store
        self.slow_in = ""
        self.reached, self.answers = asyncio.Event(), asyncio.Event()
        self.loses = 0
        self.lost: set[str] = set()
        self.all_lost = asyncio.Event()

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


@pytest.fixture
async def store(tmp_path):
    async with aclosing(await open_run_store(f"sqlite:{tmp_path}/runs.db")) as store:
        yield OddStore(store)


async def test_what_nobody_can_read_is_told_though_the_run_has_just_said_all(scene, runs, store, of_bot):
    root = await scene.ana.say("general", "@alpha look")
    run = await scene.sessions.next_run()
    store.slow_in = f"{scene.slack.team_id}:{scene.slack.channel('general').id}:{root}"
    await runs.admit(store.slow_in, InboxEntry(f"{store.slow_in}:x", "message", {"a": "new form"}), "alpha")
    await store.reached.wait()
    await run.answer("ok")
    await scene.posted("general", root, "ok")
    another = await scene.ana.say("general", "@alpha and this")  # begun and over while the first one waits
    await (await scene.sessions.next_run()).answer("done")
    await scene.quiet("general", another)
    store.answers.set()
    assert of_bot(await scene.quiet("general", root, posts=2)) == ["ok", UNREADABLE]
    assert store.slow_in not in await store.due(scene.slack.team_id, 5)


async def test_runs_that_are_lost_before_they_begin_take_no_hourglass_from_others(scene, store):
    store.loses = MANY
    for _ in range(MANY):
        await scene.ana.say("general", "@alpha look")
    await store.all_lost.wait()
    root = await scene.ana.say("general", "@alpha look")
    run = await scene.sessions.next_run()
    await scene.reacted("general", root, "hourglass_flowing_sand")
    await run.answer("ok")
    await scene.quiet("general", root)
