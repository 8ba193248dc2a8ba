"""The state of a run that Slack itself shows, in workspaces with agent sessions."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from fake_web_api import FakeWebClient
from structlog.testing import capture_logs
from virtual_time import in_virtual_time

from connector.events import ThreadAddress
from connector.slack_api.agent_sessions import ACTIVE, PROCESSING, AgentSessions, title_of
from connector.slack_api.client import SlackClient, best_effort
from connector.slack_api.errors import SlackCallFailed
from connector.slack_api.rate_limiter import RateLimiter
from local_slack import ErrorResponse, ServerError

SET = "agents.sessions.setStatus"
ONE, OTHER = ThreadAddress("T1", "C1", "1.0"), ThreadAddress("T1", "C2", "1.0")


async def session(thread, status: str):
    """Wait for the session of the thread with this status."""

    def find(ws):
        found = ws.session(thread.chat.general, thread.ts)
        return found if found is not None and found.status == status else None

    return await thread.chat.slack.until(find)


async def test_a_thread_is_processing_during_a_run_and_has_the_title_of_its_first_message(chat):
    thread = await chat.start("@alpha *please* look at <https://example.org/a/b>")
    assert (await session(thread, "processing")).username == "Alpha", "Slack names the instance, not the app"
    await thread.run.answer("ok")
    assert (await session(thread, "active")).title == "please look at example.org"
    await thread.say("and again")
    await thread.next_run()
    await session(thread, "processing")
    await thread.run.answer("ok")
    assert (await session(thread, "active")).title == "please look at example.org"


async def test_a_run_that_waits_for_the_next_process_is_suspended(process, sessions):
    sessions.obedient = True
    async with process(shutdown_grace_s=5) as chat:
        thread = await chat.start()
        await session(thread, "processing")
    await session(thread, "suspended")


async def test_a_title_that_a_person_has_set_stays(chat):
    thread = await chat.start()
    await session(thread, "processing")
    await chat.ana.call("agents.sessions.rename", channel_id=chat.general, thread_ts=thread.ts, title="Ana's title")
    await thread.run.answer("ok")
    await session(thread, "active")
    await thread.edit(thread.ts, "@alpha look closely")
    await chat.acknowledged()
    await thread.say("and again")
    assert "look closely" in (await thread.next_run()).prompt, "the run begins with the first message of the thread"
    assert (await session(thread, "processing")).title == "Ana's title"


@pytest.mark.parametrize(
    "fault",
    [
        *map(ErrorResponse, ["feature_disabled", "unknown_method", "missing_scope", "not_allowed_token_type"]),
        ErrorResponse("not_authorized"),
        ServerError(404),
    ],
    ids=str,
)
async def test_a_workspace_without_agent_sessions_is_called_once(chat, fault):
    chat.fail(SET, fault)
    with capture_logs() as logs:
        for _ in range(2):
            thread = await chat.start()
            await chat.slack.until(lambda _: not chat.slack.faults.pending(SET))
            await thread.run.answer("the answer")
            await thread.shows("the answer")
    assert chat.slack.workspace.sessions == ()
    assert len(chat.calls(SET)) == 1
    assert [log["event"] for log in logs].count("agent_sessions.unavailable") == 1


@pytest.mark.parametrize("accepted", [0, 30])
@in_virtual_time
async def test_calls_that_are_queued_are_dropped_once_the_app_has_no_agent_sessions(accepted):
    web_client = FakeWebClient(errors={SET: [None] * accepted + [{"error": "not_authorized"}] * 100})
    async with RateLimiter("T1") as rate_limiter:
        client = SlackClient(web_client, rate_limiter)
        sessions = AgentSessions(client, lambda coroutine: asyncio.create_task(best_effort(coroutine)))
        threads = [ThreadAddress("T1", "C1", f"{number}.0") for number in range(100)]
        await asyncio.gather(*filter(None, [sessions.show(thread, PROCESSING) for thread in threads]))
        assert sessions.show(ONE, ACTIVE) is None
    assert len(web_client.calls_of(SET)) == accepted + 1


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


class Client:
    """A client with the status of each channel; calls fail with these errors first."""

    retry_until_done = staticmethod(SlackClient.retry_until_done)

    def __init__(self) -> None:
        self.statuses: dict[str, str] = {}
        self.errors: list[str] = []

    async def call(self, method: str, arguments: Callable[[], dict[str, str]], _slot: object) -> None:
        sent = arguments()
        if self.errors:
            raise SlackCallFailed(method, self.errors.pop(0))
        await asyncio.sleep(0.1)
        self.statuses[sent["channel_id"]] = sent["status"]


def sessions_of(client: Client) -> AgentSessions:
    return AgentSessions(client, lambda coroutine: asyncio.create_task(best_effort(coroutine)))


@in_virtual_time
async def test_the_end_of_a_run_is_shown_when_slack_is_available_again():
    sessions = sessions_of(client := Client())
    await sessions.show(ONE, PROCESSING)
    client.errors = ["no_answer"] * 20
    await sessions.show(ONE, ACTIVE)
    assert client.statuses == {"C1": ACTIVE}


@pytest.mark.parametrize("error", ["no_permission", "access_denied", "session_not_found"])
@in_virtual_time
async def test_a_refusal_in_one_channel_does_not_affect_the_others(error):
    sessions = sessions_of(client := Client())
    client.errors = [error]
    sessions.show(ONE, PROCESSING)
    await sessions.show(OTHER, PROCESSING)
    assert client.statuses == {"C2": PROCESSING}


@in_virtual_time
async def test_a_status_that_replaced_a_refused_one_can_be_shown_later():
    sessions = sessions_of(client := Client())
    client.errors = ["no_answer", "no_permission"]
    shown = sessions.show(ONE, PROCESSING)
    await asyncio.sleep(0.5)
    sessions.show(ONE, ACTIVE)
    await shown
    assert client.statuses == {}
    await sessions.show(ONE, ACTIVE)
    assert client.statuses == {"C1": ACTIVE}
