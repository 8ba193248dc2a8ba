"""Messages that are written piece by piece."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from slack_sdk.errors import SlackApiError
from slack_sdk.models.messages.chunk import MarkdownTextChunk, TaskUpdateChunk
from slack_sdk.web.async_client import AsyncWebClient

from local_slack import LocalSlack

if TYPE_CHECKING:
    from collections.abc import Awaitable


async def refused(call: Awaitable[Any]) -> str:
    with pytest.raises(SlackApiError) as caught:
        await call
    return str(caught.value.response["error"])


@pytest.fixture
async def place(slack: LocalSlack) -> dict[str, str]:
    """Give the arguments that say where a stream goes, and for whom."""
    root = await slack.as_person("ana").say("general", "question")
    return {
        "channel": "C0GENERAL",
        "thread_ts": root,
        "recipient_user_id": "U0ANA",
        "recipient_team_id": slack.team_id,
    }


async def test_a_stream_grows_and_ends(slack: LocalSlack, client: AsyncWebClient, place: dict[str, str]) -> None:
    ts = (await client.chat_startStream(**place, markdown_text="**hel"))["ts"]
    here: dict[str, Any] = {"channel": "C0GENERAL", "ts": ts}
    await client.chat_appendStream(**here, markdown_text="lo**")
    task = TaskUpdateChunk(id="1", title="Look", status="in_progress")
    await client.chat_appendStream(**here, chunks=[task, MarkdownTextChunk(text=" there")])
    done = TaskUpdateChunk(id="1", title="Look", status="complete")
    await client.chat_stopStream(**here, chunks=[done], blocks=[{"type": "divider"}], session_status="active")
    message = slack.workspace.thread("general", place["thread_ts"])[1]
    assert (message.ts, message.text, message.edited) == (ts, "**hello** there", None)
    assert [block["type"] for block in message.blocks] == ["task_card", "markdown", "divider"]
    assert message.blocks[0]["status"] == "complete"
    session = slack.workspace.session("general", place["thread_ts"])
    assert session is not None
    assert session.status == "active"
    assert await refused(client.chat_appendStream(**here, markdown_text="x")) == "message_not_in_streaming_state"
    await client.chat_update(**here, text="edited")


async def test_the_streamer_of_the_sdk_works(slack: LocalSlack, client: AsyncWebClient, place: dict[str, str]) -> None:
    streamer = await client.chat_stream(**place, buffer_size=4)
    for piece in ("one ", "two ", "three"):
        await streamer.append(markdown_text=piece)
    await streamer.stop()
    assert slack.workspace.thread("general", place["thread_ts"])[1].text == "one two three"


async def test_a_stream_that_is_open_can_not_be_edited(client: AsyncWebClient, place: dict[str, str]) -> None:
    ts = (await client.chat_startStream(**place))["ts"]
    assert await refused(client.chat_update(channel="C0GENERAL", ts=ts, text="x")) == "streaming_state_conflict"


async def test_a_stream_dies_after_five_minutes_even_while_it_is_fed() -> None:
    now = [1_700_000_000.0]
    async with LocalSlack(clock=lambda: now[0]) as slack:
        client = AsyncWebClient(token=slack.bot_token, base_url=slack.api_url)
        channel = await slack.as_person("ana").open_dm("alpha")
        root = await slack.as_person("ana").dm("alpha", "question")
        ts = (await client.chat_startStream(channel=channel, thread_ts=root))["ts"]
        for _ in range(3):
            now[0] += 100
            await client.chat_appendStream(channel=channel, ts=ts, markdown_text="x")
        now[0] += 1
        late = client.chat_appendStream(channel=channel, ts=ts, markdown_text="x")
        assert await refused(late) == "message_not_in_streaming_state"


async def test_a_reader_can_stop_a_stream(
    slack: LocalSlack, client: AsyncWebClient, place: dict[str, str], bot: Any
) -> None:
    ts = (await client.chat_startStream(**place))["ts"]
    await slack.as_person("ana").stop_session("general", place["thread_ts"])
    event = await bot.event(lambda e: e["type"] == "agent_session_stopped")
    assert event["streaming_message_ts"] == [ts]
    assert await refused(client.chat_appendStream(channel="C0GENERAL", ts=ts, markdown_text="x")) == "stopped_by_user"


async def test_what_can_not_be_streamed_is_refused(client: AsyncWebClient, place: dict[str, str]) -> None:
    for name in ("recipient_user_id", "recipient_team_id"):
        assert await refused(client.chat_startStream(**{**place, name: ""})) == f"missing_{name}"
    assert await refused(client.chat_startStream(**place, chunks=[{"type": "x"}])) == "invalid_chunks"
    assert await refused(client.chat_startStream(**place, markdown_text="x" * 12_001)) == "msg_too_long"
    nowhere = client.chat_appendStream(channel="C0GENERAL", ts="1700000000.000100", markdown_text="x")
    assert await refused(nowhere) == "message_not_found"
    posted = (await client.chat_postMessage(channel="C0GENERAL", text="x"))["ts"]
    no_stream = client.chat_stopStream(channel="C0GENERAL", ts=posted)
    assert await refused(no_stream) == "message_not_in_streaming_state"
