"""Threads in which an agent took part before the service was started again."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import aiohttp
import pytest
from held_sessions import HeldRun, HeldSessions
from slack_sdk.web.async_client import AsyncWebClient

from connector import Instance, Persona, SlackAccess, connected
from connector.messages import Place
from connector.wire import Wire
from local_slack import Refuses

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from local_slack import LocalSlack, PersonClient

ALPHA = Instance("alpha", Persona("Alpha", ":owl:"))
BETA = Instance("beta", Persona("Beta", ":fox_face:"))


@pytest.fixture
def restarted(slack: LocalSlack):
    """The connector, which is told who took part in which conversation."""

    @asynccontextmanager
    async def restarted(known: Mapping[str, str]) -> AsyncIterator[HeldSessions]:
        sessions = HeldSessions()
        access = SlackAccess(slack.app_token, slack.bot_token, slack.api_url)
        async with connected(access, [ALPHA, BETA], sessions, known):
            await slack.until(lambda ws: ws.bot_online)
            yield sessions

    return restarted


@pytest.fixture
def ana(slack: LocalSlack) -> PersonClient:
    return slack.as_person("ana")


@pytest.fixture
async def thread(ana: PersonClient, restarted) -> str:
    async with restarted({}) as sessions:
        root = await ana.say("general", "@alpha look")
        await ended(await sessions.next_run())
    return root


@pytest.fixture
def conversation(slack: LocalSlack, thread: str) -> str:
    return f"{slack.team_id}:{slack.channel('general').id}:{thread}"


async def ended(run: HeldRun) -> tuple[str, str]:
    """End the run; for whom it was, and what it was asked."""
    await run.answer("ok")
    return run.instance, run.prompt


async def test_a_reply_without_a_mention_goes_to_the_instance_of_the_thread(restarted, ana, thread, conversation):
    async with restarted({conversation: "beta"}) as sessions:
        await ana.say("general", "go on", thread=thread)
        run = await sessions.next_run()
        assert run.conversation == conversation
        assert await ended(run) == ("beta", "go on")


async def test_another_instance_that_is_named_takes_the_thread_over(restarted, ana, thread, conversation):
    async with restarted({conversation: "beta"}) as sessions:
        await ana.say("general", "alpha: your turn", thread=thread)
        assert await ended(await sessions.next_run()) == ("alpha", "your turn")
        await ana.say("general", "and now", thread=thread)
        assert await ended(await sessions.next_run()) == ("alpha", "and now")


async def test_what_turns_to_another_person_is_left_alone_as_ever(restarted, ana, thread, conversation):
    async with restarted({conversation: "beta"}) as sessions:
        await ana.say("general", "@ben have you seen this?", thread=thread)
        await ana.say("general", "go on", thread=thread)
        assert await ended(await sessions.next_run()) == ("beta", "go on")
    assert sessions.prompts == ["go on"]


async def test_a_thread_of_an_instance_that_is_gone_is_like_any_other(restarted, ana, thread, conversation):
    async with restarted({conversation: "gamma"}) as sessions:
        await ana.say("general", "go on", thread=thread)
        await ana.say("general", "@alpha go on", thread=thread)
        assert await ended(await sessions.next_run()) == ("alpha", "go on")
    assert len(sessions.prompts) == 1


async def test_threads_that_nobody_took_part_in_are_left_alone(restarted, ana, thread, conversation):
    async with restarted({conversation: "beta", "another:C1:1.0": "beta"}) as sessions:
        other = await ana.say("general", "nothing for a machine")
        await ana.say("general", "indeed", thread=other)
        await ana.say("general", "go on", thread=thread)
        await ended(await sessions.next_run())
    assert sessions.prompts == ["go on"]


async def test_a_direct_message_goes_on_with_the_instance_that_it_was_with(slack, restarted, ana):
    async with restarted({}) as sessions:
        await ana.dm("alpha", "hello")
        run = await sessions.next_run()
        assert await ended(run) == ("alpha", "hello")
    async with restarted({run.conversation: "beta"}) as sessions:
        await ana.dm("alpha", "hello again")
        assert await ended(await sessions.next_run()) == ("beta", "hello again")


class TestWhatAKilledProcessLeft:
    @pytest.fixture
    async def wire(self, slack: LocalSlack) -> AsyncIterator[Wire]:
        """The bot's voice, as the process had it that was killed."""
        async with aiohttp.ClientSession() as http:
            yield Wire(AsyncWebClient(slack.bot_token, base_url=slack.api_url, session=http))

    async def test_is_taken_away_when_the_thread_goes_on(self, slack, restarted, ana, conversation, wire):
        general, thread = slack.channel("general").id, conversation.split(":")[2]
        missed = await ana.say("general", "and this", thread=thread)
        for ts in (thread, missed):
            await wire.react(general, ts, "hourglass_flowing_sand")
        place = Place(slack.team_id, general, thread)
        for number in range(210):
            await wire.post(place, f"{number}", f"other:{number}")
        status = await wire.post(place, "⚙️ Running the tests…", "dead:status")
        async with restarted({conversation: "alpha"}) as sessions:
            run = await sessions.next_run()
            assert run.prompt == "and this"
            await slack.until(lambda ws: status not in [m.ts for m in ws.thread(general, thread)])
            await slack.until(lambda ws: not ws.message(general, thread).reacted("hourglass_flowing_sand"))
            assert slack.workspace.message(general, missed).reacted("hourglass_flowing_sand"), "its run is on"
            await slack.until(lambda ws: any("⚙️" in m.text for m in ws.thread(general, thread)))
            await ended(run)
            await slack.until(lambda ws: not ws.message(general, missed).reacted("hourglass_flowing_sand"))

    async def test_in_a_direct_message_is_taken_away_too(self, slack, restarted, ana, wire):
        async with restarted({}) as sessions:
            root = await ana.dm("alpha", "hello")
            run = await sessions.next_run()
            await ended(run)
        channel = run.conversation.split(":")[1]
        await wire.react(channel, root, "hourglass_flowing_sand")
        status = await wire.post(Place(slack.team_id, channel, None), "⚙️ Working…", "dead:status")
        async with restarted({run.conversation: "alpha"}) as sessions:
            await ana.dm("alpha", "go on")
            await slack.until(lambda ws: status not in [m.ts for m in ws.messages(channel)])
            await slack.until(lambda ws: not ws.message(channel, root).reacted("hourglass_flowing_sand"))
            await ended(await sessions.next_run())

    async def test_is_not_what_people_did(self, slack, restarted, ana, thread, conversation):
        await ana.react("general", thread, "hourglass_flowing_sand")
        await ana.say("general", "⚙️ Working…", thread=thread)
        async with restarted({conversation: "alpha"}) as sessions:
            await ended(await sessions.next_run())
        assert slack.workspace.message("general", thread).reacted("hourglass_flowing_sand")
        assert "⚙️ Working…" in [m.text for m in slack.workspace.thread(slack.channel("general").id, thread)]

    async def test_is_looked_for_once(self, slack, restarted, ana, thread, conversation):
        slack.faults.next("conversations.replies", Refuses("missing_scope"), times=2)
        async with restarted({conversation: "alpha"}) as sessions:
            for words in ("go on", "and on"):
                await ana.say("general", words, thread=thread)
                await ended(await sessions.next_run())
        assert slack.faults.pending("conversations.replies") == 1

    async def test_does_not_keep_the_thread_from_going_on(self, slack, restarted, ana, thread, conversation):
        slack.faults.next("conversations.replies", Refuses("missing_scope"))
        async with restarted({conversation: "alpha"}) as sessions:
            await ana.say("general", "go on", thread=thread)
            assert await ended(await sessions.next_run()) == ("alpha", "go on")
