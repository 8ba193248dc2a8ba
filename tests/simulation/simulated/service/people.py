"""People in threads, and the events by which Slack reports their actions to the service."""

from __future__ import annotations

import asyncio
import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from connector.events import REASON_ACTION, REQUEST_FORM, REQUEST_TEXT
from connector.inbound.intake import NotNow
from simulated.simulation import Simulation

from .files import Files
from .replica import Replica
from .slack import BOT, BOT_IDS, DIRECT, OTHER_BOT, TEAM, Slack, SlackMessage, tombstone_of

_PEOPLE = ("UANN", "UBEN", "UCAM")
_STATUS_KEY = ":status"
_ACK_WITHIN_S = 3.0
# Delays between attempts: those of Slack, and shorter ones.
_RETRY_AFTER_S = ((0.5, 60.0, 300.0), (0.5, 4.0, 20.0))


@dataclass(slots=True)
class EventDelivery:
    """The delivery of one event. `acked_s`: the time of the acknowledgement."""

    event: dict[str, Any]
    acked_s: float | None = None
    is_over: bool = False
    attempts: int = 0

    @property
    def is_acked(self) -> bool:
        return self.acked_s is not None


class Events:
    """Delivers events to connected processes: until one acknowledges in time, or for a few attempts."""

    def __init__(self, sim: Simulation, listeners: Callable[[], Sequence[Replica]]):
        self.deliveries: list[EventDelivery] = []
        self._sim = sim
        self._listeners = listeners
        self._retry_after_s = _RETRY_AFTER_S[sim.rng.random() < 0.9]

    @property
    def are_over(self) -> bool:
        return all(delivery.is_over for delivery in self.deliveries)

    def send(self, event: dict[str, Any]) -> EventDelivery:
        delivery = EventDelivery(event)
        self.deliveries.append(delivery)
        self._sim.spawn(self._deliver(delivery), f"event {len(self.deliveries)}")
        return delivery

    async def _deliver(self, delivery: EventDelivery) -> None:
        sim = self._sim
        is_late = sim.occurs("late events", 0.15)
        await asyncio.sleep(sim.delay_s(2, 8) if is_late else sim.delay_s(0.02, 0.2))
        for retry_after_s in (*self._retry_after_s, None):
            if await self._attempt(delivery):
                delivery.acked_s = sim.now()
                break
            if retry_after_s is None:
                sim.count("event given up")
                sim.log("Slack", f"gives up {_described(delivery.event)}")
                break
            await asyncio.sleep(retry_after_s)
        if delivery.is_acked and sim.occurs("doubled events", 0.15):
            await asyncio.sleep(sim.delay_s(0.1, 5))
            sim.count("event sent again after its acknowledgement")
            await self._attempt(delivery)
        delivery.is_over = True

    async def _attempt(self, delivery: EventDelivery) -> bool:
        """Return whether the event was acknowledged in time."""
        sim, listeners = self._sim, self._listeners()
        delivery.attempts += 1
        if not listeners:
            sim.count("event without a connected process")
            return False
        listener = sim.rng.choice(listeners)
        if delivery.attempts > 1:
            sim.count("event redelivered")
        sim.log("Slack", f"sends to process {listener.number}: {_described(delivery.event)}")
        receiving = sim.spawn(listener.receive(delivery.event), "an event", listener.number)
        await asyncio.wait([receiving], timeout=_ACK_WITHIN_S)
        if not receiving.done():
            sim.count("event not acknowledged in time")
            return False
        if receiving.cancelled():
            return False
        if (error := receiving.exception()) is None:
            return True
        sim.log("Slack", f"gets an error: {error!r}")
        sim.count("event refused")
        if not isinstance(error, NotNow):
            sim.violation(f"An event failed: {error!r}.")
        return False


def _described(event: dict[str, Any]) -> str:
    message = event.get("message") or event.get("previous_message") or event
    where = event.get("item", message)
    if event["type"] == "block_actions":
        return f"a click: {event['actions'][0]}"
    if event["type"] == "view_submission":
        return f"a form for {event['view']['private_metadata']}"
    text = event.get("reaction") or message.get("text", "")
    return f"{event.get('subtype') or event['type']} {where.get('ts')} {text!r}"


def _posted(message: SlackMessage) -> dict[str, Any]:
    return {"type": "message", **_fields(message), **_place(message)}


def _mentioned(message: SlackMessage) -> dict[str, Any]:
    return {**_fields(message), "type": "app_mention", "channel": message.channel}


def _edited(message: SlackMessage, before: str) -> dict[str, Any]:
    now = {**_fields(message), "edited": message.edited}
    return _changed(message, "message_changed", message.edited_ts) | {
        "message": now,
        "previous_message": {**_fields(message), "text": before},
    }


def _deleted(message: SlackMessage, ts: str, *, has_replies: bool = False) -> dict[str, Any]:
    """A root with replies leaves a tombstone, which Slack reports as an edit."""
    previous = {"previous_message": _fields(message)}
    if has_replies:
        return _changed(message, "message_changed", ts) | {"message": tombstone_of(message)} | previous
    return _changed(message, "message_deleted", ts) | previous | {"deleted_ts": message.ts}


def _reacted(message: SlackMessage, user: str, ts: str) -> dict[str, Any]:
    item = {"type": "message", "channel": message.channel, "ts": message.ts}
    return {"type": "reaction_added", "user": user, "reaction": "x", "item": item, "event_ts": ts}


def _clicked(message: SlackMessage, click: Click, value: str, ts: str) -> dict[str, Any]:
    action = {"action_id": "steer_allow" if click.allows else "steer_deny", "value": value, "action_ts": ts}
    place = {"channel": {"id": message.channel}, "message": {"ts": message.ts, "thread_ts": message.thread_ts}}
    return {"type": "block_actions", "actions": [action], **place, "user": {"id": click.by, "team_id": TEAM}}


def _answered(message: SlackMessage, control: dict[str, Any], user: str, ts: str) -> dict[str, Any]:
    """Return a click on a button or menu of a request; for a reason, the form that the person sends."""
    who, action = {"id": user, "team_id": TEAM}, {"action_id": control["action_id"], "action_ts": ts}
    if control["action_id"] == REASON_ACTION:
        values = {REQUEST_TEXT: {REQUEST_TEXT: {"type": "plain_text_input", "value": "rather not"}}}
        metadata = f"{control['value']} {message.ts} {ts} 1"
        view = {"id": f"V{ts}", "callback_id": REQUEST_FORM, "private_metadata": metadata, "state": {"values": values}}
        return {"type": "view_submission", "user": who, "view": view}
    if "options" in control:
        action["selected_option"] = control["options"][0]
    else:
        action["value"] = control["value"]
    place = {"channel": {"id": message.channel}, "message": {"ts": message.ts, "thread_ts": message.thread_ts}}
    return {"type": "block_actions", "actions": [action], **place, "user": who}


def _changed(message: SlackMessage, subtype: str, ts: str) -> dict[str, Any]:
    return {"type": "message", "subtype": subtype, **_place(message), "ts": ts, "event_ts": ts, "hidden": True}


def _place(message: SlackMessage) -> dict[str, str]:
    return {"channel": message.channel, "channel_type": "im" if message.channel == DIRECT else "channel"}


def _fields(message: SlackMessage) -> dict[str, Any]:
    fields = {"user": message.user, "ts": message.ts, "text": message.text, "type": "message"}
    if not message.is_root:
        fields["thread_ts"] = message.thread_ts
    if message.user in BOT_IDS:
        fields["bot_id"] = BOT_IDS[message.user]
    if message.files:
        fields |= {"files": list(message.files), "subtype": "file_share"}
    return fields


@dataclass(slots=True)
class WrittenMessage:
    """A message of a person or another bot.

    Attributes:
        word: is in its text and in no other's, followed by the number of its version.
        is_mention: calls an agent into its thread.
        in_existing_thread: the thread began without a mention.
        events: those of its posting.
        edits: the event of each version after the first.
        calling_edit: the one that added the mention.
    """

    message: SlackMessage
    word: str
    is_stop: bool = False
    is_mention: bool = False
    in_existing_thread: bool = False
    version: int = 1
    events: list[EventDelivery] = field(default_factory=list)
    edits: list[EventDelivery] = field(default_factory=list)
    calling_edit: EventDelivery | None = None
    deletion: EventDelivery | None = None

    @property
    def id(self) -> str:
        return f"{TEAM}:{self.message.channel}:{self.message.ts}"

    @property
    def sent(self) -> list[str]:
        """The ids of its files."""
        return [each["id"] for each in self.message.files]

    @property
    def is_of_bot(self) -> bool:
        return self.message.user == OTHER_BOT

    @property
    def conversation(self) -> str:
        return f"{TEAM}:{self.message.channel}:{self.message.thread_ts}"

    @property
    def is_acked(self) -> bool:
        return self.acked_s < math.inf

    @property
    def acked_s(self) -> float:
        """The time of the first acknowledgement; of an added mention, that of its edit."""
        events = self.events if self.calling_edit is None else [self.calling_edit]
        return min((delivery.acked_s for delivery in events if delivery.acked_s is not None), default=math.inf)

    @property
    def is_over(self) -> bool:
        """Whether Slack will not send its events again."""
        return all(delivery.is_over for delivery in self.events)


@dataclass(frozen=True, slots=True)
class Click:
    """A click on a button of the question whether `user` may steer a run."""

    user: str
    by: str
    allows: bool


@dataclass(frozen=True, slots=True)
class StopReaction:
    message: SlackMessage
    user: str
    added_s: float
    delivery: EventDelivery

    @property
    def id(self) -> str:
        return f"{self.message.channel}:{self.message.ts}:{self.user}:x:{self.delivery.event['event_ts']}"


class People:
    """The people of all conversations. `written` are their messages, in order; `muted` are threads with a `!mute`."""

    def __init__(self, sim: Simulation, slack: Slack, events: Events, files: Files):
        self._files = files
        self.written: list[WrittenMessage] = []
        self.reactions: list[StopReaction] = []
        self.clicks: list[Click] = []
        self.muted: set[str] = set()
        # Messages of requests, with the buttons that they had.
        self._asked: list[tuple[SlackMessage, list[dict[str, Any]]]] = []
        self._sim = sim
        self._slack = slack
        self._events = events
        self._words = itertools.count(1)

    async def converse(self) -> None:
        """Write in one thread, from its first message to its last."""
        sim = self._sim
        await asyncio.sleep(sim.delay_s(0.1, 2))
        if sim.occurs("existing threads", 0.5):
            await self._converse_in_an_existing_thread()
            return
        root = self._write(None)
        while not root.is_acked and not sim.occurs("impatient people", 1):
            if root.is_over:
                return
            await asyncio.sleep(0.1)
        for _ in range(sim.rng.choice([0, 1, 2, 3, 4, 6])):
            await asyncio.sleep(sim.delay_s(0.05, 0.5, 2, 6))
            if self._slack.has_thread(root.message.ts):
                self._act(root.message.ts)

    async def _converse_in_an_existing_thread(self) -> None:
        """Begin a thread without an agent, and mention one later."""
        sim = self._sim
        root = self._write(None, is_mention=False)
        for _ in range(sim.rng.choice([0, 1, 2])):
            await asyncio.sleep(sim.delay_s(0.05, 0.5))
            self._write(root.message.ts, is_mention=False)
        sim.count("agent mentioned in an existing thread")
        await asyncio.sleep(sim.delay_s(0.05, 0.5))
        if sim.occurs("edits", 0.4):
            calling = self._write(root.message.ts, is_mention=False)
            await asyncio.sleep(sim.delay_s(0.02, 0.5, 3))
            self._edit(calling, f"<@{BOT}> ")
        else:
            self._write(root.message.ts, is_mention=True)
        for _ in range(sim.rng.choice([1, 2, 3, 5])):
            await asyncio.sleep(sim.delay_s(0.02, 0.1, 0.5, 6))
            if sim.occurs("stops", 0.15):
                self._stop(root.message.ts)
            else:
                self._write(root.message.ts)

    def _act(self, thread_ts: str) -> None:  # noqa: C901 - a case for each kind of act
        sim, thread = self._sim, [each for each in self.written if each.message.thread_ts == thread_ts]
        if sim.occurs("stops", 0.2):
            self._stop(thread_ts)
        elif sim.occurs("edits", 0.2):
            self._edit(edited := sim.rng.choice(thread))
            if sim.rng.random() < 0.3:  # so soon that one event may overtake the other
                self._edit(edited)
        elif sim.occurs("deletions", 0.15):
            self._delete(sim.rng.choice(thread[sim.rng.choice([0, 1, 1, 1]) :] or thread))
        elif sim.occurs("stops", 0.1):  # of a pending message: it is withdrawn
            self._react(own := sim.rng.choice(thread[-2:]).message, own.user)
        elif sim.occurs("deletions", 0.05):
            self._delete_status(thread_ts)
        elif sim.occurs("mutes", 0.15):
            self._mute(thread_ts)
        elif sim.occurs("policies", 0.4):
            self._click(thread_ts)
        elif sim.occurs("approvals", 0.8):
            self._answer(thread_ts)
        elif sim.occurs("bots", 0.6):
            self._page(thread, thread_ts)
        else:
            self._write(thread_ts)

    def _page(self, thread: Sequence[WrittenMessage], thread_ts: str) -> None:
        """Write as the other bot, which waits until Slack has delivered its last message."""
        if all(each.is_over for each in thread if each.is_of_bot):
            self._sim.count("message of a bot")
            self._write(thread_ts, is_mention=self._sim.rng.random() < 0.8, author=OTHER_BOT)

    def _write(self, thread_ts: str | None, *, is_mention: bool | None = None, author: str = "") -> WrittenMessage:
        sim = self._sim
        word = f"m{next(self._words)}"
        text = f"! {word}.1" if sim.occurs("urgent steers", 0.3) else f"{word}.1"
        if sim.occurs("two instances", 0.3):
            text = f"{sim.rng.choice(['alpha', 'beta'])}: {text}"
        if is_mention is None:
            is_mention = thread_ts is None or sim.rng.random() < 0.2
        if self._slack.channel == DIRECT and thread_ts is None:
            sim.count("thread of direct messages")
        who = author or self._author(thread_ts)
        files = () if author else self._files.draw()
        message = self._slack.write(who, f"<@{BOT}> {text}" if is_mention else text, thread_ts, files=files)
        written = WrittenMessage(message, word, is_mention=is_mention)
        self._post(written)
        sim.count("written")
        return written

    def _post(self, written: WrittenMessage) -> None:
        message = written.message
        self._sim.log(message.user, f"writes {message.ts} {message.text!r}")
        before = [each for each in self.written if each.conversation == written.conversation]
        written.in_existing_thread = not (before[0].is_mention if before else written.is_mention)
        self.written.append(written)
        written.events.append(self._events.send(_posted(message)))
        if BOT in message.text and message.channel != DIRECT:
            written.events.append(self._events.send(_mentioned(message)))

    def _stop(self, thread_ts: str) -> None:
        rng = self._sim.rng
        if rng.random() < 0.4:
            for _ in range(rng.choice([0, 0, 0, 1])):  # a message that the stop withdraws at once
                self._write(thread_ts)
            for _ in range(rng.choice([1, 1, 2])):
                self._write_stop(thread_ts)
            return
        thread = self._slack.thread(thread_ts)
        statuses = [each for each in thread if _STATUS_KEY in each.key]
        first_messages = [each for each in thread if "hourglass_flowing_sand" in each.reactions]
        others = [each for each in thread if each.user != BOT]  # a reaction there may stop nothing
        targets = others if rng.random() < 0.15 else statuses + first_messages
        if targets:
            for _ in range(rng.choice([1, 1, 2])):
                self._react(rng.choice(targets))

    def _write_stop(self, thread_ts: str) -> None:
        word = self._sim.rng.choice(["stop", "Stop!", f"<@{BOT}> stop"])
        self._post(WrittenMessage(self._slack.write(self._author(thread_ts), word, thread_ts), word, is_stop=True))
        self._sim.count("stop word")

    def _react(self, message: SlackMessage, user: str = "") -> None:
        user = user or self._author()
        self._sim.log(user, f"adds x to {message.ts}")
        self._sim.count("stop reaction")
        message.reactions.setdefault("x", []).append(user)
        delivery = self._events.send(_reacted(message, user, self._slack.now_ts()))
        self.reactions.append(StopReaction(message, user, self._sim.now(), delivery))

    def _edit(self, written: WrittenMessage, mention: str = "") -> None:
        message = written.message
        if written.is_stop or message.is_deleted:
            return
        before = message.text
        written.version += 1
        message.text = f"{mention}{before.rpartition('.')[0]}.{written.version}"
        self._sim.log(message.user, f"edits {message.ts}: {message.text!r}")
        self._sim.count("edit that adds a mention" if mention else "edit")
        message.edited_ts = self._slack.now_ts()
        written.edits.append(self._events.send(_edited(message, before)))
        if mention and message.channel != DIRECT:
            written.is_mention, written.calling_edit = True, written.edits[-1]
        if BOT in message.text and message.channel != DIRECT:
            self._events.send({**_mentioned(message), "edited": message.edited})

    def _delete(self, written: WrittenMessage) -> None:
        message = written.message
        if written.is_stop or message.is_deleted:
            return
        self._slack.delete(message)
        has_replies = message.is_root and self._slack.has_thread(message.ts)
        self._sim.log(message.user, f"deletes {message.ts}")
        of_root = f" of a root with{'' if has_replies else 'out'} replies" if message.is_root else ""
        self._sim.count(f"deletion{of_root}")
        written.deletion = self._events.send(_deleted(message, self._slack.now_ts(), has_replies=has_replies))

    def _delete_status(self, thread_ts: str) -> None:
        statuses = [each for each in self._slack.thread(thread_ts) if _STATUS_KEY in each.key]
        if statuses:
            self._slack.delete(statuses[0])
            self._sim.log("UADM", f"deletes the status {statuses[0].ts}")
            self._sim.count("deletion of a status")
            self._events.send(_deleted(statuses[0], self._slack.now_ts()))

    def _mute(self, thread_ts: str) -> None:
        word = self._sim.rng.choice(["!mute", "!mute", "!unmute"])
        message = self._slack.write(self._sim.rng.choice(self._callers(thread_ts)), word, thread_ts)
        self.muted.add(thread_ts)
        self._sim.log(message.user, f"writes {message.ts} {message.text!r}")
        self._sim.count(word)
        self._events.send(_posted(message))

    def _click(self, thread_ts: str) -> None:
        """Answer a question to the owner of a run, sometimes as somebody else."""
        for each in self._slack.thread(thread_ts):
            run, _, rest = each.key.partition(":consent:")
            if not rest or not self._slack.has_thread(thread_ts):
                continue
            click = Click(rest.split(":")[0], self._author(thread_ts), self._sim.rng.random() < 0.7)
            self.clicks.append(click)
            self._sim.log(click.by, f"lets {click.user} steer: {click.allows}")
            self._sim.count("consent clicked")
            self._events.send(_clicked(each, click, f"{run}:{click.user}", self._slack.now_ts()))

    def _answer(self, thread_ts: str) -> None:
        """Click on requests, as anyone, often twice; also on buttons that are gone by the time of the click."""
        sim = self._sim
        asked = [each for each in self._slack.thread(thread_ts) if each.controls and ":ask:" in each.key]
        self._asked += [(each, each.controls) for each in asked if each not in (known for known, _ in self._asked)]
        here = [each for each in self._asked if each[0].thread_ts == thread_ts]
        if not here:
            self._write(thread_ts)
            return
        message, controls = here[-1] if sim.rng.random() < 0.8 else sim.rng.choice(here)
        for _ in range(sim.rng.choice([1, 1, 2, 3])):
            control = controls[0] if sim.rng.random() < 0.6 else sim.rng.choice(controls)
            user = self._author(thread_ts)
            sim.log(user, f"clicks {control['action_id']}")
            sim.count(f"clicked: {control['action_id']}")
            self._events.send(_answered(message, control, user, self._slack.now_ts()))

    def _author(self, thread_ts: str | None = None) -> str:
        """Return a person, in most cases one who takes part in the thread."""
        callers = self._callers(thread_ts)
        if callers and self._sim.rng.random() < 0.8:
            return self._sim.rng.choice(callers)
        return self._sim.rng.choice(_PEOPLE)

    def _callers(self, thread_ts: str | None) -> list[str]:
        """Return the authors of the mentions in a thread."""
        people = (each for each in self.written if each.is_mention and not each.is_of_bot)
        return [each.message.user for each in people if each.message.thread_ts == thread_ts]
