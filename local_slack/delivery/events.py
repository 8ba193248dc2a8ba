"""Slack's event objects for the changes of a workspace, and the app's subscription to them."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING

from local_slack.blocks.slack_json import VERIFICATION_TOKEN, message_json, other_member, view_json
from local_slack.delivery.delivery import Envelope
from local_slack.workspace.errors import SlackRefused
from local_slack.workspace.messages import (
    BotPresence,
    Change,
    Changed,
    ChannelOpened,
    Deleted,
    Joined,
    Left,
    Posted,
    Reacted,
    SessionChanged,
    ViewsChanged,
    Whispered,
)
from local_slack.workspace.people import Person

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping
    from typing import Any

    from local_slack.delivery.delivery import Delivery
    from local_slack.delivery.recorder import Recorder
    from local_slack.json_limits import Json
    from local_slack.workspace.agents import AgentSession
    from local_slack.workspace.installations import Installations
    from local_slack.workspace.messages import WorkspaceMessage
    from local_slack.workspace.people import Member
    from local_slack.workspace.workspace import Workspace

EVENTS = (
    "message",
    "app_mention",
    "reaction_added",
    "reaction_removed",
    "agent_session_stopped",
    "app_home_opened",
    "app_context_changed",
    "assistant_thread_started",
    "assistant_thread_context_changed",
    "member_joined_channel",
)

_MENTION_FIELDS = (
    *(
        "client_msg_id",
        "user",
        "text",
        "ts",
        "team",
        "user_team",
        "blocks",
        "attachments",
        "files",
        "thread_ts",
        "parent_user_id",
        "edited",
    ),
    *("bot_id", "app_id", "bot_profile", "username"),
)


def event_of(change: Change, workspace: Workspace) -> Json:  # noqa: C901, PLR0911 - one per kind of change
    """Return the event of a change."""
    body: Json
    match change:
        case Posted(message, root):
            event = _message(message, workspace) | _place(message.channel, message.ts, workspace)
            return event | ({"root": _message(replace(root, reactions=()), workspace)} if root else {})
        case Whispered(message):
            return _message(message, workspace) | _place(message.channel, message.ts, workspace)
        case Changed(message, previous, at):
            body = {"message": _message(message, workspace), "previous_message": _message(previous, workspace)}
            return _hidden("message_changed", at, body) | _place(message.channel, at, workspace)
        case Deleted(previous, at):
            body = {"deleted_ts": previous.ts, "previous_message": _message(previous, workspace)}
            return _hidden("message_deleted", at, body) | _place(previous.channel, at, workspace)
        case Reacted(message, user, name, at, added):
            item = {"type": "message", "channel": message.channel, "ts": message.ts}
            kind = "reaction_added" if added else "reaction_removed"
            author = {} if message.persona else {"item_user": message.user}
            return {"type": kind, "user": user, "reaction": name, "item": item, **author, "event_ts": at}
        case ChannelOpened(channel, creator, at):
            body = {"id": channel.id, "created": channel.created}
            if channel.is_im:
                body |= {"is_im": True, "members": list(channel.members), "user": other_member(channel, creator)}
                return {"type": "im_created", "user": creator, "channel": body, "event_ts": at}
            body |= {"name": channel.name, "creator": creator}
            return {"type": "channel_created", "channel": body, "event_ts": at}
        case Joined(channel, user, at, inviter):
            event = {"type": "member_joined_channel", "user": user, "channel": channel.id, "channel_type": "C"}
            event |= {"team": workspace.directory.team.id, "event_ts": at}
            return event | ({"inviter": inviter} if inviter else {})
        case Left(channel, user, at):
            event = {"type": "member_left_channel", "user": user, "channel": channel.id, "channel_type": "C"}
            return event | {"team": workspace.directory.team.id, "event_ts": at}
        case SessionChanged(session, at):
            return {"type": "agent_session_changed", **session_json(session), "event_ts": at}
        case BotPresence(online):
            return {"type": "bot_presence", "online": online}
        case ViewsChanged(user):
            return views_event(user, workspace)


def session_json(session: AgentSession) -> Json:
    """Return an agent session for the page; Slack sends apps no such event."""
    return {
        "channel": session.channel,
        "thread_ts": session.thread_ts,
        "status": session.status,
        "title": session.title,
        "text": session.says,
        "prompts": [{"title": title, "message": message} for title, message in session.prompts],
    }


def views_event(user: str, workspace: Workspace) -> Json:
    """Return the Home tab and the modal of a person for the page, each or None; apps get no such event."""
    views, directory = workspace.views, workspace.directory
    shown = {"home": views.home(user), "modal": views.modal(user)}
    return {"type": "views_changed", **{name: view and view_json(view, directory) for name, view in shown.items()}}


def mention_of(change: Change, workspace: Workspace) -> Json | None:
    """Return the ``app_mention`` event of a post that mentions the bot, or of its edit; None in direct messages."""
    bot = workspace.directory.bot
    if not isinstance(change, Posted | Changed) or change.message.user == bot.id:
        return None
    message = change.message
    if isinstance(change, Changed) and message.edited is None:
        return None
    if f"<@{bot.id}>" not in message.text or workspace.channel(message.channel).is_im:
        return None
    posted = _message(message, workspace)
    fields = {name: posted[name] for name in _MENTION_FIELDS if name in posted}
    return {"type": "app_mention", **fields, "channel": message.channel, "event_ts": message.ts}


def sees(member: Member, change: Change, workspace: Workspace) -> bool:
    """Return whether a member receives the event of this change."""
    match change:
        case ViewsChanged(user):
            return user == member.id
        case Whispered(message) | Changed(message=message) | Deleted(previous=message) if message.only_for:
            return message.only_for == member.id
    channel = _channel_of(change)
    return channel is None or member.id in workspace.channel(channel).members


def _channel_of(change: Change) -> str | None:
    """Return the id of the channel whose members receive the event; None: all members of the workspace."""
    match change:
        case Posted(message=message) | Whispered(message) | Changed(message=message):
            return message.channel
        case Deleted(previous=message) | Reacted(message=message):
            return message.channel
        case Joined(channel=channel) | Left(channel=channel):
            return channel.id
        case ChannelOpened(channel=channel):
            return channel.id if channel.is_im else None
        case SessionChanged(session=session):
            return session.channel
        case BotPresence() | ViewsChanged():
            return None


def _message(message: WorkspaceMessage, workspace: Workspace) -> Json:
    team, author = workspace.directory.team, workspace.directory.members.get(message.user)
    home = {"user_team": author.home(team)} if isinstance(author, Person) and author.kind == "external" else {}
    return message_json(message, team, metadata=True) | home


def _place(channel: str, at: str, workspace: Workspace) -> Json:
    place = workspace.channel(channel)
    kind = "im" if place.is_im else "group" if place.is_private else "channel"
    return {"channel": channel, "event_ts": at, "channel_type": kind}


def _hidden(subtype: str, at: str, body: Json) -> Json:
    return {"type": "message", "subtype": subtype, "hidden": True, "ts": at, **body}


class Subscription:
    """The app in one workspace: convert changes in the bot's channels to envelopes and deliver them.

    The workspaces of an app share ``numbers``, so event ids are unique.
    """

    def __init__(  # noqa: PLR0913, PLR0917 - what the workspaces share
        self,
        workspace: Workspace,
        delivery: Delivery,
        record: Recorder,
        events: Collection[str],
        numbers: Iterator[int],
        installations: Installations,
    ) -> None:
        self.workspace = workspace
        self._installations = installations
        self._delivery = delivery
        self._record = record
        self._events = frozenset(events)
        self._numbers = numbers
        self.end: Callable[[], None] = workspace.listen(self._on_change)

    def publish(self, event: Json) -> None:
        """Send an event, if the app is installed and subscribed to it."""
        authorization = self._installations.authorization(self.workspace.directory.team.id)
        if event["type"] in self._events and authorization is not None:
            self.send(event, authorization)

    def send(self, event: Json, authorization: Json) -> None:
        """Send an event to an installation of the app."""
        team, bot, number = self.workspace.directory.team, self.workspace.directory.bot, next(self._numbers)
        organisation = authorization["enterprise_id"]
        body = {
            "token": VERIFICATION_TOKEN,
            "team_id": team.id,
            "context_team_id": team.id,
            "context_enterprise_id": organisation,
            **({"enterprise_id": organisation} if organisation else {}),
            "api_app_id": bot.app_id,
            "event": event,
            "type": "event_callback",
            "event_id": f"Ev0LOCAL{number:06d}",
            "event_time": int(time.time()),
            "authorizations": [authorization],
            "is_ext_shared_channel": False,
            "event_context": f"local-{number}",
        }
        envelope = Envelope(f"envelope-{number:06d}", "events_api", body)
        # The fields that identify an event among those of its type.
        place = {name: event[name] for name in ("subtype", "channel", "user", "ts", "thread_ts") if event.get(name)}
        self._record.note("event", envelope=envelope.id, about=envelope.about, team=team.id, event=place)
        self._delivery.offer(envelope)

    async def interact(self, payload: Json, kind: str = "interactive") -> Mapping[str, Any]:
        """Send a click, a submission or a command, wait for its ack, and return the payload of the ack.

        Raises SlackRefused with the reason for a missing ack, or if the app is not installed.
        """
        authorization = self._installations.authorization(self.workspace.directory.team.id)
        if authorization is None:
            raise SlackRefused("app_not_installed")
        if (whole := self._installations.organisation) is not None:
            is_whole = bool(authorization["is_enterprise_install"])
            flat = {"enterprise_id": whole.id, "enterprise_name": whole.name}
            named = {"enterprise": {"id": whole.id, "name": whole.name}} if kind == "interactive" else flat
            payload = {**payload, **named, "is_enterprise_install": is_whole}
        number = f"envelope-{next(self._numbers):06d}"
        return await self._delivery.ask(Envelope(number, kind, payload, accepts_response_payload=True))

    def notify_rate_limited(self) -> None:
        """Send ``app_rate_limited``: more events within the hour than Slack delivers."""
        body = {
            "token": VERIFICATION_TOKEN,
            "type": "app_rate_limited",
            "team_id": self.workspace.directory.team.id,
            "minute_rate_limited": int(time.time()) // 60 * 60,
            "api_app_id": self.workspace.directory.bot.app_id,
        }
        self._delivery.offer(Envelope(f"envelope-{next(self._numbers):06d}", "events_api", body))

    def _on_change(self, change: Change) -> None:
        if sees(self.workspace.directory.bot, change, self.workspace):
            self.publish(event_of(change, self.workspace))
            if mention := mention_of(change, self.workspace):
                self.publish(mention)
