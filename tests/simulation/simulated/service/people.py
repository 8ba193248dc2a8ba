"""People in threads: they write, steer, change their minds, stop."""

from __future__ import annotations

import asyncio
import itertools
import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from . import events
from .slack import BOT, CHANNEL, TEAM

if TYPE_CHECKING:
    from simulated.scenario import Scenario

    from .events import Delivery, Events
    from .slack import Slack, SlackMessage

_PEOPLE = ("UANN", "UBEN", "UCAM")
_STATUS_KEY = ":status"


@dataclass(slots=True)
class Written:
    """A person's message, with what became of it in Slack.

    `is_mention` says that it calls an agent into its thread, which may have `begun_without_us`.
    `word` is in its text and in no other's, followed by the number of its version. `told` are the events of its
    posting, `edits` those of each version after the first, `deletion` that of its end.
    """

    message: SlackMessage
    word: str
    is_stop: bool = False
    is_mention: bool = False
    begun_without_us: bool = False
    version: int = 1
    told: list[Delivery] = field(default_factory=list)
    edits: list[Delivery] = field(default_factory=list)
    deletion: Delivery | None = None

    @property
    def id(self) -> str:
        return f"{TEAM}:{CHANNEL}:{self.message.ts}"

    @property
    def conversation(self) -> str:
        return f"{TEAM}:{CHANNEL}:{self.message.thread_ts}"

    @property
    def is_acked(self) -> bool:
        return any(delivery.is_acked for delivery in self.told)

    @property
    def acked_s(self) -> float:
        """When Slack was told first that it is kept; infinite: never."""
        return min((delivery.acked_s for delivery in self.told if delivery.acked_s is not None), default=math.inf)

    @property
    def is_over(self) -> bool:
        """Whether Slack will tell nobody of it any more."""
        return all(delivery.is_over for delivery in self.told)


@dataclass(frozen=True, slots=True)
class Reacted:
    """Somebody put an ❌ on a message."""

    message: SlackMessage
    user: str
    made_s: float
    told: Delivery

    @property
    def id(self) -> str:
        return f"{CHANNEL}:{self.message.ts}:{self.user}:x:{self.told.event['event_ts']}"


class Crowd:
    """The people of all conversations. `written` has what they wrote, in order."""

    def __init__(self, scene: Scenario, slack: Slack, tells: Events) -> None:
        self.written: list[Written] = []
        self.reactions: list[Reacted] = []
        self._scene = scene
        self._slack = slack
        self._tells = tells
        self._words = itertools.count(1)

    async def converse(self) -> None:
        """One thread, from its first message to its last."""
        scene = self._scene
        await asyncio.sleep(scene.some_s(0.1, 2))
        if scene.happens("threads of others", 0.5):
            await self._converse_without_us()
            return
        root = self._write(None)
        while not root.is_acked and not scene.happens("impatient people", 1):
            if root.is_over:
                return
            await asyncio.sleep(0.1)
        for _ in range(scene.chance.choice([0, 1, 2, 3, 4, 6])):
            await asyncio.sleep(scene.some_s(0.05, 0.5, 2, 6))
            if self._slack.is_there(root.message.ts):
                self._act(root.message.ts)

    async def _converse_without_us(self) -> None:
        """Begin a thread without an agent, and mention one later."""
        scene = self._scene
        root = self._write(None, is_mention=False)
        for _ in range(scene.chance.choice([0, 1, 2])):
            await asyncio.sleep(scene.some_s(0.05, 0.5))
            self._write(root.message.ts, is_mention=False)
        scene.count("agent called into a thread of others")
        await asyncio.sleep(scene.some_s(0.05, 0.5))
        self._write(root.message.ts, is_mention=True)
        for _ in range(scene.chance.choice([1, 2, 3, 5])):
            await asyncio.sleep(scene.some_s(0.02, 0.1, 0.5, 6))
            if scene.happens("stops", 0.15):
                self._stop(root.message.ts)
            else:
                self._write(root.message.ts)

    def say(self, thread_ts: str) -> Written:
        """Write a plain message that is to be read."""
        return self._write(thread_ts)

    def _act(self, thread_ts: str) -> None:
        scene, mine = self._scene, [each for each in self.written if each.message.thread_ts == thread_ts]
        if scene.happens("stops", 0.2):
            self._stop(thread_ts)
        elif scene.happens("edits", 0.2):
            self._edit(edited := scene.chance.choice(mine))
            if scene.chance.random() < 0.3:  # so soon that one may overtake the other
                self._edit(edited)
        elif scene.happens("deletions", 0.15):
            self._delete(scene.chance.choice(mine[scene.chance.choice([0, 1, 1, 1]) :] or mine))
        elif scene.happens("deletions", 0.05):
            self._delete_status(thread_ts)
        else:
            self._write(thread_ts)

    def _write(self, thread_ts: str | None, *, is_mention: bool | None = None) -> Written:
        scene = self._scene
        word = f"m{next(self._words)}"
        text = f"{word}.1"
        if scene.happens("urgent steers", 0.3):
            text = f"! {text}"
        if scene.happens("two instances", 0.3):
            text = f"{scene.chance.choice(['alpha', 'beta'])}: {text}"
        if is_mention is None:
            is_mention = thread_ts is None or scene.chance.random() < 0.2
        message = self._slack.write(self._somebody(), f"<@{BOT}> {text}" if is_mention else text, thread_ts)
        written = Written(message, word, is_mention=is_mention)
        self._post(written)
        scene.count("written")
        return written

    def _post(self, written: Written) -> None:
        message = written.message
        self._scene.tell(message.user, f"writes {message.ts} {message.text!r}")
        before = [each for each in self.written if each.conversation == written.conversation]
        written.begun_without_us = not (before[0].is_mention if before else written.is_mention)
        self.written.append(written)
        written.told.append(self._tells.tell(events.posted(message)))
        if BOT in message.text:
            written.told.append(self._tells.tell(events.mentioned(message)))

    def _stop(self, thread_ts: str) -> None:
        chance = self._scene.chance
        if chance.random() < 0.4:
            for _ in range(chance.choice([0, 0, 0, 1])):  # what is taken back at once
                self._write(thread_ts)
            for _ in range(chance.choice([1, 1, 2])):
                self._say_stop(thread_ts)
            return
        thread = self._slack.thread(thread_ts)
        statuses = [each for each in thread if _STATUS_KEY in each.key]
        starters = [each for each in thread if "hourglass_flowing_sand" in each.reactions]
        others = [each for each in thread if each.user != BOT]
        targets = others if chance.random() < 0.15 else statuses + starters  # what is no run's stops nothing
        if targets:
            for _ in range(chance.choice([1, 1, 2])):
                self._react(chance.choice(targets))

    def _say_stop(self, thread_ts: str) -> None:
        word = self._scene.chance.choice(["stop", "Stop!", f"<@{BOT}> stop"])
        self._post(Written(self._slack.write(self._somebody(), word, thread_ts), word, is_stop=True))
        self._scene.count("stop word")

    def _react(self, message: SlackMessage) -> None:
        user = self._somebody()
        self._scene.tell(user, f"puts an x on {message.ts}")
        self._scene.count("stop reaction")
        told = self._tells.tell(events.reacted(message, user, self._slack.now_ts()))
        self.reactions.append(Reacted(message, user, self._scene.now(), told))

    def _edit(self, written: Written) -> None:
        message = written.message
        if written.is_stop or message.is_deleted:
            return
        before = message.text
        written.version += 1
        message.text = f"{before.rpartition('.')[0]}.{written.version}"
        self._scene.tell(message.user, f"edits {message.ts}: {message.text!r}")
        self._scene.count("edit")
        written.edits.append(self._tells.tell(events.edited(message, before, self._slack.now_ts())))

    def _delete(self, written: Written) -> None:
        message = written.message
        if written.is_stop or message.is_deleted:
            return
        self._slack.delete(message)
        is_root = message.ts == message.thread_ts
        has_replies = is_root and self._slack.is_there(message.ts)
        self._scene.tell(message.user, f"deletes {message.ts}")
        self._scene.count(
            "deletion" if not is_root else f"deletion of a root with{'' if has_replies else 'out'} replies"
        )
        written.deletion = self._tells.tell(events.deleted(message, self._slack.now_ts(), has_replies=has_replies))

    def _delete_status(self, thread_ts: str) -> None:
        statuses = [each for each in self._slack.thread(thread_ts) if _STATUS_KEY in each.key]
        if statuses:
            self._slack.delete(statuses[0])
            self._scene.tell("UADM", f"deletes the status {statuses[0].ts}")
            self._scene.count("deletion of a status")
            self._tells.tell(events.deleted(statuses[0], self._slack.now_ts()))

    def _somebody(self) -> str:
        return self._scene.chance.choice(_PEOPLE)
