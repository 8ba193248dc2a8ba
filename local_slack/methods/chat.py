"""Slack's ``chat.*`` and ``reactions.*`` methods, except streams."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
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
from local_slack.blocks.slack_json import message_json, permalink
from local_slack.methods.calls import may_see, method, page_of
from local_slack.methods.rate_limits import SPECIAL, TIER_2, TIER_3, TIER_4, PerChannel, PerMinute
from local_slack.workspace.errors import SlackRefused
from local_slack.workspace.lists import ScheduledMessage
from local_slack.workspace.messages import Body, PostIdentity, is_timestamp
from local_slack.workspace.people import Bot

if TYPE_CHECKING:
    from local_slack.json_limits import Json
    from local_slack.methods.calls import Call

_ATTACHMENTS = 100
_NO_PREVIEW = "[no preview available]"
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
    if session and call.member == call.workspace.directory.bot:
        call.workspace.keep_session(session.silent())
    answer = message_json(message, call.workspace.directory.team, metadata=True)
    return {"channel": message.channel, "ts": message.ts, "message": answer}


@method("chat.scheduleMessage", "channel", "post_at", scope="chat:write", limits=TIER_3)
def schedule(call: Call) -> Json:
    """Post a message at ``post_at``, in seconds since the epoch. A message that is refused then is dropped."""
    workspace, member, lists = call.workspace, call.member, call.workspace.lists
    channel, post_at = call.joined(), call.args.integer("post_at")
    body, persona = _body(call, TEXT_OF_A_POST), persona_of(call)
    thread_ts, broadcast = call.args.thread_ts(), call.args.flag("reply_broadcast")
    workspace.check_post(channel.id, member, thread_ts)
    lists.check_time(channel.id, post_at)

    def post() -> None:
        del lists.scheduled[new_id]
        with suppress(SlackRefused):
            workspace.post(channel.id, member, body, thread_ts=thread_ts, broadcast=broadcast, persona=persona)

    now, new_id = workspace.now(), lists.new_id("Q")
    timer = asyncio.get_running_loop().call_later(post_at - now, post)
    lists.scheduled[new_id] = ScheduledMessage(new_id, channel.id, member.id, post_at, int(now), body, timer)
    shown: Json = {"text": body.text, "blocks": list(body.blocks), "user": member.id, "type": "delayed_message"}
    return {"channel": channel.id, "scheduled_message_id": new_id, "post_at": post_at, "message": shown}


@method("chat.deleteScheduledMessage", "channel", "scheduled_message_id", scope="chat:write", limits=TIER_3)
def delete_scheduled(call: Call) -> Json:
    scheduled_id = call.args.required("scheduled_message_id")
    call.workspace.lists.unschedule(scheduled_id, call.channel().id, call.member.id)
    return {}


@method("chat.scheduledMessages.list", limits=TIER_3)
def scheduled_messages(call: Call) -> Json:
    """List the caller's messages that are not posted yet, the next one first."""
    channel = call.channel().id if call.args.text("channel") else None
    bounds = [call.args.integer(name) if call.args.text(name) else None for name in ("oldest", "latest")]
    found = [
        each
        for each in call.workspace.lists.scheduled.values()
        if each.user == call.member.id
        and channel in (None, each.channel)
        and (bounds[0] is None or each.post_at >= bounds[0])
        and (bounds[1] is None or each.post_at <= bounds[1])
    ]
    page, cursor = page_of(sorted(found, key=lambda each: each.post_at), call.args, 100)
    listed = [
        {
            "id": each.id,
            "channel_id": each.channel,
            "post_at": each.post_at,
            "date_created": each.created,
            "text": each.body.text,
        }
        for each in page
    ]
    return {"scheduled_messages": listed, "response_metadata": {"next_cursor": cursor}}


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
    answer = message_json(message, call.workspace.directory.team, metadata=True)
    return {"channel": message.channel, "ts": ts, "text": message.text, "message": answer}


@method("chat.delete", "channel", "ts", scope="chat:write", limits=TIER_3)
def delete(call: Call) -> Json:
    channel, ts = call.channel_named(), call.args.required("ts")
    call.workspace.delete(channel, ts, call.member)
    return {"channel": call.workspace.channel(channel).id, "ts": ts}


@method("chat.getPermalink", "channel", "message_ts", limits=SPECIAL)
def get_permalink(call: Call) -> Json:
    channel, ts = call.channel(), call.args.required("message_ts")
    message = call.message(channel.id, ts)
    return {"channel": channel.id, "permalink": permalink(call.workspace.directory.team, message)}


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


@method("reactions.list", scope="reactions:read", limits=TIER_2)
def reactions(call: Call) -> Json:
    """List the messages with a reaction by the user, by default the caller, the newest first."""
    user, team = call.args.text("user") or call.member.id, call.workspace.directory.team
    items: list[Json] = [
        {"type": "message", "channel": channel.id, "message": message_json(message, team)}
        for channel in call.workspace.channels
        if may_see(call.member, channel)
        for message in call.workspace.messages(channel.id)
        if any(user in reaction.users for reaction in message.reactions)
    ]
    items.sort(key=lambda item: float(item["message"]["ts"]), reverse=True)
    page, cursor = page_of(items, call.args, 100)
    return {"items": list(page), "response_metadata": {"next_cursor": cursor}}


def metadata_of(call: Call) -> Json | None:
    metadata = call.args.object("metadata", "invalid_metadata_format")
    if not metadata:
        return None
    if not isinstance(call.member, Bot):
        raise SlackRefused("metadata_must_be_sent_from_app")
    entities = metadata.get("entities", [])
    if not isinstance(entities, list) or not all(isinstance(each, dict) for each in entities):
        raise SlackRefused("invalid_metadata_format")
    # Work objects need no event; an event may have no payload.
    has_event = isinstance(metadata.get("event_type"), str)
    has_payload = isinstance(metadata.get("event_payload"), dict | None)
    if not has_payload or not (has_event or (entities and "event_type" not in metadata)):
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
    numbered = ({"id": number, "fallback": _NO_PREVIEW, **each} for number, each in enumerate(attachments, 1))
    return Body(text or markdown, with_ids(blocks), tuple(numbered), metadata_of(call))


def _item(call: Call) -> tuple[str, str]:
    """Return the channel and the ts of the message that a reaction is about."""
    if not call.args.has("channel") and not call.args.has("timestamp"):
        raise SlackRefused("no_item_specified")
    call.args.need("channel", "timestamp")
    channel, ts = call.channel_named(), call.args.required("timestamp")
    if not is_timestamp(ts):
        raise SlackRefused("bad_timestamp")
    return channel, ts
