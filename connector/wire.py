"""Calls to Slack's Web API, with what each of its errors means for us."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import aiohttp
import structlog
from slack_sdk.errors import SlackApiError

if TYPE_CHECKING:
    from slack_sdk.web.async_client import AsyncWebClient

    from connector.messages import Place
    from connector.protocols import Persona

log = structlog.get_logger(__name__)

_ATTEMPTS = 4
_BACKOFF_S = 0.5
_TRANSIENT = frozenset({"ratelimited", "service_unavailable", "fatal_error", "internal_error"})
_SERVER_ERROR = 500
POST_EVENT = "amplifier_post"


class SlackCallFailed(Exception):  # noqa: N818 - says what happened, as its siblings do
    """Slack did not do what it was asked to; `error` is Slack's own word for why."""

    def __init__(self, method: str, error: str) -> None:
        super().__init__(f"{method}: {error}")
        self.error = error


class Wire:
    """The bot's voice in one workspace.

    What is safe to repeat is repeated after a passing failure. A post is not: after a doubtful failure the thread is
    searched for it first, by the key in its metadata.
    """

    def __init__(self, client: AsyncWebClient) -> None:
        self._client = client
        self._names: dict[str, str | None] = {}

    async def post(self, place: Place, text: str, key: str, persona: Persona | None = None) -> str:
        """Post a message exactly once and return its ts. `key` tells it from every other post."""
        arguments: dict[str, Any] = {
            "channel": place.channel,
            "thread_ts": place.thread_ts,
            "text": text,
            "unfurl_links": False,
            "unfurl_media": False,
            "metadata": {"event_type": POST_EVENT, "event_payload": {"key": key}},
        }
        if persona is not None:
            arguments |= {"username": persona.name, "icon_emoji": persona.emoji}
        for attempt in range(_ATTEMPTS):
            try:
                response = await self._client.chat_postMessage(**arguments)
                return str(response["ts"])
            except (SlackApiError, aiohttp.ClientError, TimeoutError, OSError) as e:
                await self._pause("chat.postMessage", e, attempt)
                if _may_have_happened(e) and (found := await self._find(place, key)):
                    return found
        raise SlackCallFailed("chat.postMessage", "no answer")

    async def update(self, channel: str, ts: str, text: str) -> None:
        await self._call("chat.update", {"channel": channel, "ts": ts, "text": text, "parse": "none"})

    async def delete(self, channel: str, ts: str) -> None:
        await self._call("chat.delete", {"channel": channel, "ts": ts}, done=("message_not_found",))

    async def react(self, channel: str, ts: str, name: str) -> None:
        await self._call(
            "reactions.add", {"channel": channel, "timestamp": ts, "name": name}, done=("already_reacted",)
        )

    async def unreact(self, channel: str, ts: str, name: str) -> None:
        done = ("no_reaction", "message_not_found")
        await self._call("reactions.remove", {"channel": channel, "timestamp": ts, "name": name}, done=done)

    async def display_name(self, user: str) -> str | None:
        """The name people see; `None` where Slack does not tell. Asked once per person."""
        if user not in self._names:
            try:
                profile = (await self._call("users.info", {"user": user}))["user"]
            except SlackCallFailed as e:
                log.info("slack.no_name", user=user, error=e.error)
                return None
            shown = profile.get("profile", {}).get("display_name")
            self._names[user] = shown or profile.get("real_name") or profile.get("name")
        return self._names[user]

    async def _call(self, method: str, arguments: dict[str, Any], done: tuple[str, ...] = ()) -> Any:
        for attempt in range(_ATTEMPTS):
            try:
                return await self._client.api_call(method, data=arguments)
            except SlackApiError as e:
                if e.response["error"] in done:
                    return e.response
                await self._pause(method, e, attempt)
            except (aiohttp.ClientError, TimeoutError, OSError) as e:
                await self._pause(method, e, attempt)
        raise SlackCallFailed(method, "no answer")

    async def _pause(self, method: str, error: Exception, attempt: int) -> None:
        """Wait before the next attempt, or raise where another one cannot help."""
        word = _word(error)
        if word not in _TRANSIENT or attempt == _ATTEMPTS - 1:
            raise SlackCallFailed(method, word) from error
        delay_s = _BACKOFF_S * 2**attempt
        if isinstance(error, SlackApiError) and word == "ratelimited":
            delay_s = float(error.response.headers.get("Retry-After", delay_s))
        log.info("slack.retry", method=method, error=word, delay_s=delay_s)
        await asyncio.sleep(delay_s)

    async def _find(self, place: Place, key: str) -> str | None:
        """Look a doubtful post up in its thread (or channel) by its key."""
        arguments: dict[str, Any] = {"channel": place.channel, "include_all_metadata": True, "limit": 100}
        method = "conversations.history"
        if place.thread_ts is not None:
            method, arguments["ts"] = "conversations.replies", place.thread_ts
        response = await self._call(method, arguments)
        for message in response["messages"]:
            if (message.get("metadata") or {}).get("event_payload", {}).get("key") == key:
                return str(message["ts"])
        return None


def _word(error: Exception) -> str:
    """Slack's word for an error; what is no answer of Slack's counts as unavailable."""
    if not isinstance(error, SlackApiError) or error.response.status_code >= _SERVER_ERROR:
        return "service_unavailable"
    word = error.response["error"] if isinstance(error.response.data, dict) else "service_unavailable"
    return str(word)


def _may_have_happened(error: Exception) -> bool:
    return _word(error) != "ratelimited"
