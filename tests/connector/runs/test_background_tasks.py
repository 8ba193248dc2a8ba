from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from chat import HOURGLASS, Thread
from virtual_time import in_virtual_time

from connector import RunLimits
from connector.protocols import StateChanges
from connector.runs.background_tasks import ReactionKey, Reactions
from connector.slack_api.rate_limiter import CallSlot, Priority, RateLimiter
from local_slack import LocalSlack

MANY = 14
MOST_HOURGLASSES = 10
CHANNELS = [f"c{number}" for number in range(MANY)]


@pytest.fixture
async def slack():
    async with LocalSlack(
        channels=["general", "random", *CHANNELS], people={"ana": "<!channel> & <@U0BEN>", "ben": "Ben"}
    ) as slack:
        yield slack


@pytest.fixture
def process(process):
    """A process in which Ana may have all these runs, and which ends in time."""
    return lambda: process(limits=RunLimits(runs_per_person=MANY), shutdown_grace_s=1)


def shown(threads: list[Thread]) -> tuple[int, int]:
    """Return how many threads have an hourglass, and how many a message of the bot."""
    return (
        sum(thread.message(thread.ts).reacted(HOURGLASS) for thread in threads),
        sum(bool(thread.posts) for thread in threads),
    )


async def test_of_many_runs_each_has_a_status_and_as_many_an_hourglass_as_can_be_removed_soon(process, slack):
    async with process() as chat:
        threads = [await chat.start("@alpha go", channel) for channel in CHANNELS]
        await slack.until(lambda _: shown(threads) == (MOST_HOURGLASSES, MANY))
        for number, thread in enumerate(threads):
            await thread.run.answer(f"Answer {number}.")
        for number, thread in enumerate(threads):
            await thread.shows(f"Answer {number}.")
        assert slack.rate_limits.refused.total() == 0


async def test_the_next_process_removes_only_the_hourglasses_that_were_added(process, slack, sessions):
    sessions.obedient = True
    async with process() as chat:
        threads = [await chat.start("@alpha go", channel) for channel in CHANNELS]
        await slack.until(lambda _: shown(threads)[0] == MOST_HOURGLASSES)
    sessions.obedient = False
    async with process() as chat:
        for _ in threads:
            await (await sessions.next_run()).answer("done", part=1)
        await slack.until(lambda _: not shown(threads)[0])
        assert len(chat.calls("reactions.remove")) == MOST_HOURGLASSES


async def test_the_next_process_removes_the_artifacts_of_a_run_that_a_dead_one_left(process, slack, store, client):
    root = await slack.as_person("ana").say("general", "hello")
    channel = slack.channel("general").id
    web_client = client._client
    status = await web_client.chat_postMessage(channel=channel, text="⚙️ Working…", thread_ts=root)
    await web_client.reactions_add(channel=channel, timestamp=root, name=HOURGLASS)
    session = {"channel_id": channel, "thread_ts": root}
    await web_client.api_call("agents.sessions.setStatus", data={**session, "status": "processing"})
    artifacts = {"channel": channel, "first_ts": root, "statuses": [status["ts"]], "has_hourglass": True}
    artifacts |= {"team": slack.team_id, "thread_ts": root}
    conversation = f"{slack.team_id}:{channel}:{root}"
    claim = await store.claim(conversation, "a process that dies", 0.1)
    await store.write(conversation, claim.token, StateChanges(run={"cleanup": [artifacts]}))
    async with process() as chat:
        await Thread(chat, root).shows()
        await slack.until(lambda ws: ws.session(channel, root).status == "active")


async def test_a_name_with_markup_notifies_no_channel(process):
    async with process() as chat:
        lookup = chat.hold("users.info")
        thread = await chat.start()
        await thread.say("stop")
        lookup.set()
        await thread.run.stopped()
        await thread.run.answer("", status="cancelled")
        assert "<" not in (await thread.contains("Stopped")).text


async def test_thousands_of_mentions_cost_few_look_ups_and_delay_no_other_message(process):
    async with process() as chat:
        mentions = " ".join(f"<@U{number:05}>" for number in range(3_500))
        await chat.start(f"@alpha who knows? {mentions}")
        thread = await chat.start(channel="random")
        await thread.inject("@alpha I do", who="ben")
        assert thread.run.injections[0].author.name == "Ben"
        assert len(chat.calls("users.info")) <= 20 + 2


LAST = ReactionKey("C1", "last", "hourglass_flowing_sand")
QUEUED = 200


class Client:
    """A client that adds a reaction at its slot, and responds once `may_respond` is set."""

    def __init__(self, rate_limiter: RateLimiter) -> None:
        self._rate_limiter = rate_limiter
        self.added: list[str] = []
        self.removed: list[str] = []
        self.may_respond = asyncio.Event()
        self.may_respond.set()

    async def react(self, channel: str, ts: str, _name: str, slot: CallSlot, confirm) -> None:
        await self._rate_limiter.wait("reactions.add", channel, replace(slot, priority=Priority.REACTION))
        await confirm()
        self.added.append(ts)
        await self.may_respond.wait()

    async def unreact(self, _channel: str, ts: str, _name: str) -> None:
        self.removed.append(ts)


@in_virtual_time
async def test_a_queued_reaction_is_cancelled_at_once():
    clock = asyncio.get_running_loop()
    async with RateLimiter("T1") as rate_limiter:
        reactions = Reactions(client := Client(rate_limiter))
        before = [ReactionKey("C1", str(number), "eyes") for number in range(QUEUED)]
        adding = [asyncio.create_task(reactions.add(key, "a run")) for key in before]
        last = asyncio.create_task(reactions.add(LAST, "a run"))
        await asyncio.sleep(1)
        at_s = clock.time()
        assert reactions.cancel(LAST)
        assert not await last
        assert clock.time() == at_s
        assert all(await asyncio.gather(*adding))
        assert sorted(client.added) == sorted(key.ts for key in before)


@in_virtual_time
async def test_a_reaction_in_flight_is_not_cancelled():
    async with RateLimiter("T1") as rate_limiter:
        reactions = Reactions(client := Client(rate_limiter))
        client.may_respond.clear()
        adding = asyncio.create_task(reactions.add(LAST, "a run"))
        await asyncio.sleep(1)
        assert not reactions.cancel(LAST)
        await asyncio.sleep(1)
        assert not adding.done()
        client.may_respond.set()
        assert await adding


@in_virtual_time
async def test_a_reaction_is_removed_though_a_later_run_is_about_to_add_it_again():
    async with RateLimiter("T1") as rate_limiter:
        reactions = Reactions(client := Client(rate_limiter))
        assert await reactions.add(LAST, "a run")
        before = [
            asyncio.create_task(reactions.add(ReactionKey("C1", str(number), "eyes"), "a run"))
            for number in range(QUEUED)
        ]
        again = asyncio.create_task(reactions.add(LAST, "a later run"))
        await asyncio.sleep(1)
        await reactions.remove(LAST)
        assert not await again
        assert client.removed == [LAST.ts]
        await asyncio.gather(*before)
