"""What runs left in a conversation whose process was killed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from connector.view import HOURGLASS, STATUS_KEY
from connector.wire import key_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from connector.execution import Execution
    from connector.messages import Place
    from connector.wire import Wire


async def take_away(wire: Wire, place: Place, bot_user: str, active: Callable[[], Execution | None]) -> None:
    """Take status and hourglass away, but for those of the run that is `active` there by then."""
    if (execution := active()) is not None:
        await execution.view.status_ts()  # else nobody could tell its status from the others
    for message in [message async for message in wire.messages(place)]:
        ts, execution = message["ts"], active()
        is_status = key_of(message).endswith(STATUS_KEY)
        if is_status and (execution is None or execution.view.is_status(ts) is False):
            await wire.delete(place.channel, ts)
        marks = {mark["name"]: mark["users"] for mark in message.get("reactions", ())}
        is_marked = bot_user in marks.get(HOURGLASS, ())
        if is_marked and (execution is None or execution.first.message.ts != ts):
            await wire.unreact(place.channel, ts, HOURGLASS)
