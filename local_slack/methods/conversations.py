"""Slack's ``conversations.*`` methods that list, open and join."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from local_slack.blocks.slack_json import channel_json
from local_slack.methods.arguments import invalid
from local_slack.methods.calls import page_of
from local_slack.workspace.errors import SlackRefused
from local_slack.workspace.people import Bot

if TYPE_CHECKING:
    from local_slack.methods.calls import Call, Json, Methods
    from local_slack.workspace.messages import Channel
    from local_slack.workspace.people import Member

_KINDS = {"public_channel", "private_channel", "mpim", "im"}


def conversations(call: Call) -> Json:
    """List the public channels, and the caller's direct messages if ``types`` includes them."""
    kinds = _kinds(call)
    shown = [c for c in call.workspace.channels if _kind(c) in kinds and may_see(call.member, c)]
    return _channels_page(call, shown)


def users_conversations(call: Call) -> Json:
    kinds = _kinds(call)
    member = _member(call, call.args.text("user") or call.member.id)
    shown = [
        c for c in call.workspace.channels if _kind(c) in kinds and member.id in c.members and may_see(call.member, c)
    ]
    return _channels_page(call, shown)


def info(call: Call) -> Json:
    return {"channel": channel_json(visible_channel(call), call.member)}


def members(call: Call) -> Json:
    channel = visible_channel(call)
    page, cursor = page_of(channel.members, call.args, 100)
    return {"members": list(page), "response_metadata": {"next_cursor": cursor}}


def open_(call: Call) -> Json:
    """Open the direct message with one user, or find the one with the id ``channel``."""
    if call.args.has("channel"):
        channel, known = visible_channel(call), True
        if not channel.is_im:
            raise SlackRefused("channel_not_found")
    else:
        channel, known = call.workspace.open_im(call.member, _other(call))
    wire = channel_json(channel, call.member)
    body = wire if call.args.flag("return_im") else {"id": channel.id}
    return {"channel": body} | ({"no_op": True, "already_open": True} if known else {})


def join(call: Call) -> Json:
    channel = visible_channel(call)
    _open_one(channel)
    already = call.member.id in channel.members
    wire = channel_json(call.workspace.join(channel.id, call.member), call.member)
    return {"channel": wire} | ({"warning": "already_in_channel"} if already else {})


def invite(call: Call) -> Json:
    call.args.need("channel", "users")
    channel = visible_channel(call)
    if call.member.id not in channel.members:
        raise SlackRefused("not_in_channel")
    _open_one(channel)
    for user in call.args.required("users").split(","):
        invited = _member(call, user.strip())
        if invited.id in channel.members:
            raise SlackRefused("already_in_channel")
        call.workspace.join(channel.id, invited, inviter=call.member.id)
    return {"channel": channel_json(call.workspace.channel(channel.id), call.member)}


def leave(call: Call) -> Json:
    channel = visible_channel(call)
    if channel.is_im:
        raise SlackRefused("method_not_supported_for_channel_type")
    if call.member.id not in channel.members:
        return {"not_in_channel": True}
    call.workspace.leave(channel.id, call.member)
    return {}


def _open_one(channel: Channel) -> None:
    if channel.is_archived:
        raise SlackRefused("is_archived")


def archive(call: Call) -> Json:
    channel = visible_channel(call)
    if channel.is_archived:
        raise SlackRefused("already_archived")
    if call.member.id not in channel.members:
        raise SlackRefused("not_in_channel")
    call.workspace.archive(channel.id)
    return {}


def create(call: Call) -> Json:
    name = call.args.required("name")
    if not re.fullmatch(r"[a-z0-9][a-z0-9_-]{0,79}", name):
        raise SlackRefused("invalid_name_specials" if name else "invalid_name_required")
    return {"channel": channel_json(call.workspace.create(name, call.member), call.member)}


def visible_channel(call: Call) -> Channel:
    """Return the channel with the given id; other people's direct messages are not found."""
    return call.workspace.channel(visible_channel_id(call, call.args.required("channel")))


def visible_channel_id(call: Call, channel_id: str) -> str:
    """Return the id if it is a channel that the caller can see; a name is not accepted."""
    channel = call.workspace.channel(channel_id)
    if channel.id != channel_id or not may_see(call.member, channel):
        raise SlackRefused("channel_not_found")
    return channel_id


def channel_named(call: Call) -> str:
    """Return the channel of a call. Apps must give its id; people may give its name."""
    return visible_channel(call).id if isinstance(call.member, Bot) else call.args.required("channel")


def may_see(member: Member, channel: Channel) -> bool:
    return not channel.is_im or member.id in channel.members


def _channels_page(call: Call, channels: list[Channel]) -> Json:
    page, cursor = page_of(channels, call.args, 100)
    wire = [channel_json(channel, call.member) for channel in page]
    return {"channels": wire, "response_metadata": {"next_cursor": cursor}}


def _kinds(call: Call) -> set[str]:
    kinds = {kind.strip() for kind in (call.args.text("types") or "public_channel").split(",")}
    if not kinds <= _KINDS:
        raise SlackRefused("invalid_types")
    return kinds


def _kind(channel: Channel) -> str:
    return "im" if channel.is_im else "public_channel"


def _other(call: Call) -> Member:
    users = [user for user in (call.args.text("users") or "").split(",") if user]
    if not users:
        raise SlackRefused("users_list_not_supplied")
    if len(users) > 1:
        raise invalid("[ERROR] group direct messages are not part of the local Slack")
    return _member(call, users[0])


def _member(call: Call, user_id: str) -> Member:
    member = call.workspace.directory.members.get(user_id)
    if member is None:
        raise SlackRefused("user_not_found")
    return member


METHODS: Methods = {
    "conversations.list": conversations,
    "conversations.info": info,
    "conversations.members": members,
    "conversations.open": open_,
    "conversations.join": join,
    "conversations.invite": invite,
    "conversations.leave": leave,
    "conversations.archive": archive,
    "conversations.create": create,
    "users.conversations": users_conversations,
}
