"""Slack's ``pins.*``, ``bookmarks.*``, ``usergroups.*``, ``emoji.list`` and ``team.info``."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from local_slack.blocks.slack_json import message_json
from local_slack.methods.calls import invalid, method
from local_slack.methods.rate_limits import TIER_2, TIER_3
from local_slack.workspace.errors import SlackRefused
from local_slack.workspace.lists import UserGroup
from local_slack.workspace.messages import is_timestamp

if TYPE_CHECKING:
    from local_slack.json_limits import Json
    from local_slack.methods.calls import Call
    from local_slack.workspace.lists import Bookmark, Pin


@method("pins.add", "channel", "timestamp", scope="pins:write", limits=TIER_2)
def pin(call: Call) -> Json:
    channel, ts = _item(call)
    call.workspace.lists.pin(channel, ts, call.member.id)
    return {}


@method("pins.remove", "channel", "timestamp", scope="pins:write", limits=TIER_2)
def unpin(call: Call) -> Json:
    call.workspace.lists.unpin(*_item(call))
    return {}


@method("pins.list", "channel", scope="pins:read", limits=TIER_2)
def pins(call: Call) -> Json:
    """List the pinned messages of a channel, the last pin first."""
    channel = call.joined()
    listed = [each for each in call.workspace.lists.pins.values() if each.channel == channel.id]
    return {"items": [item for each in reversed(listed) if (item := _pin_json(call, each))]}


def _item(call: Call) -> tuple[str, str]:
    channel, ts = call.joined(), call.args.required("timestamp")
    if not is_timestamp(ts):
        raise SlackRefused("bad_timestamp")
    return channel.id, call.message(channel.id, ts).ts


def _pin_json(call: Call, pin: Pin) -> Json | None:
    message = call.workspace.message(pin.channel, pin.ts)
    if message is None:
        return None
    shown = message_json(message, call.workspace.directory.team) | {"pinned_to": [pin.channel]}
    return {
        "type": "message",
        "channel": pin.channel,
        "created": pin.created,
        "created_by": pin.user,
        "message": shown,
    }


@method("bookmarks.add", "channel_id", "title", "type", scope="bookmarks:write", limits=TIER_2)
def add_bookmark(call: Call) -> Json:
    """Add a link to the top of a channel; Slack has no other type."""
    channel, args = call.joined("channel_id"), call.args
    args.one_of("type", ("link",))
    link = args.text("link") or ""
    if not link:
        raise SlackRefused("invalid_link")
    added = call.workspace.lists.add_bookmark(
        channel.id, args.required("title"), link, args.text("emoji") or "", call.member.id
    )
    return {"bookmark": _bookmark_json(call, added)}


@method("bookmarks.edit", "channel_id", "bookmark_id", scope="bookmarks:write", limits=TIER_2)
def edit_bookmark(call: Call) -> Json:
    args, lists = call.args, call.workspace.lists
    edited = lists.edit_bookmark(_bookmark(call), args.text("title"), args.text("link"), args.text("emoji"))
    return {"bookmark": _bookmark_json(call, edited)}


@method("bookmarks.remove", "channel_id", "bookmark_id", scope="bookmarks:write", limits=TIER_2)
def remove_bookmark(call: Call) -> Json:
    del call.workspace.lists.bookmarks[_bookmark(call).id]
    return {}


@method("bookmarks.list", "channel_id", scope="bookmarks:read", limits=TIER_3)
def bookmarks(call: Call) -> Json:
    channel = call.joined("channel_id")
    listed = [each for each in call.workspace.lists.bookmarks.values() if each.channel == channel.id]
    return {"bookmarks": [_bookmark_json(call, each) for each in listed]}


def _bookmark(call: Call) -> Bookmark:
    return call.workspace.lists.bookmark(call.args.required("bookmark_id"), call.joined("channel_id").id)


def _bookmark_json(call: Call, bookmark: Bookmark) -> Json:
    return {
        "id": bookmark.id,
        "channel_id": bookmark.channel,
        "title": bookmark.title,
        "link": bookmark.link,
        "emoji": bookmark.emoji,
        "icon_url": None,
        "type": "link",
        "entity_id": None,
        "date_created": bookmark.created,
        "date_updated": bookmark.updated,
        "rank": bookmark.id,
        "last_updated_by_user_id": bookmark.user,
        "last_updated_by_team_id": call.workspace.directory.team.id,
        "shortcut_id": None,
        "app_id": None,
    }


@method("usergroups.create", "name", scope="usergroups:write", limits=TIER_2)
def create_user_group(call: Call) -> Json:
    args, groups = call.args, call.workspace.lists.user_groups
    name, handle = args.required("name"), args.text("handle") or ""
    for taken, value in (("name_already_exists", name), ("handle_already_exists", handle)):
        if value and any(value in (each.name, each.handle) for each in groups.values()):
            raise SlackRefused(taken)
    now, new_id = int(call.workspace.now()), call.workspace.lists.new_id("S")
    description = args.text("description") or ""
    group = groups[new_id] = UserGroup(new_id, name, handle, description, (), call.member.id, now, now)
    return {"usergroup": _user_group_json(call, group)}


@method("usergroups.list", scope="usergroups:read", limits=TIER_2)
def user_groups(call: Call) -> Json:
    """List the groups; with their members if ``include_users`` is set."""
    return {"usergroups": [_user_group_json(call, each) for each in call.workspace.lists.user_groups.values()]}


@method("usergroups.users.list", "usergroup", scope="usergroups:read", limits=TIER_2)
def user_group_users(call: Call) -> Json:
    return {"users": list(_user_group(call).users)}


@method("usergroups.users.update", "usergroup", "users", scope="usergroups:write", limits=TIER_2)
def update_user_group(call: Call) -> Json:
    users = call.args.texts("users")
    if not users:
        raise SlackRefused("no_users_provided")
    if not set(users) <= set(call.workspace.directory.members):
        raise SlackRefused("invalid_users")
    group = replace(_user_group(call), users=users, updated=int(call.workspace.now()))
    call.workspace.lists.user_groups[group.id] = group
    return {"usergroup": _user_group_json(call, group) | {"users": list(users)}}


def _user_group(call: Call) -> UserGroup:
    if group := call.workspace.lists.user_groups.get(call.args.required("usergroup")):
        return group
    raise SlackRefused("no_such_subteam")


def _user_group_json(call: Call, group: UserGroup) -> Json:
    users = {"users": list(group.users)} if call.args.flag("include_users") else {}
    return {
        "id": group.id,
        "team_id": call.workspace.directory.team.id,
        "is_usergroup": True,
        "name": group.name,
        "handle": group.handle,
        "description": group.description,
        "is_external": False,
        "date_create": group.created,
        "date_update": group.updated,
        "date_delete": 0,
        "auto_type": None,
        "created_by": group.creator,
        "updated_by": group.creator,
        "deleted_by": None,
        "prefs": {"channels": [], "groups": []},
        "user_count": len(group.users),
        **users,
    }


@method("emoji.list", scope="emoji:read", limits=TIER_2)
def emoji(call: Call) -> Json:
    return {"emoji": dict(call.workspace.lists.emoji), "cache_ts": f"{call.workspace.now():.6f}"}


@method("team.info", scope="team:read", limits=TIER_3)
def team_info(call: Call) -> Json:
    team = call.workspace.directory.team
    if call.args.text("team") not in (None, "", team.id):
        raise invalid(f"[ERROR] the token is for the workspace {team.id} [json-pointer:/team]")
    return {
        "team": {
            "id": team.id,
            "name": team.name,
            "url": f"https://{team.domain}.slack.com/",
            "domain": team.domain,
            "email_domain": "",
            "icon": {"image_default": True},
        }
    }
