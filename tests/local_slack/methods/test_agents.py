"""Sessions of an agent: status, title, activity and prompts."""

from __future__ import annotations

import pytest
from slack_errors import error_of


@pytest.fixture
async def thread(ana):
    return {"channel_id": "C0GENERAL", "thread_ts": await ana.say("general", "question")}


@pytest.fixture
def session_of(slack, thread):
    return lambda: slack.workspace.session("general", thread["thread_ts"])


async def test_the_first_status_creates_the_session_with_its_title(slack, client, thread, session_of):
    assert session_of() is None
    await client.agents_sessions_setStatus(**thread, status="processing", title="A question")
    answer = await client.agents_sessions_setStatus(**thread, status="suspended", title="Another")
    assert (answer["status"], answer["title"]) == ("suspended", "A question")
    await client.agents_sessions_rename(**thread, title="A good question")
    assert (session_of().status, session_of().title) == ("suspended", "A good question")
    assert slack.workspace.sessions == (session_of(),)
    await client.agents_sessions_setStatus(**thread, status="closed")
    await slack.until(lambda workspace: any(session.status == "closed" for session in workspace.sessions))


async def test_wrong_arguments_of_a_session_are_refused(client, thread):
    here, set_status = {"channel_id": "C0GENERAL"}, client.agents_sessions_setStatus
    for call, error in (
        (set_status(**thread, status="thinking"), "invalid_arguments"),
        (set_status(**here, status="active"), "invalid_arguments"),
        (set_status(**here, thread_ts="x", status="active"), "invalid_thread_ts"),
        (set_status(**here, thread_ts="1700000000.000100", status="active"), "thread_not_found"),
        (set_status(**{**thread, "channel_id": "C0"}, status="active"), "channel_not_found"),
        (set_status(**thread, status="active", title="x" * 201), "invalid_arguments"),
        (client.agents_sessions_rename(**thread, title="x"), "session_not_found"),
        (client.assistant_threads_setStatus(**thread, status="x", loading_messages=["x"] * 11), "invalid_arguments"),
    ):
        assert await error_of(call) == error
    prompt = {"title": "a", "message": "b"}
    for prompts in ([prompt] * 5, [], [{"title": "a"}]):
        call = client.assistant_threads_setSuggestedPrompts(**thread, prompts=prompts)
        assert await error_of(call) == "invalid_arguments"


async def test_an_assistant_thread_shows_status_title_and_prompts(client, thread, session_of):
    loading = ["Counting", "Thinking"]
    await client.assistant_threads_setStatus(**thread, status="is reading", loading_messages=loading)
    await client.assistant_threads_setTitle(**thread, title="A question")
    await client.assistant_threads_setSuggestedPrompts(**thread, prompts=[{"title": "More", "message": "Say more"}])
    session = session_of()
    assert (session.says, session.loading, session.title) == ("is reading", ("Counting", "Thinking"), "A question")
    assert session.prompts == (("More", "Say more"),)
    await client.assistant_threads_setStatus(**thread, status="")
    assert (session_of().says, session_of().loading) == ("", ())


async def test_a_status_lasts_until_the_next_post_of_the_app_or_two_minutes(ana, client, thread, session_of, clock):
    for _ in range(2):
        await client.assistant_threads_setStatus(**thread, status="is reading")
        clock.advance(100)
        assert session_of().says == "is reading"
    clock.advance(21)
    assert session_of().says == ""
    await client.assistant_threads_setStatus(**thread, status="is reading")
    await ana.say("general", "more", thread=thread["thread_ts"])
    assert session_of().says == "is reading"
    await client.chat_postMessage(channel="C0GENERAL", thread_ts=thread["thread_ts"], text="answer")
    assert session_of().says == ""


@pytest.mark.slack(agent_view=False)
async def test_an_app_without_an_agent_view_has_no_sessions(slack, client, thread):
    for call in (
        client.agents_sessions_setStatus(**thread, status="active"),
        client.agents_sessions_rename(**thread, title="x"),
        client.assistant_threads_setStatus(**thread, status="x"),
        client.assistant_threads_setTitle(**thread, title="x"),
    ):
        assert await error_of(call) == "feature_disabled"
    assert slack.workspace.sessions == ()
