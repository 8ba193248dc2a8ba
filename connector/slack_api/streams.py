"""Slack's streams: a message that shows a text while it is written, and is completed once."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import structlog

from connector.slack_api.client import PendingCalls, key_of, post_metadata
from connector.slack_api.errors import NO_THREAD, SlackCallFailed
from connector.slack_api.rate_limiter import CallSlot, Priority

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from connector.events import SlackMessage
    from connector.formatting.content import Content
    from connector.protocols import Persona
    from connector.slack_api.client import AnswerKey, Confirm, SlackClient

log = structlog.get_logger(__name__)

_START, _APPEND, _STOP = "chat.startStream", "chat.appendStream", "chat.stopStream"
# Errors of a stream that has ended or was deleted.
_ENDED = ("message_not_in_streaming_state", "message_not_found", "stopped_by_user")


@dataclass(frozen=True, slots=True)
class Streamed:
    """A message that shows a part of a post's Markdown.

    Args:
        at: where its part begins, in characters.
        sent: number of characters of its part that it shows; -1: unknown.
        opening, closing: the fences that continue and end a code block that begins or continues in another message.
        is_ended: whether it is complete: the next message continues.
    """

    ts: str
    at: int = 0
    sent: int = 0
    opening: str = ""
    closing: str = ""
    is_ended: bool = False


async def start(
    client: SlackClient, first: SlackMessage, persona: Persona, slot: CallSlot, confirm: Confirm | None = None
) -> str:
    """Start a stream without text in the thread of a message, and return its ts. It is not retried.

    Raises:
        SlackCallFailed: Slack refused, or did not answer: then the stream may exist.
    """
    arguments: dict[str, Any] = {"channel": first.channel, "thread_ts": first.place.thread_ts}
    arguments |= {"username": persona.name, "icon_emoji": persona.emoji}
    if not first.direct:
        arguments |= {"recipient_user_id": first.user, "recipient_team_id": first.team}
    return str((await client.try_once(_START, arguments, slot, confirm))["ts"])


async def append(client: SlackClient, channel: str, ts: str, text: Callable[[], str], slot: CallSlot) -> None:
    """Append to a stream what `text` returns when the call is granted. It is not retried.

    Raises:
        SlackCallFailed: Slack refused, or did not answer: then the text may have been appended.
    """
    await client.try_once(_APPEND, lambda: {"channel": channel, "ts": ts, "markdown_text": text()}, slot)


async def end(  # noqa: PLR0913, PLR0917 - the parts of a post
    client: SlackClient, channel: str, ts: str, closing: str, metadata: str, slot: CallSlot
) -> None:
    """End a stream whose text continues in another message.

    Raises:
        SlackCallFailed: Slack refused, or did not answer.
    """
    closed = {"markdown_text": closing} if closing else {}
    await client.try_once(_STOP, {"channel": channel, "ts": ts, "metadata": metadata, **closed}, slot)


async def complete(  # noqa: PLR0913, PLR0917 - the parts of a post
    client: SlackClient,
    channel: str,
    streamed: Sequence[Streamed],
    native: str,
    content: Content,
    key: str,
    answer: AnswerKey,
    slot: CallSlot,
    *,
    in_doubt: bool,
    confirm: Confirm,
) -> str:
    """Complete the messages of a stream, and return the ts of the last one. Repeated calls have the same result.

    `native` is the whole Markdown, `content` has the text of the whole post and the blocks below it, `key` is its
    idempotency key.

    Raises:
        SlackCallFailed: Slack refused; the messages may be incomplete.
        CallCancelled: the scope of the slot was cancelled before.
    """
    for place, (each, following) in enumerate(zip(streamed, [*streamed[1:], None], strict=True)):
        if each.is_ended and following is not None and not in_doubt:
            continue
        message_key = f"{key}.{place}" if following else key
        if in_doubt and await _is_complete(client, channel, each.ts, message_key):
            continue
        text, blocks = native[each.at : following.at if following else None], () if following else content.blocks
        arguments = {"channel": channel, "ts": each.ts, "metadata": post_metadata(message_key, answer)}
        is_known = following is None and each.sent >= 0 and not in_doubt
        if is_known and await _ended_with(client, each, text, arguments, blocks, slot, confirm):
            continue
        if is_known and await _is_complete(client, channel, each.ts, message_key):  # the answer of Slack was lost
            continue
        once = PendingCalls(confirm=confirm)
        await client.call(_STOP, {"channel": channel, "ts": each.ts}, slot, done=_ENDED, once=once)
        body = f"{continued(each, text)}{each.closing}"
        shown = {
            "text": body if len(streamed) > 1 else content.text,
            "blocks": json.dumps([{"type": "markdown", "text": body}, *blocks]),
            "parse": "none",
        }
        try:
            await client.call("chat.update", arguments | shown, slot, once=once)
        except SlackCallFailed as e:
            # A message with the name of an agent cannot be edited; an earlier one is complete as it is.
            if following is None or each.sent < 0 or e.error != "cant_update_message":
                raise
        else:
            await _is_complete(client, channel, each.ts, message_key)  # refuses one outside of the thread
    return streamed[-1].ts


async def _ended_with(  # noqa: PLR0913, PLR0917 - the parts of a message
    client: SlackClient,
    message: Streamed,
    text: str,
    arguments: dict[str, Any],
    blocks: Sequence[dict[str, Any]],
    slot: CallSlot,
    confirm: Confirm,
) -> bool:
    """End a stream with the rest of its text; return whether Slack did.

    Raises:
        SlackCallFailed: the root of the thread was deleted.
    """
    rest = text[message.sent :] if message.sent else continued(message, text)
    arguments = arguments | ({"markdown_text": rest} if rest else {})
    arguments |= {"blocks": json.dumps(blocks)} if blocks else {}
    try:
        stopped = await client.try_once(_STOP, arguments, slot, confirm)
    except SlackCallFailed as e:
        log.info("stream.not_stopped", error=str(e))
        return False
    await _require_thread(client, str(arguments["channel"]), stopped)
    return True


def continued(message: Streamed, text: str) -> str:
    """Return the first text of a message; it may continue a code block."""
    return f"{message.opening}{text.lstrip(chr(10))}" if message.opening else text.lstrip("\n")


async def discard(client: SlackClient, channel: str, ts: str, slot: CallSlot | None = None) -> None:
    """Delete a stream, if it exists.

    Raises:
        SlackCallFailed: Slack refused, or did not answer.
    """
    slot = slot or CallSlot(Priority.STATUS)
    try:
        await client.delete(channel, ts, slot)
    except SlackCallFailed as e:
        if e.is_transient:
            raise
        log.info("stream.not_deleted", error=str(e))
    else:
        return
    await client.call(_STOP, {"channel": channel, "ts": ts}, slot, done=_ENDED)
    await client.delete(channel, ts, slot)


def is_blank(message: dict[str, Any]) -> bool:
    """Return whether a message is a stream of the bot whose process ended before it had text."""
    has_content = any(message.get(name) for name in ("text", "blocks", "files", "attachments", "metadata"))
    return bool(message.get("bot_id")) and not has_content


async def _is_complete(client: SlackClient, channel: str, ts: str, key: str) -> bool:
    """Return whether a stream was ended or updated with this key.

    Raises:
        SlackCallFailed: the root of the thread was deleted.
    """
    message = await client.history.message(channel, ts)
    if message is None or key_of(message) != key:
        return False
    await _require_thread(client, channel, {"ts": ts, "message": message})
    return True


async def _require_thread(client: SlackClient, channel: str, stopped: dict[str, Any]) -> None:
    """Delete a message that Slack put into the channel, because the thread's root was deleted.

    Raises:
        SlackCallFailed: the root was deleted.
    """
    message = stopped.get("message")
    if message and "thread_ts" not in message:
        await client.delete(channel, str(stopped["ts"]))
        raise SlackCallFailed(_STOP, NO_THREAD)
