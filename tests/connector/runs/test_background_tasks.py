"""What a crowd of runs leaves of what Slack allows, and what is done where Slack allows nothing."""

from __future__ import annotations

import asyncio
import json
from contextlib import aclosing, asynccontextmanager
from typing import TYPE_CHECKING

import aiohttp
import pytest
from held_sessions import HeldSessions

from connector import ConnectionRefused, Instance, Persona, RunLimits, SlackCredentials, SocketTransport, connected
from connector.protocols import StateChanges
from local_slack import LocalSlack, Refuses, Waits
from service.runs.runs import StoredRuns
from service.store import open_run_store

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

ALPHA = Instance("alpha", Persona("Alpha", ":owl:"))
HOURGLASS, ENVELOPE, EYES = "hourglass_flowing_sand", "incoming_envelope", "eyes"
MANY = 14


def _access(slack: LocalSlack) -> SlackCredentials:
    return SlackCredentials(slack.bot_token, slack.api_url, SocketTransport(slack.app_token))


@pytest.fixture
def process(tmp_path):
    """A process of the service in a workspace, which ends as SIGTERM ends it."""

    @asynccontextmanager
    async def process(slack: LocalSlack, sessions: HeldSessions) -> AsyncIterator[None]:
        async with (
            aclosing(await open_run_store(f"sqlite:{tmp_path}/runs.db")) as store,
            StoredRuns(store, "a process", 10) as runs,
            connected(
                _access(slack), [ALPHA], sessions, runs, shutdown_grace_s=1, limits=RunLimits(runs_per_person=MANY)
            ),
        ):
            await slack.until(lambda ws: ws.bot_online)
            yield

    return process


async def test_many_runs_at_once_have_a_status_each_and_as_many_hourglasses_as_can_be_taken_away(process):
    channels = [f"c{number}" for number in range(MANY)]
    sessions = HeldSessions()
    async with LocalSlack(channels=channels) as slack, process(slack, sessions):
        roots = [await slack.as_person("ana").say(channel, "@alpha go") for channel in channels]
        runs = [await sessions.next_run() for _ in channels]

        def shown(ws):
            threads = [ws.thread(slack.channel(c).id, root) for c, root in zip(channels, roots, strict=True)]
            return sum(thread[0].reacted(HOURGLASS) for thread in threads), sum(len(thread) > 1 for thread in threads)

        await slack.until(lambda ws: shown(ws) == (10, MANY))
        for number, run in enumerate(runs):
            await run.answer(f"Answer {number}.")
        await slack.until(lambda ws: shown(ws) == (0, MANY))
        for channel, root in zip(channels, roots, strict=True):
            await slack.until(
                lambda ws, channel=channel, root=root: len(ws.thread(slack.channel(channel).id, root)) == 2
            )
        assert slack.rate_limits.refused.total() == 0


async def test_of_many_runs_that_are_taken_up_only_those_marks_are_taken_away_that_were_put(process):
    channels = [f"c{number}" for number in range(MANY)]
    sessions = HeldSessions()
    sessions.obedient = True
    roots: list[str] = []

    def marked(ws):
        return sum(ws.message(c, root).reacted(HOURGLASS) for c, root in zip(channels, roots, strict=True))

    async with LocalSlack(channels=channels) as slack:
        async with process(slack, sessions):
            roots += [await slack.as_person("ana").say(channel, "@alpha go") for channel in channels]
            for _ in channels:
                await sessions.next_run()
            await slack.until(lambda ws: marked(ws) == 10)
        sessions.obedient = False
        async with process(slack, sessions):
            for _ in channels:
                await (await sessions.next_run()).answer("done", part=1)
            await slack.until(lambda ws: not marked(ws))
        assert sum(entry.get("method") == "reactions.remove" for entry in slack.record) == 10


async def test_a_message_that_is_read_while_its_envelope_is_on_its_way_gets_its_eyes(scene):
    root = await scene.ana.say("general", "@alpha go")
    run = await scene.sessions.next_run()
    await scene.status("general", root)
    await scene.reacted("general", root, HOURGLASS)
    let_go = asyncio.Event()
    scene.slack.faults.next("reactions.add", Waits(let_go))
    steer = await scene.ana.say("general", "also this", thread=root)
    await run.until(lambda run: len(run.steers) == 1)
    await run.read_steers()
    let_go.set()
    await scene.reacted("general", steer, EYES)
    await run.answer("Done.")
    await scene.quiet("general", root, posts=1)


@pytest.mark.parametrize("word", ["token_revoked", "invalid_auth", "account_inactive", "missing_scope"])
async def test_a_workspace_that_is_closed_to_us_ends_the_service_and_its_answer_is_posted_by_the_next_one(
    process, word
):
    sessions = HeldSessions()
    sessions.obedient = True
    async with LocalSlack() as slack:
        with pytest.raises(ConnectionRefused, match=word):  # noqa: PT012 - it is raised at the end of the body
            async with asyncio.timeout(10), process(slack, sessions):
                root = await slack.as_person("ana").say("general", "@alpha go")
                run = await sessions.next_run()
                await slack.until(lambda ws: len(ws.thread(slack.channel("general").id, root)) == 2)
                slack.faults.next("chat.postMessage", Refuses(word), times=50)
                await run.answer("The answer.")
                await asyncio.Event().wait()
        slack.faults.clear()
        async with process(slack, sessions):
            await slack.until(
                lambda ws: [m.text for m in ws.thread(slack.channel("general").id, root) if m.by_bot] == ["The answer."]
            )
        assert sessions.prompts == ["go"]


async def test_traces_that_were_not_away_when_a_process_died_are_taken_away_by_the_next_one(process, tmp_path):
    sessions = HeldSessions()
    async with LocalSlack() as slack:
        root = await slack.as_person("ana").say("general", "@alpha go")
        channel = slack.channel("general").id
        status = await _as_bot(slack, "chat.postMessage", channel=channel, text="⚙️ Working…", thread_ts=root)
        await _as_bot(slack, "reactions.add", channel=channel, timestamp=root, name=HOURGLASS)
        await _as_bot(slack, "agents.sessions.setStatus", channel_id=channel, thread_ts=root, status="processing")
        traces = {"channel": channel, "first_ts": root, "statuses": [status["ts"]], "is_marked": True}
        traces |= {"team": slack.team_id, "thread_ts": root}
        async with aclosing(await open_run_store(f"sqlite:{tmp_path}/runs.db")) as store:
            conversation = f"{slack.team_id}:{channel}:{root}"
            claim = await store.claim(conversation, "a process that dies", 60)
            await store.write(conversation, claim.token, StateChanges(run={"traces": [traces]}))
        async with process(slack, sessions):
            await slack.until(lambda ws: not ws.message(channel, root).reacted(HOURGLASS))
            await slack.until(lambda ws: len(ws.thread(channel, root)) == 1)
            await slack.until(lambda ws: ws.session(channel, root).status == "active")


async def _as_bot(slack: LocalSlack, method: str, **arguments: str) -> dict[str, str]:
    headers = {"Authorization": f"Bearer {slack.bot_token}"}
    async with (
        aiohttp.ClientSession(headers=headers) as http,
        http.post(slack.api_url + method, data=arguments) as answer,
    ):
        told: dict[str, str] = json.loads(await answer.text())
        assert told["ok"]
        return told


async def test_a_name_that_would_call_a_channel_calls_nobody(process):
    sessions = HeldSessions()
    async with LocalSlack(people={"ana": "<!channel> & <@U0BEN>", "ben": "Ben"}) as slack, process(slack, sessions):
        ana = slack.as_person("ana")
        let_go = asyncio.Event()
        slack.faults.next("users.info", Waits(let_go))
        root = await ana.say("general", "@alpha go")
        run = await sessions.next_run()
        await ana.say("general", "stop", thread=root)
        let_go.set()
        await run.until(lambda run: bool(run.stops))
        await run.answer("", status="cancelled")
        await slack.until(lambda ws: any("Stopped" in m.text for m in ws.thread(slack.channel("general").id, root)))
        posted = [m for m in slack.workspace.messages(slack.channel("general").id) if m.by_bot]
        assert not [m.text for m in posted if "<" in m.text]


async def test_one_message_with_thousands_of_mentions_costs_few_look_ups_and_nobody_else_waits_for_them(process):
    sessions = HeldSessions()
    async with LocalSlack() as slack, process(slack, sessions):
        mentions = " ".join(f"<@U{number:05}>" for number in range(3_500))
        await slack.as_person("ana").say("general", f"@alpha who knows? {mentions}")
        run_of_ana = await sessions.next_run()
        root = await slack.as_person("ana").say("random", "@alpha look")
        run = await sessions.next_run()
        await slack.as_person("ben").say("random", "I do", thread=root)
        await run.until(lambda r: [(steer.author.name, steer.text) for steer in r.steers] == [("Ben", "I do")])
        asked = [entry for entry in slack.record if entry.get("method") == "users.info"]
        assert len(asked) <= 20 + 2
        await run.read_steers()
        await run.answer("ok")
        await run_of_ana.answer("ok")
