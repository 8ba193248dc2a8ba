"""Slack's Web API: rate-limited calls with retries, and posts that are sent exactly once."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from dataclasses import dataclass, replace
from http import HTTPStatus
from itertools import count
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import aiohttp
import structlog
from slack_sdk.errors import SlackApiError

from connector.observer import Observer
from connector.slack_api.errors import (
    LIMITED,
    NO_ANSWER,
    NO_THREAD,
    Backoff,
    RetryDecision,
    SlackCallFailed,
    error_boundary,
    failure,
)
from connector.slack_api.rate_limiter import CallCancelled, CallSlot, Priority

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
    from contextlib import AbstractAsyncContextManager

    from slack_sdk.web.async_client import AsyncWebClient

    from connector.events import SlackMessage, ThreadAddress
    from connector.formatting.content import Content
    from connector.protocols import Persona
    from connector.slack_api.rate_limiter import RateLimiter

    Arguments = dict[str, Any]
    Message = dict[str, Any]
    Look = Callable[[], Awaitable[dict[str, Any] | None]]
    Confirm = Callable[[], Awaitable[None]]

log = structlog.get_logger(__name__)

T = TypeVar("T")

_PAGE = 200
# How much the clock of this process may differ from Slack's. Requests that Slack signs may differ as much.
_CLOCKS_DIFFER_S = 300.0
_POST_EVENT = "amplifier_post"
_ATTEMPTS = 4
_BETWEEN_ATTEMPTS = Backoff(0.5, 4.0)
# A rate limit names its wait, so it does not count as a failed attempt; this bounds the number of waits.
_RATE_LIMITS = 30
_PAUSE_AFTER_LIMIT_S = 1.0
# Between two rounds of attempts in `retry_until_done`.
_BETWEEN_ROUNDS = Backoff(2.0, 30.0)
# A download in which nothing arrives for this long has failed.
_SILENT_S = 15.0
_UNSENDABLE = "unsendable"
_RESPONSE_URLS = "https://hooks.slack.com/"
_PERSONA = ("username", "icon_emoji")
_CUSTOMIZE = "chat:write.customize"


@dataclass(frozen=True, slots=True)
class PendingCalls:
    """Checks around a call: `look` returns the result if the call already took effect, `confirm` raises to prevent it.

    A call without `look` may take effect twice. A call `in_doubt` may already have taken effect. `on_doubt` is called
    after an attempt of unknown outcome: it may take effect later, when `look` no longer finds it.
    """

    look: Look | None = None
    in_doubt: bool = False
    confirm: Confirm | None = None
    on_doubt: Callable[[], None] = lambda: None


class ThreadHistory:
    """Reads messages from Slack by `SlackClient.call`, and raises its errors."""

    page = _PAGE

    def __init__(self, call: Callable[..., Awaitable[Any]]) -> None:
        self._call = call

    async def known(self, channel: str, thread_ts: str | None) -> list[Message] | None:
        """Return the messages that need no call; `None`: Slack has to be asked."""
        del channel, thread_ts
        return None

    async def messages(
        self, place: ThreadAddress, slot: CallSlot | None = None, oldest: str = ""
    ) -> AsyncIterator[Message]:
        """Yield messages as `posts` does; those of the bot may be missing."""
        if (known := await self.known(place.channel, place.thread_ts)) is None:
            async for each in self.posts(place, slot, oldest):
                yield each
            return
        for each in known:
            yield each

    async def posts(
        self, place: ThreadAddress, slot: CallSlot | None = None, oldest: str = ""
    ) -> AsyncIterator[Message]:
        """Yield the messages of a thread, oldest first; of a channel, newest first.

        Messages that are older than `oldest` may be missing. If it is blank, a channel yields one page of the latest.
        """
        slot = slot or CallSlot(run=place.conversation_id)
        arguments: dict[str, Any] = {"channel": place.channel, "include_all_metadata": True, "limit": self.page}
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
            if not arguments["cursor"] or (place.thread_ts is None and not oldest):
                return

    def posts_since(self, place: ThreadAddress, since: str, slot: CallSlot | None = None) -> AsyncIterator[Message]:
        """Yield all messages of a thread; of a channel, those since a time (a ts by Slack's or this process's clock).

        If the time is blank or 0, a channel yields one page of the latest.
        """
        oldest_s = max(float(since or 0) - _CLOCKS_DIFFER_S, 0) if place.thread_ts is None else 0
        return self.posts(place, slot, oldest=f"{oldest_s:.6f}" if oldest_s else "")

    async def message(self, channel: str, ts: str, slot: CallSlot | None = None) -> Message | None:
        """Return a message with its metadata; `None`: it does not exist."""
        arguments = {"channel": channel, "ts": ts, "include_all_metadata": True, "limit": 1}
        page = await self._call("conversations.replies", arguments, slot or CallSlot(), done=("thread_not_found",))
        return next((each for each in page.get("messages", ()) if each.get("ts") == ts), None)

    async def find(self, place: ThreadAddress, key: str, since: str = "") -> Message | None:
        """Return the bot's post with this key in a thread (or channel); `since` as in `posts_since`."""
        async for message in self.posts_since(place, since):
            if key_of(message) == key:
                return message
        return None


def key_of(message: Message) -> str:
    """Return the key of a post of the bot; blank for other messages."""
    metadata = message.get("metadata") or {}
    is_ours = metadata.get("event_type") == _POST_EVENT
    return str(metadata.get("event_payload", {}).get("key", "")) if is_ours else ""


class AnswerKey(NamedTuple):
    """The place of an answer in the logs: the instance, the first message of its run, and its number in the run."""

    instance: str
    prompt_id: str
    part: int


def post_metadata(key: str, answer: AnswerKey | None = None) -> str:
    """Return the metadata of a post with an idempotency key, in JSON; `answer` as in `answer_of`."""
    payload = {"key": key}
    if answer is not None:
        payload |= {"prompt": answer.prompt_id, "instance": answer.instance}
    return json.dumps({"event_type": _POST_EVENT, "event_payload": payload})


def answer_of(message: Message) -> AnswerKey | None:
    """Return the key of an answer of an agent; `None` for other messages."""
    payload, part = (message.get("metadata") or {}).get("event_payload") or {}, key_of(message).split(":")[1:2]
    if not part or not part[0].isdigit() or "prompt" not in payload:
        return None
    return AnswerKey(str(payload.get("instance", "")), str(payload["prompt"]), int(part[0]))


class SlackClient:
    """The Web API of one workspace.

    Idempotent calls are retried after a transient failure. Before a post of unknown outcome is retried, the thread is
    searched for it by the idempotency key in its metadata.

    Args:
        client: the SDK client, without retries of its own.
        scheduler: grants each call.
        observer: gets a report of each call that is sent.
    """

    def __init__(self, client: AsyncWebClient, scheduler: RateLimiter, observer: Observer | None = None) -> None:
        self._client = client
        self._scheduler = scheduler
        self._observer = observer or Observer()
        self.history = ThreadHistory(self.call)
        self._lacks_customize_scope = False
        # Whether Slack accepts buttons that rate a message; True until it refuses them.
        self.takes_feedback = True
        # Whether Slack accepts `markdown` blocks; True until it refuses one.
        self.takes_markdown = True
        # Whether Slack makes canvases; True until it says otherwise.
        self.takes_canvases = True
        # Whether Slack accepts cards of tasks; True until it refuses one.
        self.takes_cards = True
        # Whether the app has streams; True until Slack says otherwise.
        self.takes_streams = True
        self._closed_by: asyncio.Future[SlackCallFailed] = asyncio.get_running_loop().create_future()

    async def closed(self) -> SlackCallFailed:
        """Wait until Slack revokes access to the workspace, and return the error."""
        return await asyncio.shield(self._closed_by)

    async def post(  # noqa: PLR0913 - the parts of a post
        self,
        place: ThreadAddress,
        content: Content,
        key: str,
        persona: Persona | None = None,
        *,
        slot: CallSlot | None = None,
        in_doubt: bool = False,
        since: str = "",
        confirm: Confirm | None = None,
        on_doubt: Callable[[], None] = lambda: None,
        answer: AnswerKey | None = None,
    ) -> str:
        """Post a message exactly once and return its ts.

        `key` is the idempotency key, `answer` as in `answer_of`. A post `in_doubt` may already be in the thread, so it
        is looked up first; `since` is a time before any attempt, as in `posts_since`. `confirm` is awaited right before
        each attempt; an exception from it prevents the attempt. After `on_doubt` is called, a copy may arrive late.
        """
        slot = slot or CallSlot(run=place.conversation_id)
        arguments: Arguments = {
            "channel": place.channel,
            **content.arguments(),
            "unfurl_links": False,
            "unfurl_media": False,
            "metadata": post_metadata(key, answer),
        }
        if place.thread_ts is not None:
            arguments["thread_ts"] = place.thread_ts
        if persona is not None:
            arguments |= {"username": persona.name, "icon_emoji": persona.emoji}
        once = PendingCalls(lambda: self._find(place, key, since), in_doubt, confirm, on_doubt)
        response = await self.call("chat.postMessage", arguments, slot, once=once)
        ts = str(response["ts"])
        # If the thread's root was deleted, Slack posts to the channel instead: delete that post.
        if place.thread_ts is not None and "thread_ts" not in response.get("message", {}):
            await self.delete(place.channel, ts)
            raise SlackCallFailed("chat.postMessage", NO_THREAD)
        return ts

    async def _find(self, place: ThreadAddress, key: str, since: str) -> dict[str, Any] | None:
        """Return the response to a post of unknown outcome; `None`: the post does not exist."""
        try:
            found = await self.history.find(place, key, since)
        except SlackCallFailed as e:
            # If the thread's root was deleted, Slack may have put the post into the channel: delete it.
            channel = replace(place, thread_ts=None)
            stray = await self.history.find(channel, key, since) if e.error == NO_THREAD else None
            if stray is not None:
                await self.delete(place.channel, stray["ts"])
            raise
        return None if found is None else {"ts": found["ts"], "message": found}

    async def post_ephemeral(
        self, where: SlackMessage | ThreadAddress, user: str, content: Content, slot: CallSlot | None = None
    ) -> None:
        """Post a message that only one user sees, in the thread of `where`; without a `thread_ts`, in its channel."""
        arguments: Arguments = {"channel": where.channel, "user": user, **content.arguments()}
        if where.thread_ts is not None:
            arguments["thread_ts"] = where.thread_ts
        await self.call("chat.postEphemeral", arguments, slot or CallSlot())

    @staticmethod
    async def retry_until_done(call: Callable[[], Awaitable[T]]) -> T:
        """Retry a call while Slack is unavailable, and return its result.

        Also retries after access to the workspace is revoked: the process then ends, and the next owner makes the call.

        Raises:
            SlackCallFailed: Slack refused the call.
        """
        for failures in count(1):
            try:
                return await call()
            except SlackCallFailed as e:
                if e.decision not in (RetryDecision.TRANSIENT, RetryDecision.WORKSPACE_CLOSED):
                    raise
                pause_s = _BETWEEN_ROUNDS.delay_s(failures)
                log.warning("slack.unavailable", error=str(e), again_in_s=pause_s)
            await asyncio.sleep(pause_s)
        raise AssertionError("endless")

    async def direct_with(self, user: str) -> str:
        """Return the channel of direct messages with a user, where a post can be looked up; Slack begins it if needed.

        Raises:
            SlackCallFailed: Slack refuses, or the app lacks the scope for it.
        """
        opened = await self.call("conversations.open", {"users": user}, CallSlot(run=user))
        return str(opened["channel"]["id"])

    async def update(self, channel: str, ts: str, compose: Callable[[], Content], slot: CallSlot) -> None:
        """Edit a message. `compose` is called when the call is granted, so the latest content wins."""
        await self.call(
            "chat.update",
            # Without `blocks`, the message would keep its old ones.
            lambda: {"channel": channel, "ts": ts, "blocks": "[]", **compose().arguments(), "parse": "none"},
            replace(slot, priority=Priority.STATUS),
        )

    async def respond(self, url: str, content: Content) -> None:
        """Replace the message that only one person sees, at the `response_url` of that person's click.

        Raises:
            SlackCallFailed: the URL is not Slack's, or the call failed.
        """
        session, api = self._client.session, self._client.base_url.partition("/api/")[0]
        if session is None or not url.startswith((_RESPONSE_URLS, f"{api}/")):
            raise SlackCallFailed("response_url", "not_slack")
        body = {"replace_original": True, "text": content.text, "blocks": list(content.blocks)}
        try:
            async with session.post(url, json=body, allow_redirects=False) as response:
                status = response.status
        except (aiohttp.ClientError, TimeoutError, OSError) as e:
            raise SlackCallFailed("response_url", NO_ANSWER) from e
        if status != HTTPStatus.OK:
            raise SlackCallFailed("response_url", str(status))

    @property
    def base_url(self) -> str:
        return self._client.base_url

    def get(self, url: str) -> AbstractAsyncContextManager[aiohttp.ClientResponse]:
        """Request an address of Slack with the bot's token; it follows no redirect. A large file may take long.

        Raises:
            aiohttp.ClientError: there is no answer.
        """
        session = self._client.session
        if session is None:
            raise aiohttp.ClientConnectionError("the client is closed")
        headers = {"Authorization": f"Bearer {self._client.token}"}
        timeout = aiohttp.ClientTimeout(sock_connect=_SILENT_S, sock_read=_SILENT_S)
        return session.get(url, headers=headers, allow_redirects=False, timeout=timeout)

    async def upload(self, address: str, content: bytes) -> None:
        """Send a file to its upload address. It is visible only after it is shared.

        Raises:
            SlackCallFailed: the upload failed.
        """
        session = self._client.session
        if session is None:
            raise SlackCallFailed("upload", "no_session")
        try:
            async with session.post(address, data=content, allow_redirects=False) as response:
                status = response.status
        except (aiohttp.ClientError, TimeoutError, OSError) as e:
            raise SlackCallFailed("upload", NO_ANSWER) from e
        if status != HTTPStatus.OK:
            raise SlackCallFailed("upload", NO_ANSWER if status >= HTTPStatus.INTERNAL_SERVER_ERROR else str(status))

    async def delete(self, channel: str, ts: str, slot: CallSlot | None = None) -> None:
        """Delete a message of the bot, if it exists."""
        arguments = {"channel": channel, "ts": ts}
        await self.call("chat.delete", arguments, slot or CallSlot(Priority.STATUS), done=("message_not_found",))

    async def react(self, channel: str, ts: str, name: str, slot: CallSlot, confirm: Confirm | None = None) -> None:
        """Add a reaction to a message; `confirm` as in `post`."""
        arguments = {"channel": channel, "timestamp": ts, "name": name}
        done = ("already_reacted", "message_not_found")
        slot = replace(slot, priority=Priority.REACTION)
        await self.call("reactions.add", arguments, slot, done=done, once=PendingCalls(confirm=confirm))

    async def unreact(self, channel: str, ts: str, name: str) -> None:
        arguments = {"channel": channel, "timestamp": ts, "name": name}
        done = ("no_reaction", "message_not_found")
        await self.call("reactions.remove", arguments, CallSlot(Priority.REACTION), done=done)

    async def call(
        self,
        method: str,
        arguments: Arguments | Callable[[], Arguments],
        slot: CallSlot,
        done: tuple[str, ...] = (),
        once: PendingCalls | None = None,
    ) -> dict[str, Any]:
        """Call a method when the rate limiter grants it, and retry it after transient failures.

        Errors in `done` mean that nothing is left to do; the result is then empty. Without `once`, the call may take
        effect twice.

        Raises:
            SlackCallFailed: Slack refused, or all attempts failed.
            CallCancelled: the call was cancelled while it waited.
        """
        failed = limited = 0
        once = once or PendingCalls()
        while True:
            try:
                return await self._attempt(method, arguments, slot, once, send=failed < _ATTEMPTS)
            except SlackCallFailed as e:
                if e.error in done:
                    return {}
                once = replace(once, in_doubt=once.in_doubt or e.error != LIMITED)
                limited, failed = (limited + 1, failed) if e.error == LIMITED else (limited, failed + 1)
                # One more round after the last attempt looks whether that attempt took effect.
                last = _ATTEMPTS + (1 if once.look is not None else 0)
                if not e.is_transient or failed >= last or limited > _RATE_LIMITS:
                    if e.decision is RetryDecision.WORKSPACE_CLOSED and not self._closed_by.done():
                        self._closed_by.set_result(e)
                    raise
                log.info("slack.retry", method=method, error=e.error, retry_after_s=e.retry_after_s)
                if e.error != LIMITED:
                    await asyncio.sleep(_BETWEEN_ATTEMPTS.delay_s(failed))

    async def try_once(
        self,
        method: str,
        arguments: Arguments | Callable[[], Arguments],
        slot: CallSlot,
        confirm: Confirm | None = None,
    ) -> dict[str, Any]:
        """Call a method when the rate limiter grants it, without a retry; `confirm` as in `post`.

        Raises:
            SlackCallFailed: Slack refused, or did not answer: then the call may have taken effect.
            CallCancelled: the call was cancelled while it waited.
        """
        return await self._attempt(method, arguments, slot, PendingCalls(confirm=confirm), send=True)

    async def _attempt(
        self,
        method: str,
        arguments: Arguments | Callable[[], Arguments],
        slot: CallSlot,
        once: PendingCalls,
        *,
        send: bool,
    ) -> dict[str, Any]:
        """Return the result of a call in doubt if it took effect; else send it, if `send` allows another attempt."""
        if once.look is not None and once.in_doubt and (there := await once.look()):
            return there
        if not send:
            raise SlackCallFailed(method, NO_ANSWER)
        channel = "" if callable(arguments) else str(arguments.get("channel", ""))
        await self._scheduler.wait(method, channel, slot)
        if once.confirm is not None:
            await once.confirm()
        slot.scope.check()
        try:
            response = await self._send(method, arguments() if callable(arguments) else arguments)
        except SlackCallFailed as e:
            self._observer.called(method, e.error)
            if e.error == LIMITED:
                pause_s = _PAUSE_AFTER_LIMIT_S if e.retry_after_s is None else e.retry_after_s
                await self._scheduler.pause(method, channel, pause_s)
            elif e.is_transient:
                once.on_doubt()
            raise
        self._observer.called(method, "ok")
        return response

    async def _send(self, method: str, arguments: Arguments) -> dict[str, Any]:
        """Send a call once. Without the scope for personas, post under the bot's own name."""
        has_persona = "username" in arguments
        plain = {name: value for name, value in arguments.items() if name not in _PERSONA} if has_persona else arguments
        if self._lacks_customize_scope:
            arguments, has_persona = plain, False
        try:
            response = await self._client.api_call(method, data=arguments)
        except SlackApiError as e:
            failed = failure(method, e)
            may_lack = (_CUSTOMIZE, "") if method == "chat.postMessage" else (_CUSTOMIZE,)
            if not has_persona or failed.error != "missing_scope" or failed.needed not in may_lack:
                raise failed from e
        except (aiohttp.ClientError, TimeoutError, OSError) as e:
            raise SlackCallFailed(method, NO_ANSWER) from e
        except UnicodeEncodeError as e:  # nothing was sent
            raise SlackCallFailed(method, _UNSENDABLE) from e
        except (AttributeError, TypeError, ValueError) as e:
            # The SDK raises these on a response that is not Slack's: a gateway's page, or a truncated body.
            raise SlackCallFailed(method, NO_ANSWER) from e
        else:
            if not isinstance(response.data, dict):
                raise SlackCallFailed(method, NO_ANSWER)
            return response.data
        answer = await self._send(method, plain)
        self._lacks_customize_scope = True
        log.warning("slack.no_personas", needed=_CUSTOMIZE)
        return answer


async def best_effort(call: Coroutine[Any, Any, object]) -> None:
    """Await a call to Slack; log its failure and continue. `LeaseLost` is raised."""
    with error_boundary("slack.call_crashed"), suppress(CallCancelled):  # a cosmetic call must not end a run
        try:
            await call
        except SlackCallFailed as e:
            log.warning("slack.call_failed", error=str(e))
