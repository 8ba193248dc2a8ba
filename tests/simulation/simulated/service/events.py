"""How Slack tells of what people do: until somebody acknowledges it in time, or for a few times."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from connector.inbound.intake import NotNow

from .slack import BOT, CHANNEL, tombstone_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from simulated.scenario import Scenario

    from .slack import SlackMessage

_ACK_WITHIN_S = 3.0
# Between one attempt and the next: as Slack has it, and so that less time passes.
_AGAIN_AFTER_S = ((0.5, 60.0, 300.0), (0.5, 4.0, 20.0))


class Listener(Protocol):
    """A process that has a socket open to Slack."""

    number: int

    async def hear(self, event: dict[str, Any]) -> None:
        """Take an event in: once this returns, it is acknowledged."""
        ...


@dataclass(slots=True)
class Delivery:
    """One event on its way. `acked_s`: when Slack was told in time that it is kept, and forgot about it."""

    event: dict[str, Any]
    acked_s: float | None = None
    is_over: bool = False
    attempts: int = 0

    @property
    def is_acked(self) -> bool:
        return self.acked_s is not None


class Events:
    """Tells processes of events. `listeners` gives those that are connected, `life_of` the life of one."""

    def __init__(self, scene: Scenario, listeners: Callable[[], Sequence[Listener]]) -> None:
        self.deliveries: list[Delivery] = []
        self._scene = scene
        self._listeners = listeners
        self._again_after_s = _AGAIN_AFTER_S[scene.chance.random() < 0.9]

    @property
    def are_over(self) -> bool:
        return all(delivery.is_over for delivery in self.deliveries)

    def tell(self, event: dict[str, Any]) -> Delivery:
        delivery = Delivery(event)
        self.deliveries.append(delivery)
        self._scene.spawn(self._deliver(delivery), f"event {len(self.deliveries)}")
        return delivery

    async def _deliver(self, delivery: Delivery) -> None:
        scene = self._scene
        is_late = scene.happens("late events", 0.15)
        await asyncio.sleep(scene.some_s(2, 8) if is_late else scene.some_s(0.02, 0.2))
        for again_after_s in (*self._again_after_s, None):
            if await self._attempt(delivery):
                delivery.acked_s = scene.now()
                break
            if again_after_s is None:
                scene.count("event given up")
                scene.tell("Slack", f"gives up on {told(delivery.event)}")
                break
            await asyncio.sleep(again_after_s)
        if delivery.is_acked and scene.happens("doubled events", 0.15):
            await asyncio.sleep(scene.some_s(0.1, 5))
            scene.count("event came again though acknowledged")
            await self._attempt(delivery)
        delivery.is_over = True

    async def _attempt(self, delivery: Delivery) -> bool:
        """Whether it was acknowledged in time."""
        scene, listeners = self._scene, self._listeners()
        delivery.attempts += 1
        if not listeners:
            scene.count("event found nobody")
            return False
        listener = scene.chance.choice(listeners)
        if delivery.attempts > 1:
            scene.count("event redelivered")
        scene.tell("Slack", f"tells process {listener.number} of {told(delivery.event)}")
        hearing = scene.spawn(listener.hear(delivery.event), "an event", listener.number)
        await asyncio.wait([hearing], timeout=_ACK_WITHIN_S)
        if not hearing.done():
            scene.count("event not acknowledged in time")
            return False
        return self._is_taken(hearing)

    def _is_taken(self, hearing: asyncio.Task[None]) -> bool:
        error = None if hearing.cancelled() else hearing.exception()
        if error is None:
            return not hearing.cancelled()
        self._scene.tell("Slack", f"hears of an error: {error!r}")
        self._scene.count("event refused")
        if not isinstance(error, NotNow):
            self._scene.blame(f"An event failed: {error!r}.")
        return False


def told(event: dict[str, Any]) -> str:
    """An event in a few words."""
    message = event.get("message") or event.get("previous_message") or event
    what = event.get("subtype") or event["type"]
    where = event.get("item", message)
    return f"{what} {where.get('ts')} {event.get('reaction') or message.get('text', '')!r}"


def posted(message: SlackMessage) -> dict[str, Any]:
    return {"type": "message", **_inside(message), "channel": CHANNEL, "channel_type": "channel"}


def mentioned(message: SlackMessage) -> dict[str, Any]:
    return {"type": "app_mention", **_inside(message), "channel": CHANNEL}


def edited(message: SlackMessage, before: str, ts: str) -> dict[str, Any]:
    previous = {**_inside(message), "text": before}
    now = {**_inside(message), "edited": {"user": message.user, "ts": ts}}
    return _about("message_changed", ts) | {"message": now, "previous_message": previous}


def deleted(message: SlackMessage, ts: str, *, has_replies: bool = False) -> dict[str, Any]:
    """What others have replied to leaves a tombstone: to Slack, that is an edit."""
    if has_replies:
        return _about("message_changed", ts) | {"message": tombstone_of(message), "previous_message": _inside(message)}
    return _about("message_deleted", ts) | {"previous_message": _inside(message), "deleted_ts": message.ts}


def reacted(message: SlackMessage, user: str, ts: str) -> dict[str, Any]:
    item = {"type": "message", "channel": CHANNEL, "ts": message.ts}
    return {"type": "reaction_added", "user": user, "reaction": "x", "item": item, "event_ts": ts}


def _about(subtype: str, ts: str) -> dict[str, Any]:
    return {
        "type": "message",
        "subtype": subtype,
        "channel": CHANNEL,
        "channel_type": "channel",
        "ts": ts,
        "event_ts": ts,
        "hidden": True,
    }


def _inside(message: SlackMessage) -> dict[str, Any]:
    inside = {"user": message.user, "ts": message.ts, "text": message.text, "type": "message"}
    if message.thread_ts != message.ts:
        inside["thread_ts"] = message.thread_ts
    if message.user == BOT:
        inside["bot_id"] = "B1"
    return inside
