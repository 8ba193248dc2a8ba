"""Convert the workspace's values to Slack's JSON."""

from __future__ import annotations

import re
import uuid
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from html import unescape
from typing import TYPE_CHECKING
from urllib.parse import quote
from zoneinfo import ZoneInfo

from local_slack.workspace.people import Bot, Person

if TYPE_CHECKING:
    from local_slack.json_limits import Json
    from local_slack.workspace.files import File
    from local_slack.workspace.messages import Channel, WorkspaceMessage
    from local_slack.workspace.people import Directory, Member, Team
    from local_slack.workspace.views import View

# A mention or a link in a text.
_MARKUP = re.compile(r"(<(?:[@#][A-Z0-9]+|(?:https?|mailto):[^|>]+)(?:\|[^>]*)?>)")
# Lines of a code snippet in its preview.
_PREVIEW_LINES = 10
VERIFICATION_TOKEN = "local-verification-token"  # noqa: S105 - not a secret


def message_json(message: WorkspaceMessage, team: Team, *, metadata: bool = False, rich_text: bool = False) -> Json:
    """Return a message as in the history, without unset fields; one with a persona has no ``user``, as in Slack.

    Only on request with its ``metadata``, and with its text as a block (``rich_text``) if it has no other blocks.
    """
    if message.tombstone:
        return {
            "type": "message",
            "subtype": "tombstone",
            "text": message.text,
            "user": message.user,
            "hidden": True,
            "ts": message.ts,
            "thread_ts": message.ts,
            "parent_user_id": message.parent_user,
            **_thread_json(message),
        }
    out: Json = {
        "type": "message",
        "subtype": _subtype(message),
        "client_msg_id": None
        if message.bot
        else str(uuid.uuid5(uuid.NAMESPACE_URL, f"{message.channel}/{message.ts}")),
        "user": None if message.persona else message.user,
        "text": message.text,
        "ts": message.ts,
        "team": team.id,
        "thread_ts": message.thread_ts,
        "parent_user_id": message.parent_user,
        "blocks": list(message.blocks) or (_rich_text(message) if rich_text else None),
        "attachments": list(message.body.attachments) or None,
        "files": [file_json(file) for file in message.files] or None,
        "is_ephemeral": True if message.only_for else None,
        "edited": {"user": message.edited.user, "ts": message.edited.ts} if message.edited else None,
        "reactions": [{"name": r.name, "users": list(r.users), "count": len(r.users)} for r in message.reactions]
        or None,
        "metadata": message.metadata if metadata else None,
        **_author_json(message, team),
        **_thread_json(message),
    }
    return {key: value for key, value in out.items() if value is not None}


def channel_json(channel: Channel, member: Member) -> Json:
    """Return a channel as ``member`` sees it; ``user`` of a direct message is the other member."""
    if channel.is_im:
        return {
            "id": channel.id,
            "created": channel.created,
            "is_im": True,
            "is_archived": False,
            "is_open": True,
            "is_org_shared": False,
            "user": other_member(channel, member.id),
        }
    return {
        "id": channel.id,
        "name": channel.name,
        "name_normalized": channel.name,
        "created": channel.created,
        "is_channel": not channel.is_private,
        "is_group": channel.is_private,
        "is_im": False,
        "is_mpim": False,
        "is_private": channel.is_private,
        "is_archived": channel.is_archived,
        "is_general": channel.name == "general",
        "is_member": member.id in channel.members,
        "topic": asdict(channel.topic),
        "purpose": asdict(channel.purpose),
        "num_members": len(channel.members),
    }


def other_member(channel: Channel, member_id: str) -> str:
    return next((user for user in channel.members if user != member_id), member_id)


def email_of(person: Person, team: Team) -> str:
    return f"{person.name}@{team.domain}.example"


def user_json(member: Member, team: Team, *, email: bool = False) -> Json:
    """Return a user, with the address of a person only if ``email`` is set."""
    is_bot, kind = isinstance(member, Bot), member.kind if isinstance(member, Person) else "member"
    zone = member.tz if isinstance(member, Person) else "America/Los_Angeles"  # Slack's, for bots
    offset = datetime.now(ZoneInfo(zone)).utcoffset() or timedelta()
    profile = {"real_name": member.real_name, "display_name": "" if is_bot else member.real_name}
    if isinstance(member, Bot):
        profile |= {"bot_id": member.bot_id, "api_app_id": member.app_id}
    elif email:
        profile["email"] = email_of(member, team)
    return {
        "id": member.id,
        "team_id": team.id if isinstance(member, Bot) else member.home(team),
        "name": member.name,
        "real_name": member.real_name,
        "color": member.color,
        "deleted": False,
        "is_bot": is_bot,
        "is_app_user": False,
        "is_restricted": kind in ("guest", "single_channel_guest"),
        "is_ultra_restricted": kind == "single_channel_guest",
        "is_stranger": kind == "external",
        "tz": zone,
        "tz_label": zone.rpartition("/")[2].replace("_", " "),
        "tz_offset": int(offset.total_seconds()),
        "updated": 0,
        "profile": profile,
    }


def bot_json(bot: Bot) -> Json:
    return {
        "id": bot.bot_id,
        "app_id": bot.app_id,
        "user_id": bot.id,
        "name": bot.real_name,
        "deleted": False,
        "updated": 0,
        "icons": {},
    }


def view_json(view: View, directory: Directory, values: Json | None = None) -> Json:
    """Return a view with the ``values`` that its person has given."""
    return {
        "id": view.id,
        "team_id": directory.team.id,
        "app_id": directory.bot.app_id,
        "bot_id": directory.bot.bot_id,
        "state": {"values": values or {}},
        "hash": view.hash,
        "root_view_id": view.root,
        "previous_view_id": view.previous,
        "private_metadata": "",
        "callback_id": "",
        "external_id": "",
        **view.content,
    }


def interaction_json(kind: str, person: Person, directory: Directory) -> Json:
    """Return the fields that all payloads of interactions have in common."""
    team = directory.team
    return {
        "type": kind,
        "user": {"id": person.id, "username": person.name, "name": person.name, "team_id": team.id},
        "api_app_id": directory.bot.app_id,
        "token": VERIFICATION_TOKEN,
        "team": {"id": team.id, "domain": team.domain},
        "enterprise": None,
        "is_enterprise_install": False,
    }


def permalink(team: Team, message: WorkspaceMessage) -> str:
    """Return the address of a message; that of a reply names its thread."""
    link = f"https://{team.domain}.slack.com/archives/{message.channel}/p{message.ts.replace('.', '')}"
    return f"{link}?thread_ts={message.thread_ts}&cid={message.channel}" if message.is_reply else link


def share_json(message: WorkspaceMessage, channel: Channel, directory: Directory) -> Json:
    """Return the attachment with which a forward shows a message of ``channel``."""
    team, author = directory.team, directory.members.get(message.user)
    name = message.username or (author.real_name if author else "")
    link = permalink(team, message)
    inner = {"blocks": list(message.blocks) or _rich_text(message), "attachments": list(message.body.attachments)}
    place = "Direct Message" if channel.is_im else f"#{channel.name}"
    when = datetime.fromtimestamp(float(message.ts), UTC)
    shared: Json = {
        "id": 1,
        "is_msg_unfurl": True,
        "is_share": True,
        "from_url": link,
        "original_url": link,
        "fallback": f"[{when:%B %d, %Y %I:%M %p}] {name}: {message.text}",
        "ts": message.ts,
        "author_id": message.user,
        "author_name": name,
        "author_subname": name,
        "author_link": f"https://{team.domain}.slack.com/team/{message.user}",
        "channel_id": message.channel,
        "channel_team": team.id,
        "text": message.text,
        "mrkdwn_in": ["text"],
        "message_blocks": [
            {
                "team": team.id,
                "channel": message.channel,
                "ts": message.ts,
                "message": {key: value for key, value in inner.items() if value},
            }
        ],
        "files": [file_json(file) for file in message.files],
        "footer": f"From a thread in {place}" if message.is_reply else place if channel.is_im else f"Posted in {place}",
    }
    return {key: value for key, value in shared.items() if value != []}


def file_json(file: File) -> Json:
    """Return a file as in messages; a deleted file has only its id and mode."""
    if file.deleted:
        return {"id": file.id, "mode": "tombstone"}
    filetype, mimetype, pretty_type = file.kind
    private = f"{file.base_url}files-pri/{file.team}-{file.id}"
    name = quote(file.name.lower(), safe="")
    return {
        "id": file.id,
        "created": file.created,
        "timestamp": file.created,
        "name": file.name,
        "title": file.title,
        "mimetype": mimetype,
        "filetype": filetype,
        "pretty_type": pretty_type,
        "user": file.user,
        "user_team": file.team,
        "size": file.size,
        **_snippet_json(file),
        **({"alt_txt": file.alt} if file.alt else {}),
        "is_external": False,
        "is_public": True,
        "file_access": "visible",
        "url_private": f"{private}/{name}",
        "url_private_download": f"{private}/download/{name}",
        "permalink": f"{file.base_url}files/{file.user}/{file.id}/{name}",
    }


def _snippet_json(file: File) -> Json:
    """Return the fields in which a code snippet differs from other files: its mode, and the first lines of its text."""
    if not file.snippet_type or file.content is None:
        return {"mode": "hosted", "editable": False}
    lines = file.content.decode(errors="replace").splitlines()
    more = max(len(lines) - _PREVIEW_LINES, 0)
    preview = {"preview": "\n".join(lines[:_PREVIEW_LINES]), "preview_is_truncated": more > 0}
    return {"mode": "snippet", "editable": True, "lines": len(lines), "lines_more": more, **preview}


def _rich_text(message: WorkspaceMessage) -> list[Json] | None:
    """Return the text as Slack's own clients and servers store it: one section with text, mentions and links."""
    if not message.text:
        return None
    elements: list[Json] = []
    for part in _MARKUP.split(message.text):
        match _MARKUP.fullmatch(part), part[:2], part[1:-1].partition("|"):
            case None, _, _:
                elements += [{"type": "text", "text": unescape(part)}] if part else []
            case _, "<@", (user, _, _):
                elements.append({"type": "user", "user_id": user[1:]})
            case _, "<#", (channel, _, _):
                elements.append({"type": "channel", "channel_id": channel[1:]})
            case _, _, (url, _, label):
                elements.append({"type": "link", "url": unescape(url), **({"text": unescape(label)} if label else {})})
    section = {"type": "rich_text_section", "elements": elements}
    return [{"type": "rich_text", "block_id": f"text{message.ts}", "elements": [section]}]


def _subtype(message: WorkspaceMessage) -> str | None:
    if message.subtype:
        return message.subtype
    if message.only_for:
        return "ephemeral"
    if message.broadcast:
        return "thread_broadcast"
    if message.files:
        return "file_share"
    return "bot_message" if message.persona else None


def _author_json(message: WorkspaceMessage, team: Team) -> Json:
    if not message.bot:
        return {}
    bot = message.bot
    out: Json = {"bot_id": bot.bot_id, "app_id": bot.app_id}
    persona = message.persona
    if persona is None:
        profile = {"id": bot.bot_id, "app_id": bot.app_id, "user_id": bot.id, "name": bot.real_name}
        return out | {"bot_profile": {**profile, "deleted": False, "updated": 0, "team_id": team.id}}
    if persona.username:
        out["username"] = persona.username
    icons = {"emoji": persona.icon_emoji, "image_48": persona.icon_url}
    return out | {"icons": {name: icon for name, icon in icons.items() if icon}}


def _thread_json(message: WorkspaceMessage) -> Json:
    if message.thread is None:
        return {}
    return {
        "reply_count": message.thread.reply_count,
        "reply_users_count": len(message.thread.reply_users),
        "reply_users": list(message.thread.reply_users),
        "latest_reply": message.thread.latest_reply,
        "is_locked": False,
        "subscribed": False,
    }
