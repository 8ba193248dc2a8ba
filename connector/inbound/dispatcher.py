"""Parse Slack events and button clicks, and pass them to the intake."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import structlog

from connector.events import (
    clicked_stop_of,
    deletion_of,
    edit_of,
    home_of,
    message_of,
    moment_of,
    reaction_of,
    session_stop_of,
)
from connector.inbound.access_policy import Actor

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from connector.inbound.intake import Intake

    Handling = Coroutine[Any, Any, None] | None

log = structlog.get_logger(__name__)

# Exceptions of parsing a malformed payload.
_UNREADABLE = (AttributeError, KeyError, TypeError, ValueError)


async def dispatch(event: dict[str, Any], team: str, intake: Intake, *, is_shared: bool = False) -> None:
    """Handle an event; ignore kinds without a handler. `is_shared`: its channel is shared with another workspace.

    Raises:
        NotNow: the service is shutting down; Slack must deliver the event again.
    """
    try:
        handling = _handling(event, team, intake, is_shared=is_shared)
    except _UNREADABLE as e:
        log.warning("event.unreadable", slack_event=event.get("type"), error=repr(e))
        return
    if handling is not None:
        await handling


async def dispatch_action(body: dict[str, Any], team: str, intake: Intake) -> None:
    """Handle a click on a button. Its payload does not contain whether the channel is shared.

    Raises:
        NotNow: the service is shutting down; Slack must deliver the click again.
    """
    try:
        clicked = clicked_stop_of(body, team)
        home = None if clicked is None else home_of({"team": body["user"].get("team_id")})
    except _UNREADABLE as e:
        log.warning("event.unreadable", slack_event=body.get("type"), error=repr(e))
        return
    if clicked is not None:
        place, stop = clicked
        await intake.on_stop(place, stop, Actor(stop.user, place.channel, home, None))


def _handling(event: dict[str, Any], team: str, intake: Intake, *, is_shared: bool) -> Handling:
    """Parse an event and return the coroutine that handles it; `None`: nothing to do."""
    match event:
        case {"type": "message", "subtype": "message_changed" | "message_deleted"}:
            return _change_handling(event, team, intake, is_shared=is_shared)
        case {"type": "message" | "app_mention"}:
            if (message := message_of(event, team)) is not None:
                actor = Actor(message.user, message.channel, home_of(event), is_shared)
                return intake.on_message(message, actor, effective_ts=moment_of(event))
        case {"type": "reaction_added"}:
            if (reaction := reaction_of(event)) is not None:
                return intake.on_reaction(reaction, Actor(reaction.user, reaction.channel, None, is_shared))
        case {"type": "agent_session_stopped"}:
            if (stopped := session_stop_of(event, team)) is not None:
                place, stop = stopped
                return intake.on_stop(place, stop, Actor(stop.user, place.channel, None, is_shared))
    return None


def _change_handling(event: dict[str, Any], team: str, intake: Intake, *, is_shared: bool) -> Handling:
    home = home_of(event.get("message") or event.get("previous_message") or {})
    if (deletion := deletion_of(event, team)) is not None:
        return intake.on_deletion(deletion, Actor(deletion.message.user, deletion.message.channel, home, is_shared))
    if (edit := edit_of(event, team)) is not None:
        return intake.on_edit(edit, Actor(edit.message.user, edit.message.channel, home, is_shared))
    return None
