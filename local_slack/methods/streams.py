"""Slack's ``chat.startStream``, ``chat.appendStream`` and ``chat.stopStream``."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from local_slack.blocks.blocks import (
    BLOCKS_OF_A_MESSAGE,
    MARKDOWN_TEXT,
    block_problems,
    check_blocks,
    check_text,
    with_ids,
)
from local_slack.blocks.schema import ANYTHING, ByType, Choice, Many, Shape, Text
from local_slack.blocks.slack_json import message_json
from local_slack.methods.calls import invalid, method
from local_slack.methods.chat import metadata_of, persona_of
from local_slack.methods.rate_limits import TIER_2, TIER_4
from local_slack.workspace.agents import SESSION_STATUSES, AgentSession
from local_slack.workspace.errors import SlackRefused
from local_slack.workspace.messages import Body
from local_slack.workspace.people import Bot

if TYPE_CHECKING:
    from local_slack.json_limits import Json
    from local_slack.methods.calls import Call
    from local_slack.workspace.agents import Stream

_CHUNK = ByType(
    {
        "blocks": Shape({"blocks": ANYTHING}),
        "markdown_text": Shape({"text": Text(MARKDOWN_TEXT)}),
        "plan_update": Shape({"title": Text(256)}),
        "task_update": Shape(
            {"id": Text(255), "title": Text(256), "status": Choice("pending", "in_progress", "complete", "error")},
            {"details": Text(256, least=0), "output": Text(256, least=0), "sources": ANYTHING},
        ),
    }
)


@method("chat.startStream", "channel", scope="chat:write", limits=TIER_2)
def start(call: Call) -> Json:
    """Post the message of the stream; in a channel it names the user that asked."""
    channel = call.channel()
    if not isinstance(call.member, Bot):
        raise SlackRefused("not_allowed_token_type")
    for name in ("recipient_user_id", "recipient_team_id"):
        if not channel.is_im and not call.args.text(name):
            raise SlackRefused(f"missing_{name}")
    if call.args.has("task_display_mode"):
        call.args.one_of("task_display_mode", ("plan", "timeline"))
    chunks = _chunks(call)
    thread_ts, persona = call.args.thread_ts(), persona_of(call)
    posted = call.workspace.post(channel.id, call.member, Body(""), thread_ts=thread_ts, persona=persona)
    stream = call.workspace.streams.start(channel.id, posted.ts, posted.thread_ts, call.member.id)
    _show(call, stream, chunks)
    return {"channel": channel.id, "ts": posted.ts}


@method("chat.appendStream", "channel", "ts", scope="chat:write", limits=TIER_4)
def append(call: Call) -> Json:
    stream, chunks = _open(call), _chunks(call)
    if not chunks:
        raise SlackRefused("no_text")
    _show(call, stream, chunks)
    return {"channel": stream.channel, "ts": stream.ts}


@method("chat.stopStream", "channel", "ts", scope="chat:write", limits=TIER_2)
def stop(call: Call) -> Json:
    """End the stream; append the given blocks to the streamed content."""
    stream, chunks = _open(call), _chunks(call)
    blocks = call.args.objects("blocks", "invalid_blocks_format")
    check_blocks(blocks)
    metadata = metadata_of(call)
    status = call.args.one_of("session_status", SESSION_STATUSES) if call.args.has("session_status") else None
    _show(call, stream, [*chunks, {"type": "blocks", "blocks": list(with_ids(blocks))}], metadata)
    stream.finished = True
    if status and stream.thread_ts:
        session = call.workspace.session(stream.channel, stream.thread_ts)
        kept = session or AgentSession(stream.channel, stream.thread_ts)
        call.workspace.keep_session(replace(kept, status=status))
    message = call.message(stream.channel, stream.ts)
    answer = message_json(message, call.workspace.directory.team)
    return {"channel": stream.channel, "ts": stream.ts, "message": answer}


def _open(call: Call) -> Stream:
    channel, ts = call.channel(), call.args.required("ts")
    call.message(channel.id, ts)
    return call.workspace.streams.open_one(channel.id, ts, call.member.id)


def _show(call: Call, stream: Stream, chunks: list[Json], metadata: Json | None = None) -> None:
    stream.take(chunks)
    body = Body(stream.text, tuple(stream.shown()), metadata=metadata)
    call.workspace.fill(stream.channel, stream.ts, body)


def _chunks(call: Call) -> list[Json]:
    """Return the chunks to append; ``markdown_text`` becomes a chunk."""
    given = list(call.args.objects("chunks", "invalid_chunks_format"))
    wrong = list(Many(_CHUNK, 100, least=0).problems(given, "/chunks"))
    for number, chunk in enumerate(given if not wrong else ()):
        if chunk["type"] == "blocks":
            wrong += block_problems(chunk["blocks"], f"/chunks/{number}/blocks", BLOCKS_OF_A_MESSAGE)
    if wrong:
        raise SlackRefused("invalid_chunks", *(f"[ERROR] {what}" for what in wrong))
    text = call.args.text("markdown_text")
    check_text(text or "", MARKDOWN_TEXT)
    if text and given:
        raise invalid("[ERROR] must define either `markdown_text` or `chunks`")
    if text:
        return [{"type": "markdown_text", "text": text}]
    return [each | {"blocks": list(with_ids(each["blocks"]))} if each["type"] == "blocks" else each for each in given]
