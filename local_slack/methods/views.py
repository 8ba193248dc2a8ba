"""Slack's ``views.*`` methods."""

from __future__ import annotations

from typing import TYPE_CHECKING

from local_slack.blocks.blocks import BLOCKS_OF_A_VIEW, PLAIN_24, block_problems, with_ids
from local_slack.blocks.schema import ANYTHING, FLAG, Choice, Schema, Shape, Text
from local_slack.blocks.slack_json import view_json
from local_slack.methods.calls import invalid, method
from local_slack.methods.rate_limits import TIER_4
from local_slack.workspace.errors import SlackRefused

if TYPE_CHECKING:
    from local_slack.json_limits import Json
    from local_slack.methods.calls import Arguments, Call
    from local_slack.workspace.views import View

_COMMON: dict[str, Schema] = {"blocks": ANYTHING, "type": Choice("home", "modal")}
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
        "clear_on_close": FLAG,
        "close": PLAIN_24,
        "notify_on_close": FLAG,
        "submit": PLAIN_24,
        "submit_disabled": FLAG,
    },
)


@method("views.publish", "user_id", "view", limits=TIER_4)
def publish(call: Call) -> Json:
    """Show a Home tab to one person."""
    user = call.args.required("user_id")
    if user not in call.workspace.directory.members:
        raise SlackRefused("user_not_found")
    return _answer(call, call.workspace.views.publish(user, content_of(call.args, "home"), call.args.text("hash")))


@method("views.open", "view", limits=TIER_4)
def open_(call: Call) -> Json:
    """Open a modal for the person whose click, command or shortcut created the trigger."""
    user = _user_of_trigger(call)
    return _answer(call, call.workspace.views.open(user, content_of(call.args, "modal")))


@method("views.push", "view", limits=TIER_4)
def push(call: Call) -> Json:
    """Open a modal on top of the one in which the trigger was created."""
    user = _user_of_trigger(call)
    return _answer(call, call.workspace.views.push(user, content_of(call.args, "modal")))


@method("views.update", "view", limits=TIER_4)
def update(call: Call) -> Json:
    content = content_of(call.args)
    return _answer(call, call.workspace.views.update(call.args.required("view_id"), content, call.args.text("hash")))


def _user_of_trigger(call: Call) -> str:
    trigger = call.args.text("trigger_id") or call.args.text("interactivity_pointer")
    if not trigger:
        raise invalid("[ERROR] missing required field: trigger_id")
    return call.workspace.views.take_trigger(trigger)


def _answer(call: Call, view: View) -> Json:
    return {"view": view_json(view, call.workspace.directory)}


def content_of(args: Arguments, kind: str | None = None) -> Json:
    """Return the valid ``view`` of a call or of a response; ``kind`` is the type that it must have."""
    content = args.object("view", "invalid_arguments")
    wrong = list((_HOME if content.get("type") == "home" else _MODAL).problems(content, "/view"))
    wrong += block_problems(content.get("blocks"), "/view/blocks", BLOCKS_OF_A_VIEW)
    if not wrong and kind and content["type"] != kind:
        wrong.append(f"must be of type {kind} [json-pointer:/view/type]")
    has_inputs = not wrong and any(block["type"] == "input" for block in content["blocks"])
    if has_inputs and content["type"] == "modal" and not content.get("submit"):
        wrong.append("missing required field: submit [json-pointer:/view]")
    if wrong:
        raise invalid(*(f"[ERROR] {what}" for what in wrong))
    return {**content, "blocks": list(with_ids(content["blocks"]))}
