"""Slack's ``conversations.history`` and ``conversations.replies``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from local_slack.blocks.slack_json import message_json
from local_slack.methods.calls import cursor_to, next_of
from local_slack.methods.conversations import visible_channel
from local_slack.workspace.errors import SlackRefused
from local_slack.workspace.timestamps import is_timestamp, order

if TYPE_CHECKING:
    from collections.abc import Sequence

    from local_slack.methods.calls import Call, Json, Methods
    from local_slack.workspace.messages import Channel, Message


def history(call: Call) -> Json:
    """Return the messages of a channel, newest first, without replies that are not broadcast."""
    channel = _readable_channel(call)
    shown = [m for m in call.workspace.messages(channel.id) if not m.is_reply or m.broadcast]
    answer = _messages_page(call, _within(call, shown)[::-1], 100)
    return answer | {"pin_count": 0}


def replies(call: Call) -> Json:
    """Return a thread, oldest first: the root, then its replies. The ts of a reply gives that reply alone."""
    call.args.need("channel", "ts")
    channel = _readable_channel(call)
    ts = call.args.required("ts")
    named = call.workspace.message(channel.id, ts)
    if named is None:
        raise SlackRefused("thread_not_found")
    if named.is_reply:
        return _messages_page(call, [named], 1000)
    root, *below = call.workspace.thread(channel.id, ts)
    return _messages_page(call, [root, *_within(call, below)], 1000)


def _readable_channel(call: Call) -> Channel:
    channel = visible_channel(call)
    if call.member.id not in channel.members:
        raise SlackRefused("not_in_channel")
    return channel


def _within(call: Call, messages: Sequence[Message]) -> list[Message]:
    """Select the messages between ``oldest`` and ``latest``, the bounds only if ``inclusive``."""
    oldest, latest = _bound(call, "oldest"), _bound(call, "latest")
    inclusive = call.args.flag("inclusive")
    kept = []
    for message in messages:
        at = order(message.ts)
        after = oldest is None or at > oldest or (inclusive and at == oldest)
        before = latest is None or at < latest or (inclusive and at == latest)
        if after and before:
            kept.append(message)
    return kept


def _bound(call: Call, name: str) -> tuple[int, int] | None:
    ts = call.args.text(name)
    if not ts or ts == "now":
        return None
    if not is_timestamp(ts):
        raise SlackRefused(f"invalid_ts_{name}")
    return order(ts)


def _messages_page(call: Call, messages: Sequence[Message], default_limit: int) -> Json:
    start = _start(messages, next_of(call.args))
    end = start + call.args.limit(default_limit)
    cursor = cursor_to(messages[end].ts) if end < len(messages) else ""
    wire = [_message_json(call, message) for message in messages[start:end]]
    return {"messages": wire, "has_more": bool(cursor), "response_metadata": {"next_cursor": cursor}}


def _start(messages: Sequence[Message], ts: str | None) -> int:
    """Return the index at which a page begins. Deletions between two pages skip no message."""
    if ts is None:
        return 0
    if not is_timestamp(ts):
        raise SlackRefused("invalid_cursor")
    is_newest_first = len(messages) > 1 and order(messages[0].ts) > order(messages[-1].ts)
    before = [m for m in messages if (order(m.ts) > order(ts) if is_newest_first else order(m.ts) < order(ts))]
    return len(before)


def _message_json(call: Call, message: Message) -> Json:
    wire = message_json(message, call.workspace.directory.team)
    if message.metadata and call.args.flag("include_all_metadata"):
        wire["metadata"] = message.metadata
    return wire


METHODS: Methods = {"conversations.history": history, "conversations.replies": replies}
