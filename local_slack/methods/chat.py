"""Slack's ``chat.*`` methods."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from local_slack.blocks.blocks import TEXT_OF_A_POST, TEXT_OF_AN_UPDATE, check_blocks, check_text, with_ids
from local_slack.blocks.slack_json import message_json
from local_slack.methods.conversations import channel_named, visible_channel
from local_slack.methods.message_arguments import metadata_of, persona_of, thread_ts_of
from local_slack.workspace.errors import SlackRefused
from local_slack.workspace.messages import Body
from local_slack.workspace.people import Bot

if TYPE_CHECKING:
    from local_slack.methods.calls import Call, Json, Methods
    from local_slack.workspace.messages import Message

_MARKDOWN_TEXT = 12_000
_ATTACHMENTS = 100


def post_message(call: Call) -> Json:
    call.args.need("channel")
    channel = _destination(call)
    body = _body(call, TEXT_OF_A_POST)
    message = call.workspace.post(
        channel,
        call.member,
        body,
        thread_ts=thread_ts_of(call),
        broadcast=call.args.flag("reply_broadcast"),
        persona=persona_of(call),
    )
    session = call.workspace.session(message.channel, message.thread_ts or "")
    if session and isinstance(call.member, Bot):
        call.workspace.keep_session(session.silent())
    answer = _message_json(call, message)
    if body.metadata:
        answer["metadata"] = body.metadata
    return {"channel": message.channel, "ts": message.ts, "message": answer}


def post_ephemeral(call: Call) -> Json:
    call.args.need("channel", "user")
    body = _body(call, TEXT_OF_A_POST)
    message = call.workspace.whisper(
        channel_named(call),
        call.member,
        body,
        to=call.args.required("user"),
        thread_ts=thread_ts_of(call),
        persona=persona_of(call),
    )
    return {"message_ts": message.ts}


def update(call: Call) -> Json:
    """Replace the given parts; blocks, attachments and metadata that are not given stay."""
    call.args.need("channel", "ts")
    channel, ts = channel_named(call), call.args.required("ts")
    fresh = _body(call, TEXT_OF_AN_UPDATE)
    if call.workspace.streams.is_open(channel, ts):
        raise SlackRefused("streaming_state_conflict")
    previous = call.workspace.message(channel, ts)
    old = previous.body if previous else fresh
    body = replace(
        old,
        text=fresh.text if _has_text(call) else old.text,
        blocks=fresh.blocks if call.args.has("blocks") else old.blocks,
        attachments=fresh.attachments if call.args.has("attachments") else old.attachments,
        metadata=fresh.metadata if call.args.has("metadata") else old.metadata,
    )
    message = call.workspace.edit(channel, ts, call.member, body)
    return {"channel": message.channel, "ts": ts, "text": message.text, "message": _message_json(call, message)}


def delete(call: Call) -> Json:
    call.args.need("channel", "ts")
    channel, ts = channel_named(call), call.args.required("ts")
    call.workspace.delete(channel, ts, call.member)
    return {"channel": call.workspace.channel(channel).id, "ts": ts}


def get_permalink(call: Call) -> Json:
    call.args.need("channel", "message_ts")
    channel, ts = visible_channel(call), call.args.required("message_ts")
    if call.workspace.message(channel.id, ts) is None:
        raise SlackRefused("message_not_found")
    domain = call.workspace.directory.team.domain
    path = f"archives/{channel.id}/p{ts.replace('.', '')}"
    return {"channel": channel.id, "permalink": f"https://{domain}.slack.com/{path}"}


def _destination(call: Call) -> str:
    """Return the channel to post to; a member's id means the direct message with them."""
    channel = call.args.required("channel")
    if member := call.workspace.directory.members.get(channel):
        return call.workspace.open_im(call.member, member)[0].id
    return channel


def _body(call: Call, longest: int) -> Body:
    args = call.args
    text, markdown = args.text("text") or "", args.text("markdown_text") or ""
    blocks = args.objects("blocks", "invalid_blocks_format") or ()
    attachments = _attachments(call)
    if args.has("parse"):
        args.one_of("parse", ("full", "none"))
    if markdown and (text or blocks):
        raise SlackRefused("markdown_text_conflict")
    if not (text.strip() or markdown.strip() or blocks or attachments):
        raise SlackRefused("no_text")
    check_text(text, longest)
    check_text(markdown, _MARKDOWN_TEXT)
    check_blocks(blocks)
    return Body(text or markdown, with_ids(blocks), attachments, metadata_of(call))


def _attachments(call: Call) -> tuple[dict[str, Any], ...]:
    attachments = call.args.objects("attachments", "invalid_attachments") or ()
    if len(attachments) > _ATTACHMENTS:
        raise SlackRefused("too_many_attachments")
    for number, attachment in enumerate(attachments):
        check_blocks(attachment.get("blocks") or (), f"/attachments/{number}/blocks")
    return attachments


def _has_text(call: Call) -> bool:
    return call.args.has("text") or call.args.has("markdown_text")


def _message_json(call: Call, message: Message) -> Json:
    return message_json(message, call.workspace.directory.team)


METHODS: Methods = {
    "chat.postMessage": post_message,
    "chat.postEphemeral": post_ephemeral,
    "chat.update": update,
    "chat.delete": delete,
    "chat.getPermalink": get_permalink,
}
