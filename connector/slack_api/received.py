"""Read threads and channels from what events brought, for apps whose reading Slack limits to once a minute."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from connector.events import checked_ts, is_direct
from connector.protocols import Limit
from connector.slack_api.client import SlackClient, ThreadHistory, answer_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from connector.slack_api.rate_limiter import CallSlot

    Message = dict[str, Any]

# https://docs.slack.dev/changelog/2025/05/29/rate-limit-changes-for-non-marketplace-apps
LIMITED = dict.fromkeys(("conversations.history", "conversations.replies"), Limit(1, 0.94 / 60))
_PAGE = 15
_OMITTED = ("type", "channel", "channel_type", "event_ts", "user_profile", "client_msg_id")


class ReceivedMessages(Protocol):
    """The messages that events brought, by channel. All methods raise StoreError."""

    async def put(self, team: str, channel: str, message: Mapping[str, Any]) -> None:
        """Store a version of a message, unless a later one is stored, or the message was deleted."""

    async def delete(self, team: str, channel: str, ts: str) -> None:
        """Delete a message; no version of it is stored later. Slack delivers events again, and in any order."""

    async def of_channel(self, team: str, channel: str) -> list[dict[str, Any]]:
        """Return the messages of a channel and its threads, oldest first."""


class ReceivedHistory(ThreadHistory):
    """Reads the messages of people from the store. The bot's own posts are looked up in Slack, as ever.

    Messages from before the bot was in the channel, or while no process was connected, are missing.
    """

    page = _PAGE

    def __init__(self, client: SlackClient, stored: ReceivedMessages, team: str, bot_user: str) -> None:
        super().__init__(client.call)
        self._stored = stored
        self._team = team
        self._bot_user = bot_user

    async def known(self, channel: str, thread_ts: str | None) -> list[Message] | None:
        """Return the messages of a thread, oldest first, or those of a channel, newest first; see the base class."""
        if is_direct(channel):
            return None
        found = await self._stored.of_channel(self._team, channel)
        if thread_ts is not None:
            return [each for each in found if thread_ts in (each.get("thread_ts"), each["ts"])]
        is_top = (each.get("thread_ts", each["ts"]) == each["ts"] or _is_broadcast(each) for each in found)
        return [each for each, is_shown in zip(found, is_top, strict=True) if is_shown][::-1]

    async def message(self, channel: str, ts: str, slot: CallSlot | None = None) -> Message | None:
        """Return a message; see the base class."""
        for each in await self._stored.of_channel(self._team, channel):
            if each["ts"] == ts:
                return each
        return await super().message(channel, ts, slot)

    async def receive(self, event: Mapping[str, Any]) -> None:
        """Store, replace or delete the message of an event in a channel.

        Raises:
            StoreError: it cannot be stored.
            ValueError: the event is malformed.
        """
        channel, subtype = event.get("channel"), event.get("subtype")
        if event.get("type") != "message" or not isinstance(channel, str) or is_direct(channel):
            return
        if subtype == "message_deleted":
            before = event.get("previous_message")
            if isinstance(before, dict) and before.get("metadata") and self._is_status(before):
                return
            await self._stored.delete(self._team, channel, checked_ts(event.get("deleted_ts")))
            return
        message = event.get("message") if subtype == "message_changed" else event
        if not isinstance(message, dict):
            return
        checked_ts(message.get("ts"))
        if self._is_status(message):
            return
        kept = {name: value for name, value in message.items() if name not in _OMITTED}
        await self._stored.put(self._team, channel, kept)

    def _is_status(self, message: Message) -> bool:
        """Return whether a message is a status message of the bot or the like, which is not stored."""
        return message.get("user") == self._bot_user and answer_of(message) is None


def _is_broadcast(message: Message) -> bool:
    return message.get("subtype") == "thread_broadcast"
