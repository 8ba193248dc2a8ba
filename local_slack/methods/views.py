"""Slack's ``views.*`` methods."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from local_slack.blocks.block_schemas import BLOCKS_OF_A_VIEW, PLAIN_24
from local_slack.blocks.blocks import block_problems, with_ids
from local_slack.blocks.schema import Choice, Flag, Schema, Shape, Text, Unchecked, problems
from local_slack.methods.arguments import invalid
from local_slack.workspace.errors import SlackRefused

if TYPE_CHECKING:
    from local_slack.methods.calls import Call, Json, Methods
    from local_slack.workspace.views import View

_COMMON: dict[str, Schema] = {
    "blocks": Unchecked(),
    "type": Choice(("home", "modal")),
}
_OPTIONAL: dict[str, Schema] = {
    "callback_id": Text(255, least=0),
    "external_id": Text(255, least=0),
    "private_metadata": Text(3_000, least=0),
}
_HOME = Shape(_COMMON, _OPTIONAL)
_MODAL = Shape(
    {**_COMMON, "title": PLAIN_24},
    {
        **_OPTIONAL,
        "clear_on_close": Flag(),
        "close": PLAIN_24,
        "notify_on_close": Flag(),
        "submit": PLAIN_24,
        "submit_disabled": Flag(),
    },
)


def publish(call: Call) -> Json:
    """Show a Home tab to one person."""
    call.args.need("user_id", "view")
    user = call.args.required("user_id")
    if user not in call.workspace.directory.members:
        raise SlackRefused("user_not_found")
    view = call.workspace.views.publish(user, _content(call, "home"), call.args.text("hash"))
    return {"view": view_json(view, call)}


def open_(call: Call) -> Json:
    """Open a modal for the person whose click, command or shortcut created the trigger."""
    call.args.need("view")
    trigger = call.args.text("trigger_id") or call.args.text("interactivity_pointer")
    if not trigger:
        raise invalid("[ERROR] missing required field: trigger_id")
    user = call.workspace.triggers.take(trigger)
    return {"view": view_json(call.workspace.views.open(user, _content(call, "modal")), call)}


def update(call: Call) -> Json:
    call.args.need("view")
    content = _content(call)
    view = call.workspace.views.update(call.args.required("view_id"), content, call.args.text("hash"))
    return {"view": view_json(view, call)}


def view_json(view: View, call: Call) -> Json:
    bot = call.workspace.directory.bot
    return {
        "id": view.id,
        "team_id": call.workspace.directory.team.id,
        "app_id": bot.app_id,
        "bot_id": bot.bot_id,
        "state": {"values": {}},
        "hash": view.hash,
        "root_view_id": view.id,
        "previous_view_id": None,
        "private_metadata": "",
        "callback_id": "",
        "external_id": "",
        **view.content,
    }


def _content(call: Call, kind: str | None = None) -> dict[str, Any]:
    content = call.args.object("view", "invalid_arguments") or {}
    wrong = list(problems(content, _HOME if content.get("type") == "home" else _MODAL, "/view"))
    wrong += block_problems(content.get("blocks"), "/view/blocks", BLOCKS_OF_A_VIEW)
    if not wrong and kind and content["type"] != kind:
        wrong.append(f"must be of type {kind} [json-pointer:/view/type]")
    if wrong:
        raise invalid(*(f"[ERROR] {what}" for what in wrong))
    return {**content, "blocks": list(with_ids(content["blocks"]))}


METHODS: Methods = {"views.open": open_, "views.publish": publish, "views.update": update}
