"""Read the messages of a thread or channel, and find the bot's own posts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from connector.slack_api.rate_limiter import CallSlot

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from connector.events import ThreadAddress

    Message = dict[str, Any]

_PAGE = 200
POST_EVENT = "amplifier_post"


class ThreadHistory:
    """Reads messages from Slack. Every method raises SlackCallFailed if Slack refuses or does not answer.

    Args:
        call: `SlackClient.call`.
    """

    def __init__(self, call: Callable[..., Awaitable[Any]]) -> None:
        self._call = call

    async def messages(
        self, place: ThreadAddress, slot: CallSlot | None = None, oldest: str = ""
    ) -> AsyncIterator[Message]:
        """Yield the messages of a thread, oldest first; of a channel, one page of the latest, newest first.

        Messages of a thread that are older than `oldest` may be missing.
        """
        slot = slot or CallSlot(run=place.conversation_id)
        arguments: dict[str, Any] = {"channel": place.channel, "include_all_metadata": True, "limit": _PAGE}
        if oldest:
            arguments["oldest"] = oldest
        method = "conversations.history"
        if place.thread_ts is not None:
            method, arguments["ts"] = "conversations.replies", place.thread_ts
        while True:
            page = await self._call(method, arguments, slot)
            for message in page["messages"]:
                yield message
            arguments["cursor"] = (page.get("response_metadata") or {}).get("next_cursor")
            if not arguments["cursor"] or place.thread_ts is None:
                return

    async def message(self, channel: str, ts: str, slot: CallSlot | None = None) -> Message | None:
        """Return a message with its metadata; `None`: it does not exist."""
        arguments = {"channel": channel, "ts": ts, "include_all_metadata": True, "limit": 1}
        page = await self._call("conversations.replies", arguments, slot or CallSlot(), done=("thread_not_found",))
        return next((each for each in page.get("messages", ()) if each.get("ts") == ts), None)

    async def find(self, place: ThreadAddress, key: str) -> Message | None:
        """Return the bot's post with this key in a thread (or channel)."""
        async for message in self.messages(place):
            if key_of(message) == key:
                return message
        return None


def key_of(message: Message) -> str:
    """Return the key of a post of the bot; blank for other messages."""
    metadata = message.get("metadata") or {}
    is_ours = metadata.get("event_type") == POST_EVENT
    return str(metadata.get("event_payload", {}).get("key", "")) if is_ours else ""
