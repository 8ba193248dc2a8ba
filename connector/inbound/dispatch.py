"""What an event or a click means, and who of us hears of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from connector.inbound.gate import Visitor
from connector.messages import clicked_stop_of, deletion_of, edit_of, home_of, message_of, reaction_of, session_stop_of

if TYPE_CHECKING:
    from connector.inbound.intake import Intake


async def dispatch(event: dict[str, Any], team: str, intake: Intake, *, is_shared: bool = False) -> None:
    """Take an event in; few mean anything to us. `is_shared`: its channel is shared with another workspace.

    Raises:
        NotNow: it cannot be taken just now, and is to come again.
    """
    match event:
        case {"type": "message", "subtype": "message_changed" | "message_deleted"}:
            home = home_of(event.get("message") or event.get("previous_message") or {})
            if (deletion := deletion_of(event, team)) is not None:
                visitor = Visitor(deletion.message.user, deletion.message.channel, home, is_shared)
                await intake.on_deletion(deletion, visitor)
            elif (edit := edit_of(event, team)) is not None:
                await intake.on_edit(edit, Visitor(edit.message.user, edit.message.channel, home, is_shared))
        case {"type": "message" | "app_mention"}:
            if (message := message_of(event, team)) is not None:
                await intake.on_message(message, Visitor(message.user, message.channel, home_of(event), is_shared))
        case {"type": "reaction_added"}:
            if (reaction := reaction_of(event)) is not None:
                await intake.on_reaction(reaction, Visitor(reaction.user, reaction.channel, None, is_shared))
        case {"type": "agent_session_stopped"}:
            if (asked := session_stop_of(event, team)) is not None:
                place, stop = asked
                await intake.on_stop(place, stop, Visitor(stop.user, place.channel, None, is_shared))


async def dispatch_action(body: dict[str, Any], team: str, intake: Intake) -> None:
    """Take a click in; Slack does not say with it whether the channel is shared.

    Raises:
        NotNow: it cannot be taken just now, and is to come again.
    """
    if (asked := clicked_stop_of(body, team)) is not None:
        place, stop = asked
        home = home_of({"team": body["user"].get("team_id")})
        await intake.on_stop(place, stop, Visitor(stop.user, place.channel, home, None))
