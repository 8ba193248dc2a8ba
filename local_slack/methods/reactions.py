"""Slack's ``reactions.*`` methods."""

from __future__ import annotations

from typing import TYPE_CHECKING

from local_slack.blocks.slack_json import message_json
from local_slack.methods.conversations import channel_named, visible_channel
from local_slack.workspace.errors import SlackRefused
from local_slack.workspace.timestamps import is_timestamp

if TYPE_CHECKING:
    from local_slack.methods.calls import Call, Json, Methods


def add(call: Call) -> Json:
    return _react(call, add=True)


def remove(call: Call) -> Json:
    return _react(call, add=False)


def get(call: Call) -> Json:
    _, ts = _item(call)
    channel = visible_channel(call)
    message = call.workspace.message(channel.id, ts)
    if message is None:
        raise SlackRefused("message_not_found")
    wire = message_json(message, call.workspace.directory.team)
    return {"type": "message", "channel": channel.id, "message": wire}


def _react(call: Call, *, add: bool) -> Json:
    call.args.need("name")
    channel, ts = _item(call)
    call.workspace.react(channel, ts, call.member, call.args.required("name"), add=add)
    return {}


def _item(call: Call) -> tuple[str, str]:
    if not call.args.has("channel") and not call.args.has("timestamp"):
        raise SlackRefused("no_item_specified")
    call.args.need("channel", "timestamp")
    channel, ts = channel_named(call), call.args.required("timestamp")
    if not is_timestamp(ts):
        raise SlackRefused("bad_timestamp")
    return channel, ts


METHODS: Methods = {"reactions.add": add, "reactions.remove": remove, "reactions.get": get}
