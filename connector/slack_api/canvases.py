"""Show a very long answer as a canvas, where the workspace has canvases."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from connector.slack_api.client import PendingCalls
from connector.slack_api.rate_limiter import CallSlot

if TYPE_CHECKING:
    from connector.slack_api.client import Confirm, SlackClient


async def create(client: SlackClient, title: str, markdown: str) -> str:
    """Create a canvas that only the bot sees, and return its id.

    Raises:
        SlackCallFailed: Slack refused.
    """
    document = json.dumps({"type": "markdown", "markdown": markdown})
    made = await client.call("canvases.create", {"title": title, "document_content": document}, CallSlot())
    return str(made["canvas_id"])


async def show(client: SlackClient, canvas_id: str, channel: str, confirm: Confirm) -> str:
    """Let the members of a channel read a canvas, and return a link to it. Repeated calls have the same result.

    Raises:
        SlackCallFailed: Slack refused.
    """
    access = {"canvas_id": canvas_id, "access_level": "read", "channel_ids": json.dumps([channel])}
    await client.call("canvases.access.set", access, CallSlot(), once=PendingCalls(confirm=confirm))
    found = await client.call("files.info", {"file": canvas_id}, CallSlot())
    return str(found["file"]["permalink"])
