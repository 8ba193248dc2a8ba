"""Show a very long answer as a canvas, where the workspace has canvases."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from connector.slack_api.client import PendingCalls
from connector.slack_api.errors import SlackCallFailed
from connector.slack_api.rate_limiter import CallSlot

if TYPE_CHECKING:
    from connector.events import SlackMessage
    from connector.slack_api.client import Confirm, SlackClient

SET_ACCESS = "canvases.access.set"


async def create(client: SlackClient, title: str, markdown: str) -> str:
    """Create a canvas that only the bot sees, and return its id.

    Raises:
        SlackCallFailed: Slack refused.
    """
    document = json.dumps({"type": "markdown", "markdown": markdown})
    made = await client.call("canvases.create", {"title": title, "document_content": document}, CallSlot())
    return str(made["canvas_id"])


async def show(client: SlackClient, canvas_id: str, first: SlackMessage, confirm: Confirm) -> str:
    """Let those who see a message read a canvas, and return a link to it. Repeated calls have the same result.

    Raises:
        SlackCallFailed: Slack refused; `not_shown`: those people cannot read it.
    """
    # Slack gives no access to the channel of direct messages.
    whom = {"user_ids": json.dumps([first.user])} if first.direct else {"channel_ids": json.dumps([first.channel])}
    access = {"canvas_id": canvas_id, "access_level": "read", **whom}
    given = await client.call(SET_ACCESS, access, CallSlot(), once=PendingCalls(confirm=confirm))
    if given.get("failed_to_update_channel_ids") or given.get("failed_to_update_user_ids"):
        raise SlackCallFailed(SET_ACCESS, "not_shown")
    found = await client.call("files.info", {"file": canvas_id}, CallSlot())
    return str(found["file"]["permalink"])
