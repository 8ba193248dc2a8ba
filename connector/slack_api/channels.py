"""The topics of channels, looked up with a short time-out."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from typing import TYPE_CHECKING

import structlog

from connector.slack_api.errors import SlackCallFailed
from connector.slack_api.rate_limiter import CallSlot, Priority

if TYPE_CHECKING:
    from collections.abc import Callable

    from connector.slack_api.client import SlackClient

log = structlog.get_logger(__name__)

_WITHIN_S = 1.0
_REFRESH_AFTER_S = 600.0
_RETRY_AFTER_S = 30.0
_MOST_CHANNELS = 10_000


class ChannelTopics:
    """The topics of channels, cached for ten minutes. Without the scope to read them, topics are blank.

    Args:
        now_s: monotonic seconds.
    """

    def __init__(self, client: SlackClient, now_s: Callable[[], float] = time.monotonic) -> None:
        self._client = client
        self._now_s = now_s
        # Topic and time of the next look-up, by the channel's id.
        self._topics: OrderedDict[str, tuple[str, float]] = OrderedDict()

    def topic(self, channel: str) -> str:
        """Return the topic as it was looked up last; blank: none, or not known."""
        return self._topics.get(channel, ("", 0.0))[0]

    async def look_up(self, channel: str) -> None:
        """Look the topic up, if that is due; return without it if Slack does not answer in a second."""
        topic, due_s = self._topics.get(channel, ("", 0.0))
        if self._now_s() < due_s:
            return
        self._topics[channel] = topic, self._now_s() + _RETRY_AFTER_S
        after_s = _RETRY_AFTER_S
        try:
            async with asyncio.timeout(_WITHIN_S):
                found = await self._client.call("conversations.info", {"channel": channel}, CallSlot(Priority.LOOK_UP))
            topic, after_s = str((found["channel"].get("topic") or {}).get("value") or ""), _REFRESH_AFTER_S
        except (SlackCallFailed, TimeoutError, KeyError) as e:
            after_s = _RETRY_AFTER_S if isinstance(e, TimeoutError) else _REFRESH_AFTER_S
            log.info("slack.topic_unavailable", channel=channel, error=str(e) or "no answer in time")
        self._topics[channel] = topic, self._now_s() + after_s
        if len(self._topics) > _MOST_CHANNELS:
            self._topics.popitem(last=False)
