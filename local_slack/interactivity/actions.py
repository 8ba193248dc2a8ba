"""The buttons and menus of a message, and their ``block_actions`` payload."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from local_slack.blocks.slack_json import VERIFICATION_TOKEN, message_json
from local_slack.workspace.errors import SlackRefused

if TYPE_CHECKING:
    from collections.abc import Iterator

    from local_slack.blocks.slack_json import Json
    from local_slack.methods.arguments import Arguments
    from local_slack.workspace.messages import Message
    from local_slack.workspace.people import Person
    from local_slack.workspace.workspace import Workspace

_MENUS = {"static_select", "overflow", "radio_buttons"}


@dataclass(frozen=True, slots=True)
class _Element:
    """An interactive element of a message, with the id of its block."""

    block_id: str
    body: Json

    def is_meant(self, action_id: str, block_id: str | None, value: str | None) -> bool:
        return (
            self.body.get("action_id") == action_id
            and block_id in {None, self.block_id}
            and (value is None or value in {choice.get("value") for choice in _choices(self.body)})
        )


def find_action(message: Message, args: Arguments) -> Json:
    """Return the entry of ``actions`` for the named element; raises ``no_such_action``."""
    action_id, block_id, value = args.required("action_id"), args.text("block_id"), _value(args)
    for element in _elements(message):
        if element.is_meant(action_id, block_id, value):
            return _action(element, value)
    raise SlackRefused("no_such_action")


def interaction(workspace: Workspace, person: Person, message: Message, action: Json, response_url: str) -> Json:
    """Return the ``block_actions`` payload."""
    team, channel = workspace.directory.team, workspace.channel(message.channel)
    container: Json = {"type": "message", "message_ts": message.ts, "channel_id": channel.id}
    if message.thread_ts:
        container["thread_ts"] = message.thread_ts
    seen = {} if message.only_for else {"message": message_json(message, team)}
    return {
        "type": "block_actions",
        "user": {"id": person.id, "username": person.name, "name": person.name, "team_id": team.id},
        "api_app_id": workspace.directory.bot.app_id,
        "token": VERIFICATION_TOKEN,
        "container": container | {"is_ephemeral": bool(message.only_for)},
        "trigger_id": workspace.triggers.issue(person.id),
        "team": {"id": team.id, "domain": team.domain},
        "enterprise": None,
        "is_enterprise_install": False,
        "channel": {"id": channel.id, "name": "directmessage" if channel.is_im else channel.name},
        **seen,
        "state": {"values": {}},
        "response_url": response_url,
        "actions": [action],
    }


def _value(args: Arguments) -> str | None:
    selected = args.object("selected_option", "invalid_arguments") or {}
    return args.text("value") or selected.get("value")


def _elements(message: Message) -> Iterator[_Element]:
    for number, block in enumerate(message.blocks):
        block_id = str(block.get("block_id") or f"block{number}")
        for body in (*block.get("elements", ()), block.get("accessory")):
            if isinstance(body, dict) and "action_id" in body:
                yield _Element(block_id, body)


def _choices(body: Json) -> tuple[Json, ...]:
    """Return the objects with a value: a menu's options, both feedback buttons, or the button itself."""
    match body.get("type"):
        case "feedback_buttons":
            return body.get("positive_button", {}), body.get("negative_button", {})
        case kind if kind in _MENUS:
            return tuple(body.get("options", ()))
        case _:
            return (body,)


def _action(element: _Element, value: str | None) -> Json:
    body = element.body
    action: Json = {
        "type": body["type"],
        "action_id": body["action_id"],
        "block_id": element.block_id,
        "action_ts": f"{time.time():.6f}",
    }
    chosen = next((choice for choice in _choices(body) if value in {None, choice.get("value")}), {})
    if body["type"] in _MENUS:
        return action | {"selected_option": chosen}
    return action | {name: chosen[name] for name in ("text", "value", "style") if name in chosen}
