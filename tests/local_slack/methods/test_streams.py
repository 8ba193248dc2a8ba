"""Messages that are written piece by piece."""

from __future__ import annotations

import pytest
from slack_errors import error_of
from slack_sdk.models.messages.chunk import MarkdownTextChunk, TaskUpdateChunk

HERE = {"channel": "C0GENERAL"}


@pytest.fixture
async def place(slack, ana):
    """The place and the recipient of a stream."""
    recipient = {"recipient_user_id": "U0ANA", "recipient_team_id": slack.team_id}
    return {**HERE, "thread_ts": await ana.say("general", "question"), **recipient}


async def test_a_stream_grows_and_ends(slack, client, place):
    ts = (await client.chat_startStream(**place, markdown_text="**hel"))["ts"]
    here = {**HERE, "ts": ts}
    await client.chat_appendStream(**here, markdown_text="lo**")
    task = TaskUpdateChunk(id="1", title="Look", status="in_progress")
    await client.chat_appendStream(**here, chunks=[task, MarkdownTextChunk(text=" there")])
    done = TaskUpdateChunk(id="1", title="Look", status="complete")
    await client.chat_stopStream(**here, chunks=[done], blocks=[{"type": "divider"}], session_status="active")
    message = slack.workspace.thread("general", place["thread_ts"])[1]
    assert (message.ts, message.text, message.edited) == (ts, "**hello** there", None)
    assert [block["type"] for block in message.blocks] == ["task_card", "markdown", "divider"]
    assert message.blocks[0]["status"] == "complete"
    assert slack.workspace.session("general", place["thread_ts"]).status == "active"
    assert await error_of(client.chat_appendStream(**here, markdown_text="x")) == "message_not_in_streaming_state"
    await client.chat_update(**here, text="edited")


async def test_the_streamer_of_the_sdk_works(slack, client, place):
    streamer = await client.chat_stream(**place, buffer_size=4)
    for piece in ("one ", "two ", "three"):
        await streamer.append(markdown_text=piece)
    await streamer.stop()
    assert slack.workspace.thread("general", place["thread_ts"])[1].text == "one two three"


async def test_an_open_stream_cannot_be_edited(client, place):
    ts = (await client.chat_startStream(**place))["ts"]
    assert await error_of(client.chat_update(**HERE, ts=ts, text="x")) == "streaming_state_conflict"


async def test_a_stream_ends_after_five_minutes(client, place, clock):
    here = {**HERE, "ts": (await client.chat_startStream(**place))["ts"]}
    for _ in range(3):
        clock.advance(100)
        await client.chat_appendStream(**here, markdown_text="x")
    clock.advance(1)
    assert await error_of(client.chat_appendStream(**here, markdown_text="x")) == "message_not_in_streaming_state"


async def test_a_reader_can_stop_a_stream(ana, client, place, bot):
    ts = (await client.chat_startStream(**place))["ts"]
    await ana.stop_session("general", place["thread_ts"])
    event = await bot.event(lambda e: e["type"] == "agent_session_stopped")
    assert event["streaming_message_ts"] == [ts]
    assert await error_of(client.chat_appendStream(**HERE, ts=ts, markdown_text="x")) == "stopped_by_user"


async def test_wrong_arguments_of_a_stream_are_refused(client, place):
    posted = (await client.chat_postMessage(**HERE, text="x"))["ts"]
    for call, error in (
        (client.chat_startStream(**{**place, "recipient_user_id": ""}), "missing_recipient_user_id"),
        (client.chat_startStream(**{**place, "recipient_team_id": ""}), "missing_recipient_team_id"),
        (client.chat_startStream(**place, chunks=[{"type": "x"}]), "invalid_chunks"),
        (client.chat_startStream(**place, markdown_text="x" * 12_001), "msg_too_long"),
        (client.chat_appendStream(**HERE, ts="1700000000.000100", markdown_text="x"), "message_not_found"),
        (client.chat_stopStream(**HERE, ts=posted), "message_not_in_streaming_state"),
    ):
        assert await error_of(call) == error
