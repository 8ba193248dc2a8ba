"""Slack's ``chat.*`` and ``reactions.*`` methods, except streams."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

from local_slack.blocks.blocks import (
    MARKDOWN_TEXT,
    TEXT_OF_A_POST,
    TEXT_OF_AN_UPDATE,
    check_blocks,
    check_text,
    with_ids,
)
from local_slack.blocks.slack_json import message_json
from local_slack.methods.calls import method
from local_slack.methods.rate_limits import SPECIAL, TIER_2, TIER_3, TIER_4, PerChannel, PerMinute
from local_slack.workspace.errors import SlackRefused
from local_slack.workspace.messages import Body, PostIdentity, is_timestamp
from local_slack.workspace.people import Bot

if TYPE_CHECKING:
    from local_slack.json_limits import Json
    from local_slack.methods.calls import Call

_ATTACHMENTS = 100
# Slack documents no limit; this is the size of one message in its older APIs.
_METADATA_BYTES = 16_384


@method("chat.postMessage", "channel", scope="chat:write", limits=(PerChannel(burst=5, per_s=1), PerMinute(300)))
def post_message(call: Call) -> Json:
    """Post a message; a member's id as the channel means the direct message with them."""
    channel = call.args.required("channel")
    if member := call.workspace.directory.members.get(channel):
        channel = call.workspace.open_im(call.member, member)[0].id
    message = call.workspace.post(
        channel,
        call.member,
        _body(call, TEXT_OF_A_POST),
        thread_ts=call.args.thread_ts(),
        broadcast=call.args.flag("reply_broadcast"),
        persona=persona_of(call),
    )
    session = call.workspace.session(message.channel, message.thread_ts or "")
    if session and isinstance(call.member, Bot):
        call.workspace.keep_session(session.silent())
    answer = message_json(message, call.workspace.directory.team, metadata=True)
    return {"channel": message.channel, "ts": message.ts, "message": answer}


@method("chat.postEphemeral", "channel", "user", scope="chat:write", limits=TIER_4)
def post_ephemeral(call: Call) -> Json:
    body = _body(call, TEXT_OF_A_POST)
    message = call.workspace.whisper(
        call.channel_named(),
        call.member,
        body,
        to=call.args.required("user"),
        thread_ts=call.args.thread_ts(),
        persona=persona_of(call),
    )
    return {"message_ts": message.ts}


@method("chat.update", "channel", "ts", scope="chat:write", limits=TIER_3)
def update(call: Call) -> Json:
    """Replace the given parts; blocks, attachments and metadata that are not given stay."""
    args = call.args
    channel, ts = call.channel_named(), args.required("ts")
    fresh = _body(call, TEXT_OF_AN_UPDATE)
    if call.workspace.streams.is_open(channel, ts):
        raise SlackRefused("streaming_state_conflict")
    previous = call.workspace.message(channel, ts)
    old = previous.body if previous else fresh
    body = replace(
        old,
        text=fresh.text if args.has("text") or args.has("markdown_text") else old.text,
        blocks=fresh.blocks if args.has("blocks") else old.blocks,
        attachments=fresh.attachments if args.has("attachments") else old.attachments,
        metadata=fresh.metadata if args.has("metadata") else old.metadata,
    )
    message = call.workspace.edit(channel, ts, call.member, body)
    answer = message_json(message, call.workspace.directory.team)
    return {"channel": message.channel, "ts": ts, "text": message.text, "message": answer}


@method("chat.delete", "channel", "ts", scope="chat:write", limits=TIER_3)
def delete(call: Call) -> Json:
    channel, ts = call.channel_named(), call.args.required("ts")
    call.workspace.delete(channel, ts, call.member)
    return {"channel": call.workspace.channel(channel).id, "ts": ts}


@method("chat.getPermalink", "channel", "message_ts", limits=SPECIAL)
def get_permalink(call: Call) -> Json:
    channel, ts = call.channel(), call.args.required("message_ts")
    call.message(channel.id, ts)
    domain = call.workspace.directory.team.domain
    path = f"archives/{channel.id}/p{ts.replace('.', '')}"
    return {"channel": channel.id, "permalink": f"https://{domain}.slack.com/{path}"}


@method("reactions.add", "name", scope="reactions:write", limits=TIER_3)
def add_reaction(call: Call) -> Json:
    channel, ts = _item(call)
    call.workspace.react(channel, ts, call.member, call.args.required("name"), add=True)
    return {}


@method("reactions.remove", "name", scope="reactions:write", limits=TIER_2)
def remove_reaction(call: Call) -> Json:
    channel, ts = _item(call)
    call.workspace.react(channel, ts, call.member, call.args.required("name"), add=False)
    return {}


@method("reactions.get", scope="reactions:read", limits=TIER_3)
def get_reactions(call: Call) -> Json:
    _, ts = _item(call)
    channel = call.channel()
    answer = message_json(call.message(channel.id, ts), call.workspace.directory.team)
    return {"type": "message", "channel": channel.id, "message": answer}


def metadata_of(call: Call) -> Json | None:
    metadata = call.args.object("metadata", "invalid_metadata_format")
    if not metadata:
        return None
    if not isinstance(call.member, Bot):
        raise SlackRefused("metadata_must_be_sent_from_app")
    if not isinstance(metadata.get("event_type"), str) or not isinstance(metadata.get("event_payload"), dict):
        raise SlackRefused("invalid_metadata_format")
    if not set(metadata) <= {"event_type", "event_payload", "entities"}:
        raise SlackRefused("invalid_metadata_schema")
    if len(json.dumps(metadata, ensure_ascii=False).encode()) > _METADATA_BYTES:
        raise SlackRefused("metadata_too_large")
    return metadata


def persona_of(call: Call) -> PostIdentity | None:
    """Return the persona of a message. Only apps can set one; a person's is ignored."""
    persona = PostIdentity(call.args.text("username"), call.args.text("icon_emoji"), call.args.text("icon_url"))
    return persona if isinstance(call.member, Bot) and persona != PostIdentity() else None


def _body(call: Call, longest: int) -> Body:
    args = call.args
    text, markdown = args.text("text") or "", args.text("markdown_text") or ""
    blocks = args.objects("blocks", "invalid_blocks_format")
    attachments = args.objects("attachments", "invalid_attachments")
    if len(attachments) > _ATTACHMENTS:
        raise SlackRefused("too_many_attachments")
    for number, attachment in enumerate(attachments):
        check_blocks(attachment.get("blocks") or (), f"/attachments/{number}/blocks")
    if args.has("parse"):
        args.one_of("parse", ("full", "none"))
    if markdown and (text or blocks):
        raise SlackRefused("markdown_text_conflict")
    if not (text.strip() or markdown.strip() or blocks or attachments):
        raise SlackRefused("no_text")
    check_text(text, longest)
    check_text(markdown, MARKDOWN_TEXT)
    check_blocks(blocks)
    return Body(text or markdown, with_ids(blocks), attachments, metadata_of(call))


def _item(call: Call) -> tuple[str, str]:
    """Return the channel and the ts of the message that a reaction is about."""
    if not call.args.has("channel") and not call.args.has("timestamp"):
        raise SlackRefused("no_item_specified")
    call.args.need("channel", "timestamp")
    channel, ts = call.channel_named(), call.args.required("timestamp")
    if not is_timestamp(ts):
        raise SlackRefused("bad_timestamp")
    return channel, ts
