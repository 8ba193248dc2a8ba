"""Threads in which an agent took part before the service was started again, or in another of its processes."""

from __future__ import annotations

import asyncio
from contextlib import aclosing, asynccontextmanager
from typing import TYPE_CHECKING

import pytest
from held_sessions import HeldRun, HeldSessions

from connector import Instance, Persona, SlackCredentials, SocketTransport, connected
from local_slack import Waits
from local_slack.delivery.delivery import Envelope
from local_slack.delivery.delivery_faults import Lost
from service.runs.runs import StoredRuns
from service.store import open_run_store

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from local_slack import LocalSlack, PersonClient

ALPHA = Instance("alpha", Persona("Alpha", ":owl:"))
BETA = Instance("beta", Persona("Beta", ":fox_face:"))


@pytest.fixture
def started(slack: LocalSlack, tmp_path):
    """The connector, with what an earlier one has kept."""

    @asynccontextmanager
    async def started(*instances: Instance) -> AsyncIterator[HeldSessions]:
        sessions = HeldSessions()
        access = SlackCredentials(slack.bot_token, slack.api_url, SocketTransport(slack.app_token))
        async with (
            aclosing(await open_run_store(f"sqlite:{tmp_path}/runs.db")) as store,
            StoredRuns(store, "a process", 10) as runs,
            connected(access, instances or (ALPHA, BETA), sessions, runs, shutdown_grace_s=0.5),
        ):
            await slack.until(lambda ws: ws.bot_online)
            yield sessions
            await slack.until(lambda _: sessions.idle)

    return started


@pytest.fixture
def ana(slack: LocalSlack) -> PersonClient:
    return slack.as_person("ana")


@pytest.fixture
async def thread(slack: LocalSlack, ana: PersonClient, started) -> str:
    """A thread with Beta, of an earlier service."""
    async with started() as sessions:
        root = await ana.say("general", "@alpha beta: look")
        assert await ended(await sessions.next_run()) == ("beta", "look")
        await slack.until(lambda ws: not ws.message("general", root).reacted("hourglass_flowing_sand"))
    return root


async def ended(run: HeldRun) -> tuple[str, str]:
    """End the run; for whom it was, and what it was asked."""
    await run.answer("ok")
    return run.instance, run.prompt


async def test_a_reply_without_a_mention_goes_to_the_instance_of_the_thread(slack, started, ana, thread):
    async with started() as sessions:
        await ana.say("general", "go on", thread=thread)
        run = await sessions.next_run()
        assert run.conversation == f"{slack.team_id}:{slack.channel('general').id}:{thread}"
        assert await ended(run) == ("beta", "go on")


async def test_another_instance_that_is_named_takes_the_thread_over(started, ana, thread):
    async with started() as sessions:
        await ana.say("general", "alpha: your turn", thread=thread)
        assert await ended(await sessions.next_run()) == ("alpha", "your turn")
        await ana.say("general", "and now", thread=thread)
        assert await ended(await sessions.next_run()) == ("alpha", "and now")


async def test_what_turns_to_another_person_is_left_alone_as_ever(started, ana, thread):
    async with started() as sessions:
        await ana.say("general", "@ben have you seen this?", thread=thread)
        await ana.say("general", "go on", thread=thread)
        assert await ended(await sessions.next_run()) == ("beta", "go on")
    assert sessions.prompts == ["go on"]


async def test_a_thread_of_an_instance_that_is_gone_goes_on_with_the_first_one(started, ana, thread):
    async with started(ALPHA) as sessions:
        await ana.say("general", "go on", thread=thread)
        assert await ended(await sessions.next_run()) == ("alpha", "go on")


async def test_threads_that_nobody_took_part_in_are_left_alone(started, ana, thread):
    async with started() as sessions:
        other = await ana.say("general", "nothing for a machine")
        await ana.say("general", "indeed", thread=other)
        await ana.say("general", "go on", thread=thread)
        await ended(await sessions.next_run())
    assert sessions.prompts == ["go on"]


async def test_a_direct_message_goes_on_with_the_instance_that_it_was_with(started, ana):
    async with started() as sessions:
        await ana.dm("alpha", "beta: hello")
        assert await ended(await sessions.next_run()) == ("beta", "hello")
    async with started() as sessions:
        await ana.dm("alpha", "hello again")
        assert await ended(await sessions.next_run()) == ("beta", "hello again")


def deliver(slack: LocalSlack, ts: str, text: str, **more: str) -> None:
    """Hand the app the event of one of Ana's messages, as Slack does once more."""
    event = {"type": "message", "user": slack.person("ana").id, "text": text, "ts": ts, "event_ts": ts}
    event |= {"channel": slack.channel("general").id, "team": slack.team_id, **more}
    payload = {"type": "event_callback", "team_id": slack.team_id, "event_id": "Ev1", "event": event}
    slack.socket_mode.delivery.offer(Envelope("again", "events_api", payload, 1))


async def test_what_came_in_again_after_a_restart_is_known(slack, started, ana, thread):
    async with started() as sessions:
        deliver(slack, thread, f"<@{slack.bot_user_id}> beta: look")
        await slack.until(lambda _: not slack.socket_mode.delivery.outstanding)
        await ana.say("general", "@alpha elsewhere")
        assert await ended(await sessions.next_run()) == ("alpha", "elsewhere")
    assert sessions.prompts == ["elsewhere"]


async def test_a_reply_that_overtakes_the_first_message_of_its_thread_is_for_the_same_agent(slack, started, ana):
    """The first one was on its way to a process that was killed."""
    root = await ana.say("general", "@alpha beta: look")
    other = await ana.say("general", "nothing for a machine")
    slack.socket_mode.delivery.close()
    for thread in (other, root):
        await ana.say("general", "and the tests", thread=thread)
    async with started() as sessions:
        run = await sessions.next_run()
        assert (run.instance, run.prompt) == ("beta", "look")
        await run.until(lambda r: [s.text for s in r.steers] == ["and the tests"])
        deliver(slack, root, f"<@{slack.bot_user_id}> beta: look")
        await slack.until(lambda _: not slack.socket_mode.delivery.outstanding)
        await run.read_steers()
        await ended(run)
    assert sessions.prompts == ["look"]


async def test_a_reply_that_overtakes_a_mention_in_the_middle_of_its_thread_is_for_that_agent(slack, started, ana):
    """What was written before it was on its way to a process that was killed."""
    root = await ana.say("general", "the tests are flaky")
    await ana.say("general", "so they are", thread=root)
    mention = await ana.say("general", "@alpha beta: look", thread=root)
    slack.socket_mode.delivery.close()
    await ana.say("general", "at the parser", thread=root)
    async with started() as sessions:
        run = await sessions.next_run()
        assert (run.instance, run.prompt) == ("beta", "look")
        await run.until(lambda r: [s.text for s in r.steers] == ["at the parser"])
        deliver(slack, mention, f"<@{slack.bot_user_id}> beta: look", thread_ts=root)
        await slack.until(lambda _: not slack.socket_mode.delivery.outstanding)
        await run.read_steers()
        await ended(run)
    assert sessions.prompts == ["look"]


async def overtaken(slack, started, ana) -> tuple[str, str]:
    """A thread, and a mention in it that has not come to a process yet; a reply to it was acknowledged."""
    root = await ana.say("general", "the tests are flaky")
    async with started():
        slack.deliveries.next(Lost(), times=2)
        mention = await ana.say("general", "@alpha beta: look", thread=root)
        await ana.say("general", "at the parser", thread=root)
        await slack.until(lambda _: slack.socket_mode.delivery.outstanding == 2)
    slack.socket_mode.delivery.close()
    return root, mention


async def test_a_reply_that_was_acknowledged_before_its_mention_came_is_read_by_the_next_process(slack, started, ana):
    """The mention was on its way when the reply was acknowledged, and the process that did so is gone."""
    root, mention = await overtaken(slack, started, ana)
    async with started() as sessions:
        deliver(slack, mention, f"<@{slack.bot_user_id}> beta: look", thread_ts=root)
        run = await sessions.next_run()
        assert (run.instance, run.prompt) == ("beta", "look")
        await run.until(lambda r: [s.text for s in r.steers] == ["at the parser"])
        await run.read_steers()
        await ended(run)
    assert sessions.prompts == ["look"]


@pytest.fixture
async def unread_thread(slack, started, ana):
    """A run that a late mention has begun while Slack does not return the thread; how to write there, and a release."""
    root, mention = await overtaken(slack, started, ana)
    is_asked = asyncio.Event()
    async with started() as sessions:
        slack.faults.next("conversations.replies", Waits(is_asked))
        deliver(slack, mention, f"<@{slack.bot_user_id}> beta: look", thread_ts=root)
        run = await sessions.next_run()

        async def write(text: str) -> None:
            ts = await ana.say("general", text, thread=root)
            deliver(slack, ts, text, thread_ts=root)
            await slack.until(lambda ws: ws.message("general", ts).reacted("incoming_envelope"))

        yield sessions, run, write, is_asked


async def read(run: HeldRun, *texts: str) -> None:
    await run.until(lambda r: [s.text for s in r.steers] == [*texts])
    await run.read_steers()
    await ended(run)


async def test_a_message_that_is_written_while_the_thread_is_read_comes_after_those_found_there(unread_thread):
    sessions, run, write, is_asked = unread_thread
    await write("and at the printer")
    assert run.steers == []
    is_asked.set()
    await read(run, "at the parser", "and at the printer")
    assert sessions.prompts == ["look"]


async def test_an_urgent_message_does_not_wait_long_for_older_ones(unread_thread):
    _, run, write, is_asked = unread_thread
    await write("!hurry")
    await run.until(lambda r: [s.text for s in r.steers] == ["!hurry"])
    is_asked.set()
    await run.until(lambda r: len(r.steers) == 2)
    await run.read_steers()
    await ended(run)


async def test_a_message_that_waits_for_older_ones_without_a_run_is_marked(unread_thread):
    sessions, run, write, is_asked = unread_thread
    await ended(run)
    await write("and at the printer")
    is_asked.set()
    run = await sessions.next_run()
    assert run.prompt == "at the parser"
    await read(run, "and at the printer")
