"""An agent's sessions: status, title, what it says it does, prompts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from slack_sdk.errors import SlackApiError
from slack_sdk.web.async_client import AsyncWebClient

from local_slack import LocalSlack

if TYPE_CHECKING:
    from collections.abc import Awaitable


async def refused(call: Awaitable[Any]) -> str:
    with pytest.raises(SlackApiError) as caught:
        await call
    return str(caught.value.response["error"])


@pytest.fixture
async def thread(slack: LocalSlack) -> dict[str, str]:
    return {"channel_id": "C0GENERAL", "thread_ts": await slack.as_person("ana").say("general", "question")}


async def test_the_first_status_makes_the_session_and_gives_its_title(
    slack: LocalSlack, client: AsyncWebClient, thread: dict[str, str]
) -> None:
    assert slack.workspace.session("general", thread["thread_ts"]) is None
    await client.agents_sessions_setStatus(**thread, status="processing", title="A question")
    answer = await client.agents_sessions_setStatus(**thread, status="suspended", title="Another")
    assert (answer["status"], answer["title"]) == ("suspended", "A question")
    await client.agents_sessions_rename(**thread, title="A good question")
    session = slack.workspace.session("general", thread["thread_ts"])
    assert session is not None
    assert (session.status, session.title) == ("suspended", "A good question")
    assert slack.workspace.sessions == (session,)


async def test_a_test_can_wait_for_a_status(slack: LocalSlack, client: AsyncWebClient, thread: dict[str, str]) -> None:
    await client.agents_sessions_setStatus(**thread, status="closed")
    await slack.until(lambda workspace: any(session.status == "closed" for session in workspace.sessions))


async def test_what_can_not_be_a_session_is_refused(
    slack: LocalSlack, client: AsyncWebClient, thread: dict[str, str]
) -> None:
    here = {"channel_id": "C0GENERAL"}
    set_status = client.agents_sessions_setStatus
    assert await refused(set_status(**thread, status="thinking")) == "invalid_arguments"
    assert await refused(set_status(**here, status="active")) == "invalid_arguments"
    assert await refused(set_status(**here, thread_ts="x", status="active")) == "invalid_thread_ts"
    assert await refused(set_status(**here, thread_ts="1700000000.000100", status="active")) == "thread_not_found"
    assert await refused(set_status(**{**thread, "channel_id": "C0"}, status="active")) == "channel_not_found"
    assert await refused(set_status(**thread, status="active", title="x" * 201)) == "invalid_arguments"
    assert await refused(client.agents_sessions_rename(**thread, title="x")) == "session_not_found"


async def test_a_thread_says_what_the_assistant_does_until_it_is_empty(
    slack: LocalSlack, client: AsyncWebClient, thread: dict[str, str]
) -> None:
    loading = ["Counting", "Thinking"]
    await client.assistant_threads_setStatus(**thread, status="is reading", loading_messages=loading)
    await client.assistant_threads_setTitle(**thread, title="A question")
    await client.assistant_threads_setSuggestedPrompts(**thread, prompts=[{"title": "More", "message": "Say more"}])
    session = slack.workspace.session("general", thread["thread_ts"])
    assert session is not None
    assert (session.says, session.loading, session.title) == ("is reading", ("Counting", "Thinking"), "A question")
    assert session.prompts == (("More", "Say more"),)
    await client.assistant_threads_setStatus(**thread, status="")
    session = slack.workspace.session("general", thread["thread_ts"])
    assert session is not None
    assert (session.says, session.loading) == ("", ())


async def test_what_it_says_holds_until_it_posts_and_two_minutes_at_most() -> None:
    now = [1_700_000_000.0]
    async with LocalSlack(clock=lambda: now[0]) as slack:
        client = AsyncWebClient(token=slack.bot_token, base_url=slack.api_url)
        ts = await slack.as_person("ana").say("general", "question")

        def says() -> str:
            session = slack.workspace.session("general", ts)
            assert session is not None
            return session.says

        for _ in range(2):
            await client.assistant_threads_setStatus(channel_id="C0GENERAL", thread_ts=ts, status="is reading")
            now[0] += 100
            assert says() == "is reading"
        now[0] += 21
        assert says() == ""
        await client.assistant_threads_setStatus(channel_id="C0GENERAL", thread_ts=ts, status="is reading")
        await slack.as_person("ana").say("general", "more", thread=ts)
        assert says() == "is reading"
        await client.chat_postMessage(channel="C0GENERAL", thread_ts=ts, text="answer")
        assert says() == ""


async def test_there_are_at_most_ten_loading_messages_and_four_prompts(
    client: AsyncWebClient, thread: dict[str, str]
) -> None:
    many = client.assistant_threads_setStatus(**thread, status="x", loading_messages=["x"] * 11)
    assert await refused(many) == "invalid_arguments"
    prompt = {"title": "a", "message": "b"}
    for prompts in ([prompt] * 5, [], [{"title": "a"}]):
        call = client.assistant_threads_setSuggestedPrompts(**thread, prompts=prompts)
        assert await refused(call) == "invalid_arguments"


async def test_an_app_that_is_no_agent_has_none_of_it() -> None:
    async with LocalSlack(agent_view=False) as slack:
        client = AsyncWebClient(token=slack.bot_token, base_url=slack.api_url)
        thread = {"channel_id": "C0GENERAL", "thread_ts": await slack.as_person("ana").say("general", "hi")}
        for call in (
            client.agents_sessions_setStatus(**thread, status="active"),
            client.agents_sessions_rename(**thread, title="x"),
            client.assistant_threads_setStatus(**thread, status="x"),
            client.assistant_threads_setTitle(**thread, title="x"),
        ):
            assert await refused(call) == "feature_disabled"
        assert slack.workspace.sessions == ()
