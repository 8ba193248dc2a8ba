"""What Slack itself shows of an agent at work, where a workspace has that."""

from __future__ import annotations

from contextlib import aclosing

import pytest
from fake_sessions import FakeSessionManager

from connector import Instance, Persona, SlackCredentials, SocketTransport, connected
from connector.slack_api.agent_sessions import title_of
from local_slack import Refuses
from service.runs.runs import StoredRuns
from service.store import open_run_store

ALPHA = Instance("alpha", Persona("Alpha", ":owl:"))
SET, RENAME = "agents.sessions.setStatus", "agents.sessions.rename"


async def shown(slack, ts, status):
    """The session of a thread in the public channel, once it has this status."""
    channel = slack.channel("general").id

    def session(ws):
        found = ws.session(channel, ts)
        return found if found is not None and found.status == status else None

    return await slack.until(session)


async def test_a_thread_is_processing_while_a_run_is_on_and_has_a_title(scene):
    ts = await scene.ana.say("general", "@alpha *please* look at <https://example.org/a/b>")
    run = await scene.sessions.next_run()
    await shown(scene.slack, ts, "processing")
    await run.answer("ok")
    assert (await shown(scene.slack, ts, "active")).title == "please look at example.org"


async def test_the_title_is_that_of_the_first_message(scene):
    ts = await scene.ana.say("general", "@alpha look")
    await (await scene.sessions.next_run()).answer("ok")
    await shown(scene.slack, ts, "active")
    await scene.ana.say("general", "and again", thread=ts)
    run = await scene.sessions.next_run()
    await shown(scene.slack, ts, "processing")
    await run.answer("ok")
    assert (await shown(scene.slack, ts, "active")).title == "look"


async def test_a_run_that_waits_for_another_process_is_suspended(slack, tmp_path):
    sessions = FakeSessionManager()
    sessions.obedient = True
    access = SlackCredentials(slack.bot_token, slack.api_url, SocketTransport(slack.app_token))
    async with (
        aclosing(await open_run_store(f"sqlite:{tmp_path}/runs.db")) as store,
        StoredRuns(store, "it", 10) as runs,
    ):
        async with connected(access, [ALPHA], sessions, runs, shutdown_grace_s=5):
            ts = await slack.as_person("ana").say("general", "@alpha look")
            await sessions.next_run()
            await shown(slack, ts, "processing")
        await shown(slack, ts, "suspended")


@pytest.mark.parametrize("error", ["feature_disabled", "unknown_method", "missing_scope", "not_allowed_token_type"])
async def test_where_a_workspace_has_no_sessions_it_is_asked_once(scene, of_bot, error):
    scene.slack.faults.next(SET, Refuses(error))
    for _ in range(2):
        ts = await scene.ana.say("general", "@alpha look")
        run = await scene.sessions.next_run()
        await scene.slack.until(lambda _: not scene.slack.faults.pending(SET))
        await run.answer("the answer")
        assert of_bot(await scene.quiet("general", ts)) == ["the answer"]
    assert scene.slack.workspace.sessions == ()


async def test_where_a_session_has_no_name_it_has_a_status_all_the_same(scene):
    scene.slack.faults.next(RENAME, Refuses("unknown_method"))
    ts = await scene.ana.say("general", "@alpha look")
    run = await scene.sessions.next_run()
    await shown(scene.slack, ts, "processing")
    await scene.slack.until(lambda _: not scene.slack.faults.pending(RENAME))
    await run.answer("ok")
    assert (await shown(scene.slack, ts, "active")).title == ""


@pytest.mark.parametrize(
    ("prompt", "title"),
    [
        ("fix the login bug", "fix the login bug"),
        ("## Look:\n- at `foo_bar`\n> and **that**", "Look: at foo_bar and that"),
        ("```\nprint(1)\n```\nwhy?", "why?"),
        ("```\nprint(1)\n```", "print(1)"),
        ("see https://example.org/a?b=c, then go on", "see example.org then go on"),
        ("word " * 40, "word " * 11 + "word…"),
        ("x" * 100, "x" * 59 + "…"),
    ],
)
def test_a_title_is_short_plain_and_on_one_line(prompt, title):
    assert title_of(prompt) == title
