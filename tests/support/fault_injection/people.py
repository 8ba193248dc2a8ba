"""People who write, steer, edit, delete and stop, each conversation as its seed says."""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count

from router import Router

from fault_injection.observations import Observations
from local_slack import LocalSlack, PersonClient, SlackRefused

CHANNEL = "general"
PEOPLE = ("ana", "ben", "chloe")
_WEIGHTS = {
    "task": 25,
    "steer": 30,
    "urge": 8,
    "edit": 12,
    "delete": 7,
    "stop": 5,
    "cross": 5,
    "stop_twice": 2,
}


@dataclass
class Written:
    """A message of a person. `address` mentions the bot in front of the words, or is blank."""

    person: str
    ts: str
    words: str
    address: str
    versions: int = 1


@dataclass
class Conversation:
    """The actions of the people in one thread."""

    crowd: People
    dice: random.Random
    root: str = ""
    written: list[Written] = field(default_factory=list)
    speakers: set[str] = field(default_factory=set)

    async def live(self, over: asyncio.Event) -> None:
        """Begin, and act until `over` is set."""
        crowd = self.crowd
        await self._pause(over, crowd.pace_s)
        await self._write(self._task())
        while not over.is_set():
            await self._pause(over, self.dice.expovariate(1 / crowd.pace_s))
            if over.is_set():
                return
            act = self.dice.choices(list(_WEIGHTS), list(_WEIGHTS.values()))[0]
            with suppress(SlackRefused):  # the message was deleted in the meantime
                await getattr(self, f"_{act}_it")()

    async def close(self, within_s: float) -> None:
        """Say a last thing, when all before it has been heard, and wait until an answer names it.

        Raises:
            TimeoutError: nothing of the kind has come.
        """
        crowd = self.crowd
        for act in crowd.record.acts[self.root]:
            await crowd.board.heard(act.event, within_s)
        mark = crowd.mark()
        self.speakers.clear()  # the mention by which the author took part may have been deleted before it was stored
        await self._write(f"#{mark} closes")
        record = crowd.record
        await crowd.slack.until(
            lambda _: str(mark) in record.named[self.root] and not record.is_busy(self.root), within_s
        )

    async def _task_it(self) -> None:
        await self._write(self._task())

    async def _steer_it(self) -> None:
        await self._write(f"#{self.crowd.mark()} and this")

    async def _urge_it(self) -> None:
        await self._write(f"!#{self.crowd.mark()} at once")

    async def _edit_it(self) -> None:
        if (message := self._any()) is not None:
            message.versions += 1
            mark, _, rest = message.words.partition(" ")
            words = f"{mark} v{message.versions} {rest}"
            await self._person(message.person).edit(CHANNEL, message.ts, message.address + words)

    async def _delete_it(self) -> None:
        message = self._any()
        if message is not None and message.ts != self.root:  # else nothing would be left to write to
            self.written.remove(message)
            await self._person(message.person).delete(CHANNEL, message.ts)

    async def _stop_it(self) -> None:
        await self._person().say(CHANNEL, "@alpha stop", thread=self.root)

    async def _cross_it(self) -> None:
        status = self.crowd.record.status_in(self.root)
        first = next((ts for ts, root in self.crowd.record.hourglasses.items() if root == self.root), None)
        target = self.dice.choice([status, first])
        if target is not None:
            await self._person().react(CHANNEL, target, "x")

    async def _stop_twice_it(self) -> None:
        await self._stop_it()
        await self._stop_it()

    def _task(self) -> str:
        dice = self.dice
        calls = [
            f"{dice.choice(('note', 'look'))}{dice.choice((0, 0, 0.1, 0.3, 1.0))}" for _ in range(dice.randrange(5))
        ]
        return f"#{self.crowd.mark()} do: think{dice.choice((0, 0.05, 0.2, 0.6))} {' '.join(calls)}"

    def _any(self) -> Written | None:
        """One of the latest messages."""
        return self.dice.choice(self.written[-3:]) if self.written else None

    async def _write(self, words: str) -> None:
        person = self.dice.choice(PEOPLE)
        address = "" if person in self.speakers else "@alpha "  # from then on, the person takes part in the thread
        self.speakers.add(person)
        ts = await self._person(person).say(CHANNEL, address + words, thread=self.root or None)
        self.root = self.root or ts
        self.written.append(Written(person, ts, words, address))

    def _person(self, name: str | None = None) -> PersonClient:
        return self.crowd.slack.as_person(name or self.dice.choice(PEOPLE))

    @staticmethod
    async def _pause(over: asyncio.Event, seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await over.wait()


@dataclass
class People:
    """People in many conversations; `pace_s` is how long they take between two things in one, in the mean."""

    slack: LocalSlack
    board: Router
    record: Observations
    pace_s: float
    conversations: list[Conversation] = field(default_factory=list)
    _marks: count[int] = field(default_factory=lambda: count(1))

    def gather(self, seed: int, conversations: int) -> None:
        """Have people for that many conversations."""
        dice = [random.Random(f"{seed}:{number}") for number in range(conversations)]  # noqa: S311 - no secret
        self.conversations += [Conversation(self, each) for each in dice]

    def mark(self) -> int:
        return next(self._marks)

    async def live(self, over: asyncio.Event) -> None:
        async with asyncio.TaskGroup() as lives:
            for conversation in self.conversations:
                lives.create_task(conversation.live(over))

    async def close(self, within_s: float) -> list[str]:
        """Close every conversation, and return the threads of those that do not end."""
        closings = [conversation.close(within_s) for conversation in self.conversations]
        ended = await asyncio.gather(*closings, return_exceptions=True)
        for each in ended:
            if isinstance(each, BaseException) and not isinstance(each, TimeoutError):
                raise each
        return [
            conversation.root
            for conversation, each in zip(self.conversations, ended, strict=True)
            if isinstance(each, TimeoutError)
        ]
