"""The state of a run that Slack itself shows, in workspaces with agent sessions."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from virtual_time import in_virtual_time

from connector.events import ThreadAddress
from connector.slack_api.agent_sessions import ACTIVE, PROCESSING, AgentSessions, title_of
from connector.slack_api.client import SlackClient, best_effort
from connector.slack_api.errors import SlackCallFailed
from local_slack import ErrorResponse

SET, RENAME = "agents.sessions.setStatus", "agents.sessions.rename"
ONE, OTHER = ThreadAddress("T1", "C1", "1.0"), ThreadAddress("T1", "C2", "1.0")


async def session(thread, status: str):
    """Wait for the session of the thread with this status."""

    def find(ws):
        found = ws.session(thread.chat.general, thread.ts)
        return found if found is not None and found.status == status else None

    return await thread.chat.slack.until(find)


async def test_a_thread_is_processing_during_a_run_and_has_the_title_of_its_first_message(chat):
    thread = await chat.start("@alpha *please* look at <https://example.org/a/b>")
    await session(thread, "processing")
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


@pytest.mark.parametrize("error", ["feature_disabled", "unknown_method", "missing_scope", "not_allowed_token_type"])
async def test_a_workspace_without_agent_sessions_is_called_once(chat, error):
    chat.fail(SET, ErrorResponse(error))
    for _ in range(2):
        thread = await chat.start()
        await chat.slack.until(lambda _: not chat.slack.faults.pending(SET))
        await thread.run.answer("the answer")
        await thread.shows("the answer")
    assert chat.slack.workspace.sessions == ()


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
    """A client with the status of each channel; calls fail with the errors of their method first."""

    retry_until_done = staticmethod(SlackClient.retry_until_done)

    def __init__(self) -> None:
        self.statuses: dict[str, str] = {}
        self.errors: dict[str, list[str]] = {SET: [], RENAME: []}
        self.may_rename = asyncio.Event()
        self.may_rename.set()

    async def call(self, method: str, arguments: Callable[[], dict[str, str]], _slot: object) -> None:
        sent = arguments()
        if method == RENAME:
            await self.may_rename.wait()
        if self.errors[method]:
            raise SlackCallFailed(method, self.errors[method].pop(0))
        await asyncio.sleep(0.1)
        if status := sent.get("status"):
            self.statuses[sent["channel_id"]] = status


def sessions_of(client: Client) -> AgentSessions:
    return AgentSessions(client, lambda coroutine: asyncio.create_task(best_effort(coroutine)))


@in_virtual_time
async def test_the_end_of_a_run_is_shown_when_slack_is_available_again():
    sessions = sessions_of(client := Client())
    await sessions.show(ONE, PROCESSING)
    client.errors[SET] = ["no_answer"] * 20
    await sessions.show(ONE, ACTIVE)
    assert client.statuses == {"C1": ACTIVE}


@pytest.mark.parametrize("error", ["session_not_found", "unknown_method", "no_answer"])
@in_virtual_time
async def test_a_slow_or_refused_title_delays_no_status(error):
    sessions = sessions_of(client := Client())
    client.may_rename.clear()
    client.errors[RENAME] = [error]
    await sessions.show(ONE, PROCESSING, "a title")
    await sessions.show(ONE, ACTIVE)
    assert client.statuses == {"C1": ACTIVE}
    client.may_rename.set()
    await asyncio.sleep(1)
    await sessions.show(ONE, PROCESSING)
    assert client.statuses == {"C1": PROCESSING}


@pytest.mark.parametrize("error", ["no_permission", "access_denied", "not_authorized", "session_not_found"])
@in_virtual_time
async def test_a_refusal_in_one_channel_does_not_affect_the_others(error):
    sessions = sessions_of(client := Client())
    client.errors[SET] = [error]
    sessions.show(ONE, PROCESSING)
    await sessions.show(OTHER, PROCESSING)
    assert client.statuses == {"C2": PROCESSING}


@in_virtual_time
async def test_a_status_that_replaced_a_refused_one_can_be_shown_later():
    sessions = sessions_of(client := Client())
    client.errors[SET] = ["no_answer", "no_permission"]
    shown = sessions.show(ONE, PROCESSING)
    await asyncio.sleep(0.5)
    sessions.show(ONE, ACTIVE)
    await shown
    assert client.statuses == {}
    await sessions.show(ONE, ACTIVE)
    assert client.statuses == {"C1": ACTIVE}
