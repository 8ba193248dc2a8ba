"""What comes to us may have overtaken what was written before it: what is remembered of that, and what Slack says."""

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

# Slack delivers an event again within so many seconds; what came after it may have overtaken it.
REDELIVERY_WINDOW_S = 600.0
# How long an event may wait for Slack: after three seconds it comes again.
_LOOK_UP_TIMEOUT_S = 1.0
# All that comes in waits for the same slots: what has to be looked up must leave most of them to the rest.
_MAX_CONCURRENT = 5
_MAX_WAITING = 5
_PAGE = 200
_MAX_NAMES = 10_000
_MAX_UNROUTED = 1_000


class NotNow(Exception):  # noqa: N818 - a fact about the service
    """An event cannot be taken just now: Slack delivers it again, to whoever is there then."""


class NoAnswer(Exception):  # noqa: N818 - a fact about a look-up
    """Slack could not be asked in time: it is away, or its limits leave no room."""


class LRUSet:
    """The latest of many names."""

    def __init__(self) -> None:
        self._names: OrderedDict[str, None] = OrderedDict()

    def __contains__(self, name: str) -> bool:
        return name in self._names

    def add(self, name: str) -> None:
        self._names[name] = None
        if len(self._names) > _MAX_NAMES:
            self._names.popitem(last=False)


class UnroutedReply(NamedTuple):
    """A reply that is for no agent, its author, of whom the gate was not asked, and when it was edited last."""

    reply: SlackMessage
    actor: Actor
    edited_ts: str


class UnroutedReplies:
    """The latest replies that were for nobody: the message that makes them an agent's may come after them."""

    def __init__(self) -> None:
        # `None`: the reply was deleted.
        self._replies: OrderedDict[str, UnroutedReply | None] = OrderedDict()

    def add(self, reply: SlackMessage, actor: Actor, edited_ts: str = "") -> None:
        """Remember a reply, unless it was deleted or a later edit of it is known."""
        new = UnroutedReply(reply, actor, edited_ts)
        known = self._replies.get(reply.id, new)
        if known is not None and edited_ts >= known.edited_ts:
            self._put(reply.id, new)

    def edit(self, reply: SlackMessage, actor: Actor, edited_ts: str) -> None:
        """It reads so now, if it is here."""
        if reply.id in self._replies:
            self.add(reply, actor, edited_ts)

    def drop(self, reply_id: str) -> None:
        """Forget a reply, also if it is still to come."""
        self._put(reply_id, None)

    def has_after(self, conversation_id: str, ts: str) -> bool:
        return bool(self._after(conversation_id, ts))

    def take_after(self, conversation_id: str, ts: str) -> list[UnroutedReply]:
        """Those of a conversation that were written after this moment, in order; they are here no more."""
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
    """Asks Slack for messages whose events may still be on their way: few at once, and after all that we say.

    Everything here raises NoAnswer where Slack does not answer in time. The call leaves the scheduler's queue then.
    """

    def __init__(self, client: SlackClient) -> None:
        self._client = client
        self._slots = asyncio.Semaphore(_MAX_CONCURRENT)
        self._pending = 0

    async def thread(self, reply: SlackMessage, oldest_ts: float = 0.0) -> list[dict[str, Any]]:
        """What stands in the thread before a reply: the first page of it, oldest first; blank: it cannot be had."""
        arguments = {"channel": reply.channel, "ts": reply.place.thread_ts, "latest": reply.ts, "limit": _PAGE}
        if oldest_ts:
            arguments["oldest"] = f"{oldest_ts:.6f}"
        turn = CallSlot(Priority.LOOK_UP)
        page = await self.answer(lambda: self._client.call("conversations.replies", arguments, turn))
        found = [{**each, "channel": reply.channel} for each in (page or {}).get("messages", ())]
        return [each for each in found if oldest_ts <= float(each["ts"]) < float(reply.ts)]

    async def answer(self, ask: Callable[[], Awaitable[T]]) -> T | None:
        """What Slack answers; `None`: it refuses."""
        if self._pending == _MAX_CONCURRENT + _MAX_WAITING:
            raise NoAnswer
        self._pending += 1
        try:
            async with asyncio.timeout(_LOOK_UP_TIMEOUT_S), self._slots:
                return await ask()
        except TimeoutError as e:
            raise NoAnswer from e
        except SlackCallFailed as e:
            if e.is_passing:
                raise NoAnswer from e
            return None
        finally:
            self._pending -= 1
