"""Calls to Slack's Web API, with what each of its errors means for us."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import aiohttp
import structlog
from slack_sdk.errors import SlackApiError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from slack_sdk.web.async_client import AsyncWebClient

    from connector.messages import Place
    from connector.protocols import Persona

    Look = Callable[[], Awaitable[dict[str, Any] | None]]
    Confirm = Callable[[], Awaitable[None]]

log = structlog.get_logger(__name__)

T = TypeVar("T")

_ATTEMPTS = 4
_BACKOFF_S = 0.5
# Slack says how long to wait, so a rate limit is no failed attempt; but nobody waits for ever.
_RATE_LIMITS = 30
_LIMITED = "ratelimited"
_NO_ANSWER = "no_answer"
_TRANSIENT = frozenset({_LIMITED, _NO_ANSWER, "service_unavailable", "fatal_error", "internal_error"})
_SERVER_ERROR = 500
_PAGE = 200
# Between two rounds of attempts, where a call must be made some time: it doubles from the first to the second.
_PAUSE_S = (2.0, 30.0)
POST_EVENT = "amplifier_post"


class SlackCallFailed(Exception):  # noqa: N818 - says what happened, as its siblings do
    """Slack did not do what it was asked to.

    Attributes:
        error: Slack's own word for why; `no_answer` where Slack did not answer, or something else did in its place.
        retry_after_s: how long Slack asks us to wait.
    """

    def __init__(self, method: str, error: str, retry_after_s: float | None = None) -> None:
        super().__init__(f"{method}: {error}")
        self.error = error
        self.retry_after_s = retry_after_s

    @property
    def is_passing(self) -> bool:
        """Whether the same may be possible later: Slack was busy or away."""
        return self.error in _TRANSIENT


@dataclass(frozen=True, slots=True)
class _Sending:
    """What is asked around a call: `look` finds out whether it has happened, and `confirm` whether to send it.

    One without `look` may happen twice.
    """

    look: Look | None
    in_doubt: bool
    confirm: Confirm | None


class Wire:
    """The bot's voice in one workspace.

    What is safe to repeat is repeated after a passing failure. A post is not: after a doubtful failure the thread is
    searched for it first, by the key in its metadata.
    """

    def __init__(self, client: AsyncWebClient) -> None:
        self._client = client

    async def post(  # noqa: PLR0913 - what a post consists of
        self,
        place: Place,
        text: str,
        key: str,
        persona: Persona | None = None,
        *,
        in_doubt: bool = False,
        confirm: Confirm | None = None,
    ) -> str:
        """Post a message exactly once and return its ts.

        `key` tells it from every other post. One that is `in_doubt` may have been posted already: it is looked for.
        `confirm` is awaited right before each time that it is sent, and what it raises keeps it from that. It is asked
        again afterwards: a process that stood still in between may not have been the only one to post.
        """
        arguments: dict[str, Any] = {
            "channel": place.channel,
            "text": text,
            "unfurl_links": False,
            "unfurl_media": False,
            "metadata": json.dumps({"event_type": POST_EVENT, "event_payload": {"key": key}}),
        }
        if place.thread_ts is not None:
            arguments["thread_ts"] = place.thread_ts
        if persona is not None:
            arguments |= {"username": persona.name, "icon_emoji": persona.emoji}
        sending = _Sending(lambda: self._find(place, key), in_doubt, confirm)
        response = await self.call("chat.postMessage", arguments, once=sending)
        ts = str(response["ts"])
        # Where the thread's root is gone, Slack posts to the channel instead: that is undone.
        if place.thread_ts is not None and "thread_ts" not in response.get("message", {}):
            await self.delete(place.channel, ts)
            raise SlackCallFailed("chat.postMessage", "thread_not_found")
        if confirm is not None:
            try:
                await confirm()
            except Exception:
                await self._take_back(place, key, ts)
                raise
        return ts

    async def _take_back(self, place: Place, key: str, ts: str) -> None:
        """Delete a post if there is another one with its key."""
        async for message in self.messages(place):
            if key_of(message) == key and message["ts"] != ts:
                await self.delete(place.channel, ts)
                return

    @staticmethod
    async def insisting(call: Callable[[], Awaitable[T]]) -> T:
        """What a call gives, made again for as long as Slack is away.

        Raises:
            SlackCallFailed: Slack refused.
        """
        pause_s = _PAUSE_S[0]
        while True:
            try:
                return await call()
            except SlackCallFailed as e:
                if not e.is_passing:
                    raise
                log.warning("slack.away", error=str(e), again_in_s=pause_s)
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, _PAUSE_S[1])

    async def update(self, channel: str, ts: str, text: str) -> None:
        await self.call("chat.update", {"channel": channel, "ts": ts, "text": text, "parse": "none"})

    async def delete(self, channel: str, ts: str) -> None:
        await self.call("chat.delete", {"channel": channel, "ts": ts}, done=("message_not_found",))

    async def react(self, channel: str, ts: str, name: str, confirm: Confirm | None = None) -> None:
        """Put an emoji on a message; `confirm` as in `post`."""
        arguments = {"channel": channel, "timestamp": ts, "name": name}
        sending = _Sending(None, in_doubt=False, confirm=confirm)
        await self.call("reactions.add", arguments, done=("already_reacted", "message_not_found"), once=sending)

    async def unreact(self, channel: str, ts: str, name: str) -> None:
        arguments = {"channel": channel, "timestamp": ts, "name": name}
        await self.call("reactions.remove", arguments, done=("no_reaction", "message_not_found"))

    async def call(
        self,
        method: str,
        arguments: dict[str, Any],
        done: tuple[str, ...] = (),
        once: _Sending | None = None,
    ) -> dict[str, Any]:
        """Call a method, again after a failure that may pass.

        `done` are the errors that say that there is nothing left to do. Without `once` the call is one that may happen
        twice.

        Raises:
            SlackCallFailed: Slack refused, or did not answer several times.
        """
        failed = limited = 0
        in_doubt = once is not None and once.in_doubt
        while True:
            try:
                return await self._attempt(method, arguments, once, in_doubt=in_doubt, send=failed < _ATTEMPTS)
            except SlackCallFailed as e:
                if e.error in done:
                    return {}
                in_doubt = in_doubt or e.error != _LIMITED
                limited, failed = (limited + 1, failed) if e.error == _LIMITED else (limited, failed + 1)
                # One round more than there are attempts: the last one may have happened, too.
                last = _ATTEMPTS + (1 if once is not None and once.look is not None else 0)
                if e.error not in _TRANSIENT or failed >= last or limited > _RATE_LIMITS:
                    raise
                delay_s = _BACKOFF_S * 2 ** max(failed - 1, 0) if e.retry_after_s is None else e.retry_after_s
                log.info("slack.retry", method=method, error=e.error, delay_s=delay_s)
            await asyncio.sleep(delay_s)

    async def _attempt(
        self, method: str, arguments: dict[str, Any], once: _Sending | None, *, in_doubt: bool, send: bool
    ) -> dict[str, Any]:
        """Look whether it has happened, where that is in doubt; else do it, if it may still be tried."""
        if once is not None and once.look is not None and in_doubt and (there := await once.look()):
            return there
        if not send:
            raise SlackCallFailed(method, _NO_ANSWER)
        if once is not None and once.confirm is not None:
            await once.confirm()
        return await self._once(method, arguments)

    async def _once(self, method: str, arguments: dict[str, Any]) -> dict[str, Any]:
        try:
            response = await self._client.api_call(method, data=arguments)
        except SlackApiError as e:
            raise _failure(method, e) from e
        except (aiohttp.ClientError, TimeoutError, OSError) as e:
            raise SlackCallFailed(method, _NO_ANSWER) from e
        except (AttributeError, TypeError, ValueError) as e:
            # How the SDK fails on an answer that is not Slack's: a gateway's page, or half a body.
            raise SlackCallFailed(method, _NO_ANSWER) from e
        if not isinstance(response.data, dict):
            raise SlackCallFailed(method, _NO_ANSWER)
        return response.data

    async def messages(self, place: Place) -> AsyncIterator[dict[str, Any]]:
        """The messages of a thread, oldest first; of a channel, the latest ones, newest first."""
        arguments: dict[str, Any] = {"channel": place.channel, "include_all_metadata": True, "limit": _PAGE}
        method = "conversations.history"
        if place.thread_ts is not None:
            method, arguments["ts"] = "conversations.replies", place.thread_ts
        while True:
            page = await self.call(method, arguments)
            for message in page["messages"]:
                yield message
            arguments["cursor"] = (page.get("response_metadata") or {}).get("next_cursor")
            if not arguments["cursor"] or place.thread_ts is None:
                return

    async def find(self, place: Place, key: str) -> str | None:
        """The ts of a post of ours in its thread (or channel), by its key."""
        found = await self._find(place, key)
        return None if found is None else str(found["ts"])

    async def message(self, channel: str, ts: str) -> dict[str, Any] | None:
        """A message, with its metadata; `None` where it is gone."""
        arguments = {"channel": channel, "ts": ts, "include_all_metadata": True, "limit": 1}
        page = await self.call("conversations.replies", arguments, done=("thread_not_found",))
        return next((each for each in page.get("messages", ()) if each.get("ts") == ts), None)

    async def _find(self, place: Place, key: str) -> dict[str, Any] | None:
        """Look a doubtful post up in its thread (or channel) by its key."""
        async for message in self.messages(place):
            if key_of(message) == key:
                return {"ts": message["ts"], "message": message}
        return None


def key_of(message: dict[str, Any]) -> str:
    """The key of a post of ours; blank for other messages."""
    metadata = message.get("metadata") or {}
    is_ours = metadata.get("event_type") == POST_EVENT
    return str(metadata.get("event_payload", {}).get("key", "")) if is_ours else ""


def _failure(method: str, error: SlackApiError) -> SlackCallFailed:
    response: Any = error.response
    data = getattr(response, "data", None)
    status = getattr(response, "status_code", _SERVER_ERROR)
    if not isinstance(data, dict) or status >= _SERVER_ERROR:
        return SlackCallFailed(method, _NO_ANSWER)
    word = str(data.get("error") or _NO_ANSWER)
    if word != _LIMITED:
        return SlackCallFailed(method, word)
    return SlackCallFailed(method, word, _seconds(response.headers.get("Retry-After")))


def _seconds(header: str | None) -> float | None:
    try:
        return float(header) if header is not None else None
    except ValueError:
        return None
