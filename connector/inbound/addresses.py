"""WebSocket addresses for Socket Mode."""

from __future__ import annotations

from typing import TYPE_CHECKING

from connector.inbound.websocket import NotOpened
from connector.slack_api.errors import SlackCallFailed
from connector.slack_api.rate_limiter import CallSlot

if TYPE_CHECKING:
    from connector.slack_api.client import SlackClient


class Addresses:
    """Requests addresses from Slack, each valid for one connection. `first` is the one from the preflight check."""

    def __init__(self, client: SlackClient, first: str) -> None:
        self._client = client
        self._first = first

    async def next(self) -> str:
        """Return an unused address.

        Raises:
            NotOpened: Slack returns no address.
        """
        first, self._first = self._first, ""
        if first:
            return first
        try:
            return str((await self._client.call("apps.connections.open", {}, CallSlot()))["url"])
        except SlackCallFailed as e:
            raise NotOpened(e.error, e.retry_after_s) from e
