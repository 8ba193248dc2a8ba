"""Slack's ``canvases.*`` methods. A canvas is a file whose content is Markdown."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from local_slack.methods.calls import invalid, method
from local_slack.methods.rate_limits import TIER_2, TIER_3
from local_slack.workspace.errors import SlackRefused

if TYPE_CHECKING:
    from local_slack.json_limits import Json
    from local_slack.methods.calls import Call
    from local_slack.workspace.files import File

_LEVELS = ("read", "write", "owner")
_OPERATIONS = ("insert_at_start", "insert_at_end", "replace")
_MOST_CHANNELS = 200


@method("canvases.create", scope="canvases:write", limits=TIER_2)
def create(call: Call) -> Json:
    """Create a canvas; only its owner sees it until access is set."""
    title, content = (
        call.args.text("title") or "Untitled",
        _markdown(call.args.object("document_content", "invalid_arguments")),
    )
    return {"canvas_id": call.workspace.files.new_canvas(call.member, title, content, call.base_url).id}


@method("canvases.edit", "canvas_id", "changes", scope="canvases:write", limits=TIER_3)
def edit(call: Call) -> Json:
    """Insert text at one end, or replace the whole content. One change at a time, as in Slack."""
    canvas, changes = _canvas(call), call.args.objects("changes", "invalid_arguments")
    if len(changes) != 1:
        raise invalid("[ERROR] exactly one change is allowed [json-pointer:/changes]")
    (change,) = changes
    if change.get("operation") not in _OPERATIONS or change.get("section_id"):
        raise invalid("[ERROR] must be a valid enum value [json-pointer:/changes/0/operation]")
    text, before = _markdown(change.get("document_content")), (canvas.content or b"").decode()
    whole = {"insert_at_start": f"{text}\n{before}", "insert_at_end": f"{before}\n{text}", "replace": text}
    call.workspace.files.fill_canvas(canvas, whole[change["operation"]])
    return {}


@method("canvases.delete", "canvas_id", scope="canvases:write", limits=TIER_3)
def delete(call: Call) -> Json:
    call.workspace.files.delete(call.member, _canvas(call).id)
    return {}


@method("canvases.access.set", "canvas_id", "access_level", scope="canvases:write", limits=TIER_3)
def set_access(call: Call) -> Json:
    """Record the channels, or the people, that have access to a canvas. Direct messages need the people."""
    canvas = _canvas(call)
    call.args.one_of("access_level", _LEVELS)
    channels, people = call.args.texts("channel_ids"), call.args.texts("user_ids")
    if bool(channels) == bool(people) or len(channels) > _MOST_CHANNELS:
        raise invalid("[ERROR] must define either `channel_ids` or `user_ids`")
    if not call.workspace.directory.members.keys() >= set(people):
        raise SlackRefused("user_not_found")
    found = [call.visible(each) for each in channels]
    call.workspace.files.open_canvas(canvas, (*(each.id for each in found if not each.is_im), *people))
    return {
        "failed_to_update_channel_ids": [each.id for each in found if each.is_im],
        "failed_to_update_user_ids": [],
    }


def _canvas(call: Call) -> File:
    canvas = call.workspace.files.get(call.args.required("canvas_id"))
    if canvas is None or not canvas.is_canvas:
        raise SlackRefused("canvas_not_found")
    if canvas.user != call.member.id:
        raise SlackRefused("access_denied")
    return canvas


def _markdown(document: Any) -> str:
    if not isinstance(document, dict) or document.get("type") != "markdown":
        raise invalid("[ERROR] must be markdown [json-pointer:/document_content/type]")
    if not isinstance(document.get("markdown"), str):
        raise invalid("[ERROR] must provide a string [json-pointer:/document_content/markdown]")
    return str(document["markdown"])
