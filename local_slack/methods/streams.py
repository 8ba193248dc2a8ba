"""Slack's ``chat.startStream``, ``chat.appendStream`` and ``chat.stopStream``."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from local_slack.blocks.block_schemas import BLOCKS_OF_A_MESSAGE, MARKDOWN_TEXT
from local_slack.blocks.blocks import block_problems, check_blocks, check_text, with_ids
from local_slack.blocks.schema import ByType, Choice, Many, Shape, Text, Unchecked, problems
from local_slack.blocks.slack_json import message_json
from local_slack.methods.arguments import invalid
from local_slack.methods.conversations import visible_channel
from local_slack.methods.message_arguments import metadata_of, persona_of, thread_ts_of
from local_slack.workspace.errors import SlackRefused
from local_slack.workspace.messages import Body
from local_slack.workspace.people import Bot
from local_slack.workspace.sessions import SESSION_STATUSES, Session

if TYPE_CHECKING:
    from local_slack.methods.calls import Call, Json, Methods
    from local_slack.workspace.streams import Stream

_CHUNK = ByType(
    {
        "blocks": Shape({"blocks": Unchecked()}),
        "markdown_text": Shape({"text": Text(MARKDOWN_TEXT)}),
        "plan_update": Shape({"title": Text(256)}),
        "task_update": Shape(
            {"id": Text(255), "title": Text(256), "status": Choice(("pending", "in_progress", "complete", "error"))},
            {"details": Text(256, least=0), "output": Text(256, least=0), "sources": Unchecked()},
        ),
    }
)


def start(call: Call) -> Json:
    """Post the message of the stream; in a channel it names the user that asked."""
    call.args.need("channel")
    channel = visible_channel(call)
    if not isinstance(call.member, Bot):
        raise SlackRefused("not_allowed_token_type")
    for name in ("recipient_user_id", "recipient_team_id"):
        if not channel.is_im and not call.args.text(name):
            raise SlackRefused(f"missing_{name}")
    if call.args.has("task_display_mode"):
        call.args.one_of("task_display_mode", ("plan", "timeline"))
    chunks = _chunks(call)
    posted = call.workspace.post(
        channel.id, call.member, Body(""), thread_ts=thread_ts_of(call), persona=persona_of(call)
    )
    stream = call.workspace.streams.start(channel.id, posted.ts, posted.thread_ts, call.member.id)
    _show(call, stream, chunks)
    return {"channel": channel.id, "ts": posted.ts}


def append(call: Call) -> Json:
    call.args.need("channel", "ts")
    stream, chunks = _open(call), _chunks(call)
    if not chunks:
        raise SlackRefused("no_text")
    _show(call, stream, chunks)
    return {"channel": stream.channel, "ts": stream.ts}


def stop(call: Call) -> Json:
    """End the stream; append the given blocks to the streamed content."""
    call.args.need("channel", "ts")
    stream, chunks = _open(call), _chunks(call)
    blocks = call.args.objects("blocks", "invalid_blocks_format") or ()
    check_blocks(blocks)
    metadata = metadata_of(call)
    status = call.args.one_of("session_status", SESSION_STATUSES) if call.args.has("session_status") else None
    final: Json = {"type": "blocks", "blocks": list(with_ids(blocks))}
    _show(call, stream, [*chunks, final], metadata)
    stream.finished = True
    if status and stream.thread_ts:
        session = call.workspace.session(stream.channel, stream.thread_ts)
        kept = session or Session(stream.channel, stream.thread_ts)
        call.workspace.keep_session(replace(kept, status=status))
    message = call.workspace.message(stream.channel, stream.ts)
    wire = message_json(message, call.workspace.directory.team) if message else {}
    return {"channel": stream.channel, "ts": stream.ts, "message": wire}


def _open(call: Call) -> Stream:
    channel, ts = visible_channel(call), call.args.required("ts")
    if call.workspace.message(channel.id, ts) is None:
        raise SlackRefused("message_not_found")
    return call.workspace.streams.open_one(channel.id, ts, call.member.id)


def _show(call: Call, stream: Stream, chunks: list[Json], metadata: Json | None = None) -> None:
    stream.take(chunks)
    body = Body(stream.text, tuple(stream.shown()), metadata=metadata)
    call.workspace.fill(stream.channel, stream.ts, body)


def _chunks(call: Call) -> list[Json]:
    """Return the chunks to append; ``markdown_text`` becomes a chunk."""
    given: Any = list(call.args.objects("chunks", "invalid_chunks_format") or ())
    wrong = list(problems(given, Many(_CHUNK, 100, least=0), "/chunks"))
    for number, chunk in enumerate(given if not wrong else ()):
        if chunk["type"] == "blocks":
            wrong += block_problems(chunk["blocks"], f"/chunks/{number}/blocks", BLOCKS_OF_A_MESSAGE)
    if wrong:
        raise SlackRefused("invalid_chunks", *(f"[ERROR] {what}" for what in wrong))
    text = call.args.text("markdown_text")
    check_text(text or "", MARKDOWN_TEXT)
    if text and given:
        raise invalid("[ERROR] must define either `markdown_text` or `chunks`")
    return [{"type": "markdown_text", "text": text}] if text else given


METHODS: Methods = {
    "chat.appendStream": append,
    "chat.startStream": start,
    "chat.stopStream": stop,
}
