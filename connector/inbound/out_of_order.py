"""Handle events that arrive out of order: remember unrouted replies, and look up older messages in Slack."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from connector.slack_api.errors import SlackCallFailed
from connector.slack_api.rate_limiter import CallSlot, Priority

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from connector.events import SlackMessage
    from connector.inbound.access_policy import Actor
    from connector.slack_api.client import SlackClient

T = TypeVar("T")

# Seconds within which Slack redelivers an event. Events posted later may arrive before it.
REDELIVERY_WINDOW_S = 600.0
# Slack redelivers an event that is not acknowledged within three seconds.
_LOOK_UP_TIMEOUT_S = 1.0
# All events share the same slots: events that need a look-up must leave most slots free.
_MAX_CONCURRENT = 5
_MAX_WAITING = 5
_PAGE = 200
_MAX_NAMES = 10_000
_MAX_UNROUTED = 1_000


class NotNow(Exception):  # noqa: N818 - a fact about the service
    """The event cannot be stored while the service shuts down: Slack delivers it again, to any connected process."""


class NoAnswer(Exception):  # noqa: N818 - a fact about a look-up
    """A look-up failed: Slack did not answer in time, or the rate limit left no room."""


class LRUSet:
    """A bounded set that drops the oldest names."""

    def __init__(self) -> None:
        self._names: OrderedDict[str, None] = OrderedDict()

    def __contains__(self, name: str) -> bool:
        return name in self._names

    def add(self, name: str) -> None:
        self._names[name] = None
        if len(self._names) > _MAX_NAMES:
            self._names.popitem(last=False)


class UnroutedReply(NamedTuple):
    """A reply that is for no agent, its author (access not checked), and the time of its last edit."""

    reply: SlackMessage
    actor: Actor
    edited_ts: str


class UnroutedReplies:
    """The latest replies that were for no agent: the mention that calls an agent into their thread may arrive later."""

    def __init__(self) -> None:
        # `None`: the reply was deleted.
        self._replies: OrderedDict[str, UnroutedReply | None] = OrderedDict()

    def add(self, reply: SlackMessage, actor: Actor, edited_ts: str = "") -> None:
        """Store a reply, unless it was deleted or a later edit of it is known."""
        new = UnroutedReply(reply, actor, edited_ts)
        known = self._replies.get(reply.id, new)
        if known is not None and edited_ts >= known.edited_ts:
            self._put(reply.id, new)

    def edit(self, reply: SlackMessage, actor: Actor, edited_ts: str) -> None:
        """Replace a reply by its edited version, if the reply is stored."""
        if reply.id in self._replies:
            self.add(reply, actor, edited_ts)

    def drop(self, reply_id: str) -> None:
        """Remove a deleted reply, and ignore it if it arrives later."""
        self._put(reply_id, None)

    def has_after(self, conversation_id: str, ts: str) -> bool:
        return bool(self._after(conversation_id, ts))

    def take_after(self, conversation_id: str, ts: str) -> list[UnroutedReply]:
        """Remove and return the replies of a conversation posted after `ts`, oldest first."""
        after = self._after(conversation_id, ts)
        for each in after:
            del self._replies[each.reply.id]
        return sorted(after, key=lambda each: float(each.reply.ts))

    def _after(self, conversation_id: str, ts: str) -> list[UnroutedReply]:
        return [
            each
            for each in filter(None, self._replies.values())
            if each.reply.place.conversation_id == conversation_id and float(each.reply.ts) > float(ts)
        ]

    def _put(self, reply_id: str, reply: UnroutedReply | None) -> None:
        self._replies[reply_id] = reply
        if len(self._replies) > _MAX_UNROUTED:
            self._replies.popitem(last=False)


class LookUps:
    """Looks up messages in Slack whose events may not have arrived yet: few at once, at the lowest priority.

    Every method raises NoAnswer if Slack does not answer in time. The call then leaves the rate limiter's queue.
    """

    def __init__(self, client: SlackClient) -> None:
        self._client = client
        self._slots = asyncio.Semaphore(_MAX_CONCURRENT)
        self._pending = 0

    async def thread(self, reply: SlackMessage, oldest_ts: float = 0.0) -> list[dict[str, Any]]:
        """Return the first page of the thread before a reply, oldest first; empty if Slack refuses."""
        arguments = {"channel": reply.channel, "ts": reply.place.thread_ts, "latest": reply.ts, "limit": _PAGE}
        if oldest_ts:
            arguments["oldest"] = f"{oldest_ts:.6f}"
        slot = CallSlot(Priority.LOOK_UP)
        page = await self.answer(lambda: self._client.call("conversations.replies", arguments, slot))
        found = [{**each, "channel": reply.channel} for each in (page or {}).get("messages", ())]
        return [each for each in found if oldest_ts <= float(each["ts"]) < float(reply.ts)]

    async def answer(self, ask: Callable[[], Awaitable[T]]) -> T | None:
        """Return the answer to a call; `None`: Slack refuses it."""
        if self._pending == _MAX_CONCURRENT + _MAX_WAITING:
            raise NoAnswer
        self._pending += 1
        try:
            async with asyncio.timeout(_LOOK_UP_TIMEOUT_S), self._slots:
                return await ask()
        except TimeoutError as e:
            raise NoAnswer from e
        except SlackCallFailed as e:
            if e.is_transient:
                raise NoAnswer from e
            return None
        finally:
            self._pending -= 1
