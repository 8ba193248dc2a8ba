"""Slash commands and shortcuts: the ways to an app that need no message of it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from local_slack.blocks.blocks import TEXT_OF_A_POST, check_text
from local_slack.blocks.slack_json import VERIFICATION_TOKEN
from local_slack.methods.calls import Arguments
from local_slack.web.response_urls import Reply
from local_slack.workspace.errors import SlackRefused

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from local_slack.delivery.events import Subscription
    from local_slack.json_limits import Json
    from local_slack.methods.app import Command, Shortcut
    from local_slack.workspace.messages import Channel
    from local_slack.workspace.people import Person
    from local_slack.workspace.workspace import Workspace

_ESCAPED = re.compile(r"<([@#])([A-Z0-9]+)(?:\|[^>]*)?>")


async def run_command(
    subscription: Subscription,
    person: Person,
    args: Arguments,
    commands: Sequence[Command],
    response_url: Callable[[Reply], str],
) -> str | None:
    """Send the slash command in ``text`` to the app, and show its answer; return the answer's ts.

    Raises SlackRefused with Slack's sentence for the person: ``not_supported_in_threads``, ``unknown_command``, and
    ``operation_timeout`` or ``dispatch_failed`` for a missing ack.
    """
    args.need("channel", "text")
    workspace, directory = subscription.workspace, subscription.workspace.directory
    channel = workspace.channel(args.required("channel"))
    if person.id not in channel.members:
        raise SlackRefused("channel_not_found" if channel.is_im else "not_in_channel")
    typed = args.required("text").strip()
    check_text(typed, TEXT_OF_A_POST)
    name, _, text = typed.partition(" ")
    if args.thread_ts():
        raise SlackRefused("not_supported_in_threads", f"{name} is not supported in threads. Sorry!")
    command = next((each for each in commands if each.command == name), None)
    if command is None:
        raise SlackRefused("unknown_command", f"{name} is not a valid command. {_EXPLAINED}")
    reply = Reply(workspace, channel.id, person)
    payload = {
        "token": VERIFICATION_TOKEN,
        "team_id": directory.team.id,
        "team_domain": directory.team.domain,
        "channel_id": channel.id,
        "channel_name": channel_json(channel)["name"],
        "user_id": person.id,
        "user_name": person.name,
        "command": name,
        "text": text.strip() if command.should_escape else _named(text.strip(), workspace),
        "api_app_id": directory.bot.app_id,
        "is_enterprise_install": "false",
        "response_url": response_url(reply),
        "trigger_id": workspace.views.issue_trigger(person.id),
    }
    try:
        answer = Arguments(await subscription.interact(payload, "slash_commands"))
    except SlackRefused as refused:
        code = "operation_timeout" if refused.code == "no_answer" else "dispatch_failed"
        raise SlackRefused(code, f'{name} failed with the error "{code}"') from refused
    return reply.send(answer) if any(answer.has(name) for name in ("text", "blocks", "attachments")) else None


_EXPLAINED = (
    'In Slack, all messages that start with the "/" character are interpreted as commands. '
    'If you are trying to send a message and not run a command, try preceding the "/" with an empty space.'
)


def _named(text: str, workspace: Workspace) -> str:
    """Return mentions as people type them: Slack's default for commands."""
    names = {each.id: each.name for each in (*workspace.directory.members.values(), *workspace.channels)}
    return _ESCAPED.sub(lambda match: match[1] + names[match[2]] if match[2] in names else match[0], text)


def shortcut_named(shortcuts: Sequence[Shortcut], callback_id: str, kind: str) -> Shortcut:
    for shortcut in shortcuts:
        if (shortcut.callback_id, shortcut.type) == (callback_id, kind):
            return shortcut
    raise SlackRefused("no_such_shortcut")


def channel_json(channel: Channel) -> Json:
    """Return a channel as interactions name it."""
    return {"id": channel.id, "name": "directmessage" if channel.is_im else channel.name}
