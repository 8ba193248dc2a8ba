"""Convert changes of the workspace to Slack's event objects."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from local_slack.blocks.slack_json import message_json, other_member
from local_slack.workspace.changes import (
    BotPresence,
    Change,
    Changed,
    ChannelOpened,
    Deleted,
    Joined,
    Posted,
    Reacted,
    SessionChanged,
    Whispered,
)

if TYPE_CHECKING:
    from local_slack.blocks.slack_json import Json
    from local_slack.workspace.messages import Channel, Message
    from local_slack.workspace.sessions import Session
    from local_slack.workspace.workspace import Workspace

_MENTION_FIELDS = ("client_msg_id", "user", "text", "ts", "team", "blocks", "files", "thread_ts", "parent_user_id")


def event_of(change: Change, workspace: Workspace) -> Json:  # noqa: PLR0911 - one per kind of change
    """Return the event of a change."""
    body: Json
    match change:
        case Posted(message, root):
            return _posted(message, root, workspace)
        case Whispered(message):
            return _message(message, workspace) | _place(workspace.channel(message.channel), message.ts)
        case Changed(message, previous, at):
            body = {
                "message": _message(message, workspace),
                "previous_message": _message(previous, workspace),
            }
            return _hidden("message_changed", workspace.channel(message.channel), at, body)
        case Deleted(previous, at):
            body = {"deleted_ts": previous.ts, "previous_message": _message(previous, workspace)}
            return _hidden("message_deleted", workspace.channel(previous.channel), at, body)
        case Reacted(message, user, name, at, added):
            return _reacted(message, user, name, at, "reaction_added" if added else "reaction_removed")
        case ChannelOpened(channel, creator, at):
            return _opened(channel, creator, at)
        case Joined():
            return _joined(change, workspace.directory.team.id)
        case SessionChanged(session, at):
            return _session_changed(session, at)
        case BotPresence(online):
            return {"type": "bot_presence", "online": online}


def mention_of(change: Change, workspace: Workspace) -> Json | None:
    """Return the ``app_mention`` event of a post that mentions the bot; None in direct messages."""
    bot = workspace.directory.bot
    if not isinstance(change, Posted) or change.message.user == bot.id:
        return None
    message = change.message
    if f"<@{bot.id}>" not in message.text or workspace.channel(message.channel).is_im:
        return None
    wire = _message(message, workspace)
    fields = {name: wire[name] for name in _MENTION_FIELDS if name in wire}
    return {"type": "app_mention", **fields, "channel": message.channel, "event_ts": message.ts}


def channel_of(change: Change) -> str | None:
    """Return the id of the channel whose members receive the event; None: all members of the workspace."""
    match change:
        case Posted(message=message) | Whispered(message) | Changed(message=message):
            return message.channel
        case Deleted(previous=message) | Reacted(message=message):
            return message.channel
        case Joined(channel=channel):
            return channel.id
        case ChannelOpened(channel=channel):
            return channel.id if channel.is_im else None
        case SessionChanged(session=session):
            return session.channel
        case BotPresence():
            return None


def _message(message: Message, workspace: Workspace) -> Json:
    return message_json(message, workspace.directory.team)


def _place(channel: Channel, at: str) -> Json:
    return {"channel": channel.id, "event_ts": at, "channel_type": channel.type}


def _posted(message: Message, root: Message | None, workspace: Workspace) -> Json:
    event = _message(message, workspace) | _place(workspace.channel(message.channel), message.ts)
    if root is not None:
        event["root"] = _message(replace(root, reactions=()), workspace)
    return event


def _hidden(subtype: str, channel: Channel, at: str, body: Json) -> Json:
    return {"type": "message", "subtype": subtype, "hidden": True, "ts": at, **body, **_place(channel, at)}


def _reacted(message: Message, user: str, name: str, at: str, kind: str) -> Json:
    item = {"type": "message", "channel": message.channel, "ts": message.ts}
    return {
        "type": kind,
        "user": user,
        "reaction": name,
        "item": item,
        "item_user": message.user,
        "event_ts": at,
    }


def _opened(channel: Channel, creator: str, at: str) -> Json:
    if channel.is_im:
        im = {"id": channel.id, "is_im": True, "created": channel.created, "members": list(channel.members)}
        im["user"] = other_member(channel, creator)
        return {"type": "im_created", "user": creator, "channel": im, "event_ts": at}
    body = {"id": channel.id, "name": channel.name, "created": channel.created, "creator": creator}
    return {"type": "channel_created", "channel": body, "event_ts": at}


def _joined(joined: Joined, team_id: str) -> Json:
    event = {
        "type": "member_joined_channel",
        "user": joined.user,
        "channel": joined.channel.id,
        "channel_type": "C",
        "team": team_id,
        "event_ts": joined.at,
    }
    return event | ({"inviter": joined.inviter} if joined.inviter else {})


def _session_changed(session: Session, at: str) -> Json:
    """Return an event for the page only; Slack sends apps no such event."""
    return {
        "type": "agent_session_changed",
        "channel": session.channel,
        "thread_ts": session.thread_ts,
        "status": session.status,
        "title": session.title,
        "text": session.says,
        "event_ts": at,
    }
