"""Slack's ``conversations.*``, ``users.*``, ``bots.*`` and ``auth.*`` methods."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from local_slack.blocks.slack_json import bot_json, channel_json, email_of, message_json, user_json
from local_slack.methods.calls import cursor_to, invalid, may_see, method, next_of, page_of
from local_slack.methods.rate_limits import SPECIAL, TIER_2, TIER_3, TIER_4
from local_slack.workspace.errors import SlackRefused
from local_slack.workspace.messages import is_timestamp, order
from local_slack.workspace.people import Bot, Person

if TYPE_CHECKING:
    from collections.abc import Sequence

    from local_slack.json_limits import Json
    from local_slack.methods.calls import Call
    from local_slack.workspace.messages import Channel, WorkspaceMessage
    from local_slack.workspace.people import Member

_LONGEST_NOTE = 250
_KINDS = {"public_channel", "private_channel", "mpim", "im"}


@method("conversations.list", scope="*:read", limits=TIER_2)
def conversations(call: Call) -> Json:
    """List the public channels, and those of ``types`` that the caller is in."""
    return _channels_page(call, [c for c in call.workspace.channels if may_see(call.member, c)])


@method("users.conversations", scope="*:read", limits=TIER_3)
def users_conversations(call: Call) -> Json:
    member = _member(call, call.args.text("user") or call.member.id)
    joined = [c for c in call.workspace.channels if member.id in c.members and may_see(call.member, c)]
    return _channels_page(call, joined)


@method("conversations.info", scope="*:read", limits=TIER_3)
def info(call: Call) -> Json:
    channel = call.channel()
    last_read = call.workspace.lists.last_read.get((channel.id, call.member.id))
    return {"channel": channel_json(channel, call.member) | ({"last_read": last_read} if last_read else {})}


@method("conversations.members", scope="*:read", limits=TIER_4)
def members(call: Call) -> Json:
    page, cursor = page_of(call.channel().members, call.args, 100)
    return {"members": list(page), "response_metadata": {"next_cursor": cursor}}


@method("conversations.open", scope="im:write", limits=TIER_3)
def open_(call: Call) -> Json:
    """Open the direct message with one user, or find the one with the id ``channel``."""
    if call.args.has("channel"):
        channel, known = call.channel(), True
        if not channel.is_im:
            raise SlackRefused("channel_not_found")
    else:
        channel, known = call.workspace.open_im(call.member, _other(call))
    body = channel_json(channel, call.member) if call.args.flag("return_im") else {"id": channel.id}
    return {"channel": body} | ({"no_op": True, "already_open": True} if known else {})


@method("conversations.join", scope="channels:join", limits=TIER_3)
def join(call: Call) -> Json:
    channel = _unarchived(call)
    already = call.member.id in channel.members
    joined = channel_json(call.workspace.join(channel.id, call.member), call.member)
    return {"channel": joined} | ({"warning": "already_in_channel"} if already else {})


@method("conversations.invite", "channel", "users", scope="channels:manage", limits=TIER_3)
def invite(call: Call) -> Json:
    channel = call.joined()
    _unarchived(call)
    for user in call.args.required("users").split(","):
        invited = _member(call, user.strip())
        if invited.id in channel.members:
            raise SlackRefused("already_in_channel")
        call.workspace.join(channel.id, invited, inviter=call.member.id)
    return {"channel": channel_json(call.workspace.channel(channel.id), call.member)}


@method("conversations.leave", scope="channels:manage", limits=TIER_3)
def leave(call: Call) -> Json:
    channel = call.channel()
    if channel.is_im:
        raise SlackRefused("method_not_supported_for_channel_type")
    if call.member.id not in channel.members:
        return {"not_in_channel": True}
    call.workspace.leave(channel.id, call.member)
    return {}


@method("conversations.kick", "channel", "user", scope="channels:manage", limits=TIER_3)
def kick(call: Call) -> Json:
    channel, member = call.joined(), _member(call, call.args.required("user"))
    if member.id == call.member.id:
        raise SlackRefused("cant_kick_self")
    if channel.name == "general":
        raise SlackRefused("cant_kick_from_general")
    if member.id not in channel.members:
        raise SlackRefused("not_in_channel")
    call.workspace.leave(channel.id, member)
    return {"errors": {}}


@method("conversations.rename", "channel", "name", scope="channels:manage", limits=TIER_2)
def rename(call: Call) -> Json:
    channel = call.workspace.rename(call.joined().id, _new_name(call))
    return {"channel": channel_json(channel, call.member)}


@method("conversations.setTopic", "channel", "topic", scope="channels:manage", limits=TIER_2)
def set_topic(call: Call) -> Json:
    channel = call.workspace.describe(call.joined().id, call.member, topic=_note(call, "topic"))
    return {"channel": channel_json(channel, call.member)}


@method("conversations.setPurpose", "channel", "purpose", scope="channels:manage", limits=TIER_2)
def set_purpose(call: Call) -> Json:
    channel = call.workspace.describe(call.joined().id, call.member, purpose=_note(call, "purpose"))
    return {"channel": channel_json(channel, call.member), "purpose": channel.purpose.value}


@method("conversations.mark", "channel", "ts", scope="channels:manage", limits=TIER_3)
def mark(call: Call) -> Json:
    """Set the read cursor of the caller; ``conversations.info`` returns it as ``last_read``."""
    channel, ts = call.joined(), call.args.required("ts")
    if not is_timestamp(ts):
        raise SlackRefused("invalid_timestamp")
    call.workspace.lists.last_read[channel.id, call.member.id] = ts
    return {}


@method("conversations.archive", scope="channels:manage", limits=TIER_2)
def archive(call: Call) -> Json:
    if call.channel().is_archived:
        raise SlackRefused("already_archived")
    call.workspace.archive(call.joined().id)
    return {}


@method("conversations.create", scope="channels:manage", limits=TIER_2)
def create(call: Call) -> Json:
    created = call.workspace.create(_new_name(call), call.member, is_private=call.args.flag("is_private"))
    return {"channel": channel_json(created, call.member)}


@method("conversations.history", scope="*:history", limits=TIER_3)
def history(call: Call) -> Json:
    """Return the messages of a channel, newest first, without replies that are not broadcast."""
    shown = [m for m in call.workspace.messages(call.joined().id) if not m.is_reply or m.broadcast]
    return _messages_page(call, _within(call, shown)[::-1], 100) | {"pin_count": 0}


@method("conversations.replies", "channel", "ts", scope="*:history", limits=TIER_3)
def replies(call: Call) -> Json:
    """Return a thread, oldest first: the root, then its replies. The ts of a reply gives that reply alone."""
    channel, ts = call.joined(), call.args.required("ts")
    named = call.message(channel.id, ts, "thread_not_found")
    if named.is_reply:
        return _messages_page(call, [named], 1000)
    root, *below = call.workspace.thread(channel.id, ts)
    return _messages_page(call, [root, *_within(call, below)], 1000)


@method("auth.test", limits=SPECIAL)
def auth_test(call: Call) -> Json:
    team, member = call.workspace.directory.team, call.member
    answer = {
        "url": f"https://{team.domain}.slack.com/",
        "team": team.name,
        "user": member.name,
        "team_id": team.id,
        "user_id": member.id,
        "is_enterprise_install": False,
    }
    return answer | ({"bot_id": member.bot_id} if isinstance(member, Bot) else {})


@method("users.list", scope="users:read", limits=TIER_2)
def users(call: Call) -> Json:
    page, cursor = page_of(list(call.workspace.directory.members.values()), call.args, 999)
    listed = [_user_json(call, member) for member in page]
    return {"members": listed, "cache_ts": 0, "response_metadata": {"next_cursor": cursor}}


@method("users.info", scope="users:read", limits=TIER_4)
def user_info(call: Call) -> Json:
    return {"user": _user_json(call, _member(call, call.args.required("user")))}


@method("users.lookupByEmail", "email", scope="users:read.email", limits=TIER_3)
def lookup_by_email(call: Call) -> Json:
    """Find a person; ``ana`` has the address ``ana@local.example`` in the workspace with the domain ``local``."""
    directory, email = call.workspace.directory, call.args.required("email").lower()
    for person in directory.people:
        if email_of(person, directory.team) == email:
            return {"user": _user_json(call, person)}
    raise SlackRefused("users_not_found")


@method("users.profile.get", scope="users.profile:read", limits=TIER_4)
def profile(call: Call) -> Json:
    return {"profile": _user_json(call, _member(call, call.args.text("user") or call.member.id))["profile"]}


@method("bots.info", scope="users:read", limits=TIER_3)
def bot_info(call: Call) -> Json:
    directory, wanted = call.workspace.directory, call.args.text("bot")
    for bot in (directory.bot, *directory.apps):
        if wanted in (None, bot.bot_id):
            return {"bot": bot_json(bot)}
    raise SlackRefused("bot_not_found")


def _user_json(call: Call, member: Member) -> Json:
    """Return a user as the caller sees it: an app sees addresses only with the scope for them."""
    shows_email = isinstance(call.member, Person) or "users:read.email" in call.app.scopes
    return user_json(member, call.workspace.directory.team, email=shows_email)


def _new_name(call: Call) -> str:
    name = call.args.required("name")
    if not re.fullmatch(r"[a-z0-9][a-z0-9_-]{0,79}", name):
        raise SlackRefused("invalid_name_specials" if name else "invalid_name_required")
    return name


def _note(call: Call, name: str) -> str:
    text = call.args.required(name)
    if len(text) > _LONGEST_NOTE:
        raise SlackRefused("too_long")
    return text


def _unarchived(call: Call) -> Channel:
    channel = call.channel()
    if channel.is_archived:
        raise SlackRefused("is_archived")
    return channel


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


def _channels_page(call: Call, channels: list[Channel]) -> Json:
    """Return a page of the channels that have one of the ``types``."""
    kinds = {kind.strip() for kind in (call.args.text("types") or "public_channel").split(",")}
    if not kinds <= _KINDS:
        raise SlackRefused("invalid_types")
    shown = [channel for channel in channels if _kind_of(channel) in kinds]
    page, cursor = page_of(shown, call.args, 100)
    listed = [channel_json(channel, call.member) for channel in page]
    return {"channels": listed, "response_metadata": {"next_cursor": cursor}}


def _within(call: Call, messages: Sequence[WorkspaceMessage]) -> list[WorkspaceMessage]:
    """Select the messages between ``oldest`` and ``latest``, the bounds only if ``inclusive``."""
    oldest, latest = _bound(call, "oldest"), _bound(call, "latest")
    inclusive = call.args.flag("inclusive")

    def is_within(at: tuple[int, int]) -> bool:
        after = oldest is None or at > oldest or (inclusive and at == oldest)
        return after and (latest is None or at < latest or (inclusive and at == latest))

    return [message for message in messages if is_within(order(message.ts))]


def _bound(call: Call, name: str) -> tuple[int, int] | None:
    ts = call.args.text(name)
    if not ts or ts == "now":
        return None
    if not is_timestamp(ts):
        raise SlackRefused(f"invalid_ts_{name}")
    return order(ts)


def _messages_page(call: Call, messages: Sequence[WorkspaceMessage], default_limit: int) -> Json:
    start = _start(messages, next_of(call.args))
    end = start + call.args.limit(default_limit)
    cursor = cursor_to(messages[end].ts) if end < len(messages) else ""
    team, metadata = call.workspace.directory.team, call.args.flag("include_all_metadata")
    rich_text = isinstance(call.member, Bot)  # as in Slack; a person's page formats the text itself
    page = [message_json(m, team, metadata=metadata, rich_text=rich_text) for m in messages[start:end]]
    return {"messages": page, "has_more": bool(cursor), "response_metadata": {"next_cursor": cursor}}


def _start(messages: Sequence[WorkspaceMessage], ts: str | None) -> int:
    """Return the index at which a page begins. Deletions between two pages skip no message."""
    if ts is None:
        return 0
    if not is_timestamp(ts):
        raise SlackRefused("invalid_cursor")
    is_newest_first = len(messages) > 1 and order(messages[0].ts) > order(messages[-1].ts)
    return sum(order(m.ts) > order(ts) if is_newest_first else order(m.ts) < order(ts) for m in messages)


def _kind_of(channel: Channel) -> str:
    if channel.is_im:
        return "im"
    return "private_channel" if channel.is_private else "public_channel"
