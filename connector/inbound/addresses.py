"""Where Slack lets us connect to."""

from __future__ import annotations

from typing import TYPE_CHECKING

from connector.inbound.websocket import NotOpened
from connector.slack_api.errors import SlackCallFailed
from connector.slack_api.rate_limiter import CallSlot

if TYPE_CHECKING:
    from connector.slack_api.client import SlackClient


class Addresses:
    """Asks Slack for addresses, each good for one connection; one it has given already, when the token was tried."""

    def __init__(self, client: SlackClient, first: str) -> None:
        self._client = client
        self._first = first

    async def next(self) -> str:
        """An address that nobody has connected to.

        Raises:
            NotOpened: Slack gives none.
        """
        first, self._first = self._first, ""
        if first:
            return first
        try:
            return str((await self._client.call("apps.connections.open", {}, CallSlot()))["url"])
        except SlackCallFailed as e:
            raise NotOpened(e.error, e.retry_after_s) from e
