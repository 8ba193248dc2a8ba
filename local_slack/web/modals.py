"""Submit and close the modals that an app shows to people."""

from __future__ import annotations

from typing import TYPE_CHECKING

from local_slack.blocks.slack_json import VERIFICATION_TOKEN, view_json
from local_slack.methods.calls import Arguments
from local_slack.methods.views import content_of
from local_slack.workspace.errors import SlackRefused

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from local_slack.delivery.events import Subscription
    from local_slack.json_limits import Json
    from local_slack.workspace.people import Person
    from local_slack.workspace.views import View
    from local_slack.workspace.workspace import Workspace

# The field of a value in the state of a view, and of the element with its initial value, by type of element. The
# option of a menu is an object, given by its value.
_OPTIONS = {"static_select": "option", "radio_buttons": "option"}
_LISTS = {"checkboxes": "options", "multi_static_select": "options"}
_VALUES = {
    "datepicker": "date",
    "timepicker": "time",
    "users_select": "user",
    "conversations_select": "conversation",
    "channels_select": "channel",
}


async def submit(subscription: Subscription, person: Person, args: Arguments) -> None:
    """Submit the modal that the person sees with ``values`` by ``action_id``, and apply the app's response.

    Raises SlackRefused: ``no_modal``; ``missing_value`` for an empty required input; ``invalid_input`` with the app's
    messages for fields that it does not accept.
    """
    workspace, view = subscription.workspace, _modal(subscription.workspace, person)
    given = args.object("values", "invalid_arguments")
    payload = _payload(workspace, person, view, "view_submission", _state(view, given)) | {"response_urls": []}
    response = Arguments(
        await subscription.interact(payload | {"trigger_id": workspace.views.issue_trigger(person.id)})
    )
    match response.text("response_action"):
        case "errors":
            errors = response.object("errors", "invalid_arguments")
            raise SlackRefused("invalid_input", *(f"{block}: {text}" for block, text in errors.items()))
        case "update":
            workspace.views.update(view.id, content_of(response, "modal"), None)
        case "push":
            workspace.views.push(person.id, content_of(response, "modal"))
        case action:
            workspace.views.close(view, clear=action == "clear")


async def close(subscription: Subscription, person: Person) -> None:
    """Close the modal that the person sees; the app is notified if the modal has ``notify_on_close``."""
    workspace, view = subscription.workspace, _modal(subscription.workspace, person)
    workspace.views.close(view)
    if view.content.get("notify_on_close"):
        payload = _payload(workspace, person, view, "view_closed", {}) | {"is_cleared": False}
        await subscription.interact(payload)


def _modal(workspace: Workspace, person: Person) -> View:
    if view := workspace.views.modal(person.id):
        return view
    raise SlackRefused("no_modal")


def _payload(workspace: Workspace, person: Person, view: View, kind: str, values: Json) -> Json:
    directory = workspace.directory
    return {
        "type": kind,
        "team": {"id": directory.team.id, "domain": directory.team.domain},
        "user": {"id": person.id, "username": person.name, "name": person.name, "team_id": directory.team.id},
        "api_app_id": directory.bot.app_id,
        "token": VERIFICATION_TOKEN,
        "view": view_json(view, directory, values),
        "enterprise": None,
        "is_enterprise_install": False,
    }


def _state(view: View, given: Mapping[str, Any]) -> Json:
    """Return the values of a modal by block and action; those that are not given are the initial ones."""
    state: Json = {}
    for block in view.content["blocks"]:
        if block["type"] != "input":
            continue
        element, is_optional = block["element"], block.get("optional", False)
        value = _value(element, given.get(element.get("action_id")))
        if all(part in (None, "", []) for name, part in value.items() if name != "type") and not is_optional:
            raise SlackRefused("missing_value", f"{block['block_id']}: this field is required")
        state[block["block_id"]] = {element.get("action_id"): value}
    return state


def _value(element: Json, given: Any) -> Json:
    kind = element["type"]
    if part := _OPTIONS.get(kind):
        chosen = _options(element, [given])
        return {"type": kind, f"selected_{part}": chosen[0] if chosen else element.get(f"initial_{part}")}
    if part := _LISTS.get(kind):
        chosen = element.get(f"initial_{part}", []) if given is None else _options(element, given)
        return {"type": kind, f"selected_{part}": chosen}
    if part := _VALUES.get(kind):
        return {"type": kind, f"selected_{part}": given or element.get(f"initial_{part}")}
    return {"type": kind, "value": element.get("initial_value") if given is None else given}


def _options(element: Json, values: list[Any]) -> list[Json]:
    return [option for option in element.get("options", ()) if option.get("value") in values]
