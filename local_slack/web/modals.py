"""Submit and close the modals that an app shows to people."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from local_slack.blocks.elements import missing_inputs, state_of
from local_slack.blocks.slack_json import interaction_json, view_json
from local_slack.methods.calls import Arguments
from local_slack.methods.views import content_of
from local_slack.workspace.errors import SlackRefused

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from local_slack.delivery.events import Subscription
    from local_slack.json_limits import Json
    from local_slack.workspace.people import Person
    from local_slack.workspace.views import View
    from local_slack.workspace.workspace import Workspace


async def submit(
    subscription: Subscription, person: Person, args: Arguments, entered: Mapping[tuple[str, str], Json]
) -> None:
    """Submit the modal that the person sees with the given values, and apply the app's response.

    ``entered`` has the values of earlier choices. Raises SlackRefused: ``no_modal``; ``missing_value`` for an empty
    required input; ``invalid_input`` with the app's messages for fields that it does not accept.
    """
    workspace, view = subscription.workspace, shown(subscription.workspace, person, args)
    blocks, members = view.content["blocks"], workspace.directory.members
    state = state_of(blocks, given_in(args), entered.get((view.id, person.id), {}), members)
    if missing := missing_inputs(blocks, state):
        raise SlackRefused("missing_value", *(f"{block}: this field is required" for block in missing))
    payload = _payload(workspace, person, view, "view_submission", state) | {"response_urls": []}
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


async def close(subscription: Subscription, person: Person, args: Arguments) -> None:
    """Close the modal that the person sees, with ``clear`` also those below it.

    The app is notified of each that has ``notify_on_close``.
    """
    workspace, view = subscription.workspace, shown(subscription.workspace, person, args)
    is_cleared = args.flag("clear") or bool(view.content.get("clear_on_close"))
    for closed in workspace.views.close(view, clear=is_cleared):
        if closed.content.get("notify_on_close"):
            payload = _payload(workspace, person, closed, "view_closed", {}) | {"is_cleared": is_cleared}
            await subscription.interact(payload)


def shown(workspace: Workspace, person: Person, args: Arguments) -> View:
    """Return the modal that the person sees, which must be ``view_id`` if that is given; raises ``no_modal``."""
    view = workspace.views.modal(person.id)
    if view is None or args.text("view_id") not in {None, view.id}:
        raise SlackRefused("no_modal")
    return view


def given_in(args: Arguments) -> Callable[[str, str], Any]:
    """Return the lookup of given values: in ``state`` by block and action, in ``values`` by action."""
    state, values = args.object("state", "invalid_arguments"), args.object("values", "invalid_arguments")
    if not all(isinstance(block, dict) for block in state.values()):
        raise SlackRefused("invalid_arguments", "[ERROR] must provide an object [json-pointer:/state]")
    return lambda block_id, action_id: state.get(block_id, {}).get(action_id, values.get(action_id))


def _payload(workspace: Workspace, person: Person, view: View, kind: str, values: Json) -> Json:
    directory = workspace.directory
    return interaction_json(kind, person, directory) | {"view": view_json(view, directory, values)}
