from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from virtual_time import in_virtual_time

from connector import Persona
from connector.conversations.cleanup import Cleanup
from connector.events import SlackMessage
from connector.protocols import Claim
from connector.records.inbox import PendingMessage
from connector.records.run_record import RunRecord
from connector.runs.background_tasks import BackgroundTasks
from connector.runs.view import RunView
from connector.slack_api.client import SlackClient
from connector.slack_api.errors import SlackCallFailed
from local_slack import DropAfterCall, DropBeforeCall, ErrorResponse, ServerError


@pytest.mark.parametrize("fault", [ServerError(503), ServerError(200)], ids=["503", "error page"])
@pytest.mark.parametrize("method", ["reactions.add", "chat.postMessage", "chat.delete", "reactions.remove"])
async def test_a_gateway_error_leaves_the_answer_and_nothing_else_in_the_thread(chat, method, fault):
    chat.fail(method, fault)
    thread = await chat.start()
    await thread.status()
    await thread.run.answer("the answer")
    await thread.shows("the answer")


@pytest.mark.parametrize("fault", [ServerError(503), ServerError(200)], ids=["503", "error page"])
async def test_a_gateway_error_on_an_envelope_does_not_end_the_service(chat, fault):
    thread = await chat.start_shown()
    chat.fail("reactions.add", fault)
    await thread.inject("and the tests")
    await thread.run.answer("the answer")
    await thread.contains("the answer")
    await chat.start("@alpha still there?")


@pytest.mark.parametrize("method", ["chat.update", "chat.delete", "reactions.add", "reactions.remove"])
async def test_an_answer_is_posted_though_slack_refuses_the_status_and_the_reactions(chat, method):
    chat.fail(method, ErrorResponse("internal_error"), times=10)
    thread = await chat.start()
    await thread.run.progress("thinking", iteration=1)
    await thread.run.answer("the answer")
    await thread.contains("the answer")


async def test_a_run_without_a_status_message_answers(chat):
    chat.fail("chat.postMessage", ErrorResponse("invalid_arguments"))
    thread = await chat.start()
    await chat.slack.until(lambda _: not chat.slack.faults.pending("chat.postMessage"))
    await thread.run.answer("the answer")
    await thread.shows("the answer")


@pytest.mark.parametrize(
    ("posts", "lookups"),
    [([DropBeforeCall()] * 3 + [DropAfterCall()], []), ([DropAfterCall()], [ServerError(503)] * 4)],
    ids=["at the last attempt", "and its look-up fails"],
)
async def test_a_status_message_whose_post_is_in_doubt_is_removed_at_the_end(chat, posts, lookups):
    for fault in posts:
        chat.fail("chat.postMessage", fault)
    for fault in lookups:
        chat.fail("conversations.replies", fault)
    thread = await chat.start()
    await thread.status()
    await thread.run.answer("the answer")
    await thread.shows("the answer")


async def test_a_run_in_a_conversation_closed_to_the_bot_is_stopped(chat):
    thread = await chat.start()
    await thread.run.answer("so that Ana's name is known")
    await thread.shows("so that Ana's name is known")
    chat.fail("chat.postMessage", ErrorResponse("is_archived"))
    thread = await chat.start()
    await thread.run.stopped(True)
    await thread.run.answer("", status="cancelled")
    dm = await chat.ana.open_dm("alpha")
    assert len(await chat.slack.until(lambda ws: ws.messages(dm))) == 1


class Client:
    """A client whose `reactions.add` takes 15 s; the workspace has no agent sessions."""

    retry_until_done = staticmethod(SlackClient.retry_until_done)

    def __init__(self) -> None:
        self.done: list[str] = []

    async def react(self, channel: str, ts: str, name: str, slot: object, confirm: Any) -> None:
        await confirm()
        await asyncio.sleep(15)
        self.done.append("marked")

    async def unreact(self, *reaction: str) -> None:
        self.done.append("unmarked")

    async def post(self, *_: Any, **__: Any) -> str:
        return "2.0"

    async def update(self, *_: Any) -> None:
        pass

    async def delete(self, channel: str, ts: str, run: str = "") -> None:
        self.done.append(f"{ts} deleted")

    async def call(self, method: str, *_: Any) -> None:
        raise SlackCallFailed(method, "feature_disabled")


async def nothing(*_: object) -> None:
    pass


@in_virtual_time
async def test_a_reaction_without_a_response_delays_no_run_and_is_removed_later():
    client = Client()
    message = SlackMessage("T1", "C1", "1.0", None, "U1", "look", (), direct=False)
    first = PendingMessage(message, "alpha", "look", message.id)
    record = RunRecord.begun_with(first, was_waiting=False, newest_ts="1.0")
    lease = SimpleNamespace(claim=Claim(1), confirm=nothing, write=nothing, keep_status=nothing, on_closed=None)
    clock = asyncio.get_running_loop()
    async with BackgroundTasks(client) as background:
        view = RunView(background, lease, record, Persona("Alpha", ":owl:"), lease)
        cleanup = Cleanup(lease, background)
        async with view.posting(), view.shown():
            await asyncio.sleep(1)
            ends_at_s = clock.time()
        assert clock.time() - ends_at_s < 3
        await cleanup.end_run({}, artifacts=view.artifacts)
        await cleanup.recent_done()
        assert clock.time() - ends_at_s < 5
        await cleanup.done(asyncio.Event())
    assert client.done == ["2.0 deleted", "marked", "unmarked"]
