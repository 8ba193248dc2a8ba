"""The view of direct messages with the app: suggested prompts, and the channel that is open next to them."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import structlog

from connector.slack_api.agent_sessions import UNAVAILABLE
from connector.slack_api.errors import SlackCallFailed
from connector.slack_api.rate_limiter import CallSlot, Priority

if TYPE_CHECKING:
    from asyncio import Task
    from collections.abc import Callable, Coroutine, Sequence

    from connector.events import AppView, SlackMessage
    from connector.slack_api.client import SlackClient

    Spawn = Callable[[Coroutine[Any, Any, object]], Task[None]]

log = structlog.get_logger(__name__)

_SUGGEST = "assistant.threads.setSuggestedPrompts"
# Maximum number of people, and of conversations, that are remembered.
_MOST = 10_000


class AppViews:
    """Suggests prompts in opened direct messages, and remembers the channel that each person looks at.

    It is remembered in this process only. If the app turns out to have no suggested prompts, that is logged once, and
    no other call is made.
    """

    def __init__(self, client: SlackClient, spawn: Spawn) -> None:
        """`spawn` starts a task and keeps it in a registry."""
        self._client = client
        self._spawn = spawn
        self._one_call = asyncio.Lock()
        self._is_available = True
        # Channel (blank: none) and time of the event, by person.
        self._looks_at: dict[str, tuple[str, float]] = {}
        # The channel that the agent knows of, by conversation.
        self._told: dict[str, str] = {}

    def on_view(self, view: AppView, prompts: Sequence[tuple[str, str]]) -> None:
        """Apply an event; the newest one counts, in any order of arrival."""
        _, known_s = self._looks_at.get(view.user, ("", 0.0))
        if view.looks_at is not None and float(view.at) >= known_s:
            _keep(self._looks_at, view.user, (view.looks_at, float(view.at)))
        if view.is_opened and prompts and self._is_available:
            self._spawn(self._suggest(view, prompts))

    def news_for(self, message: SlackMessage) -> dict[str, str]:
        """Return the note for a run that begins with this message, by its id, unless the agent knows it already."""
        channel, _ = self._looks_at.get(message.user, ("", 0.0))
        conversation_id = message.place.conversation_id
        if not message.direct or channel == self._told.get(conversation_id, ""):
            return {}
        _keep(self._told, conversation_id, channel)
        what = f"the channel {channel}" if channel else "no channel any more"
        return {f"{message.id}:view": f"The author of the next message looks at {what}, next to this conversation."}

    async def _suggest(self, view: AppView, prompts: Sequence[tuple[str, str]]) -> None:
        shown = json.dumps([{"title": title, "message": message} for title, message in prompts])
        place = {"channel_id": view.channel} | ({} if view.thread_ts is None else {"thread_ts": view.thread_ts})
        async with self._one_call:
            if not self._is_available:
                return
            try:
                await self._client.call(_SUGGEST, {**place, "prompts": shown}, CallSlot(Priority.REACTION))
            except SlackCallFailed as e:
                if e.error not in UNAVAILABLE:
                    raise
                self._is_available = False
                log.info("suggested_prompts.unavailable", method=_SUGGEST, error=e.error)


def _keep(known: dict[str, Any], key: str, value: object) -> None:
    """Store a value as the newest; drop the oldest one past the limit."""
    known.pop(key, None)
    known[key] = value
    if len(known) > _MOST:
        del known[next(iter(known))]
