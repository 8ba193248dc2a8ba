"""A stage for one scenario: a fresh Slack, a model, and the agent's process; and the answers in the thread."""

from __future__ import annotations

import asyncio
import itertools
import time
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

from conformance.agent import AgentProcess
from conformance.model import ANSWER, NOTHING, Model
from local_slack import EVENTS, LocalSlack

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from conformance.agent import Agent
    from local_slack import Workspace, WorkspaceMessage

CHANNEL = "general"
# A second copy of an answer comes within this time after the first.
SETTLE_S = 1.5
# The calls by which an answer may reach a thread.
POSTING = ("chat.postMessage", "chat.update", "chat.startStream", "chat.appendStream", "chat.stopStream")


class ScenarioFailed(Exception):  # noqa: N818 - reads as what happened
    """The agent did not keep the promise of a scenario."""


class Stage:
    """People write marked messages, and the answers are compared with them."""

    def __init__(self, agent: Agent, slack: LocalSlack, model: Model, process: AgentProcess) -> None:
        self.agent, self.slack, self.model, self.process = agent, slack, model, process
        self.person = slack.as_person("ana")
        self.root = ""
        # The ts of the messages that must be answered, by mark; and the marks that must not be.
        self.expected: dict[str, str] = {}
        # The threads of all messages, by mark.
        self.threads: dict[str, str] = {}
        self.forbidden: set[str] = set()
        self.measured_s: dict[str, float] = {}
        self._numbers = itertools.count(1)

    def mark(self) -> str:
        return f"mk{next(self._numbers):04}"

    @property
    def events_of_reply(self) -> int:
        """Return the number of events that the app gets of one message in a thread."""
        events = self.agent.events or EVENTS
        return ("message" in events) + ("app_mention" in events and self.agent.mention == "every")

    async def begin(self) -> str:
        """Begin a thread with a mention; returns the mark."""
        self.root = ""
        return await self.say()

    async def say(self, *, by: str = "ana") -> str:
        """Write a marked message into the thread, or begin it; returns the mark."""
        mark = self.mark()
        must_mention = not self.root or self.agent.mention == "every" or by != "ana"
        text = f"{'@alpha ' if must_mention else ''}please note {mark}"
        ts = await self.slack.as_person(by).say(CHANNEL, text, thread=self.root or None)
        self.root = self.root or ts
        self.expected[mark], self.threads[mark] = ts, self.root
        return mark

    async def begin_working(self) -> str:
        """Begin a thread, and hold the model's answer; returns the mark."""
        self.model.hold()
        mark = await self.begin()
        if not await self.model.reached(mark, self.agent.patience_s):
            raise ScenarioFailed("the model was not asked")
        return mark

    async def stop(self, how: str) -> None:
        match how:
            case "reaction":
                await self.person.react(CHANNEL, self.root, "x")
            case "word":
                text = "@alpha stop" if self.agent.mention == "every" else "stop"
                await self.person.say(CHANNEL, text, thread=self.root)
            case _:
                await self.person.stop_session(self.slack.channel(CHANNEL).id, self.root)

    async def start(self) -> None:
        """Start the agent's process, and wait until it is connected."""
        await self.process.start()
        end = time.monotonic() + self.agent.ready_s
        while not self.slack.workspace.bot_online:
            if self.process.has_ended or time.monotonic() > end:
                how = "ended" if self.process.has_ended else f"did not connect within {self.agent.ready_s:g} s"
                raise ScenarioFailed(f"the agent {how}; the last line of its output: {self.process.last_words!r}")
            with suppress(TimeoutError):
                await self.slack.until(lambda workspace: workspace.bot_online, 0.2)

    async def restart(self) -> None:
        """Kill the process, and start it again."""
        await self.process.kill()
        await self.until(lambda workspace: not workspace.bot_online, 10, "the killed process stayed connected")
        await self.start()

    @property
    def answers(self) -> list[WorkspaceMessage]:
        """Return the messages of the agent that answer, oldest first: with the model's text, or without a model all."""
        return [each for each in self._said if _marks(each)] if self.agent.model else self._said

    @property
    def _said(self) -> list[WorkspaceMessage]:
        messages = self.slack.workspace.messages(self.slack.channel(CHANNEL).id)
        return [each for each in messages if each.bot is not None]

    @property
    def answered(self) -> list[list[str]]:
        """Return the marks of its own thread that each answer names, oldest answer first."""
        return [marks for each in self.answers if (marks := self._of_its_thread(each))]

    def _of_its_thread(self, answer: WorkspaceMessage) -> list[str]:
        """Return the marks that an answer names; those of other threads may come from the channel, as context."""
        return [mark for mark in _marks(answer) if self.threads.get(mark) == answer.thread_ts]

    def has_answered(self, mark: str) -> bool:
        return any(mark in marks for marks in self.answered)

    async def settle(self, patience_s: float = 0) -> None:
        """Wait until all is answered, or the agent's patience and this one end; then for second copies."""
        began = time.monotonic()
        with suppress(TimeoutError):
            await self.slack.until(lambda _: self._is_complete, max(self.agent.patience_s, patience_s))
        self.measured_s["until answered"] = time.monotonic() - began
        await asyncio.sleep(SETTLE_S)

    @property
    def _is_complete(self) -> bool:
        if not self.agent.model:
            return len(self.answers) >= len(self.expected)
        return all(self.has_answered(mark) for mark in self.expected)

    def check(self) -> None:
        """Compare the answers with the messages.

        Raises:
            ScenarioFailed: messages were lost, answered again, elsewhere or out of order, or should not have been read.
        """
        if not self.agent.model:
            if (found := len(self.answers)) != len(self.expected):
                raise ScenarioFailed(f"{found} answers to {len(self.expected)} messages")
            return
        first: list[str] = []
        again: list[str] = []
        for marks in self.answered:
            again += [mark for mark in marks if mark in first and mark not in again]
            first += [mark for mark in marks if mark not in first]
        astray = [mark for each in self.answers if not self._of_its_thread(each) for mark in _marks(each)]
        # A notice of an edit or a deletion has no mark; without one, the model is asked again without a reason.
        idle = [] if self.forbidden else [each for each in self._said if NOTHING in _content(each)]
        lost = [mark for mark in self.expected if mark not in first]
        wrong = sorted(self.forbidden.intersection(first))
        # The agent may answer a later thread first.
        ordered = sorted((mark for mark in first if mark in self.expected), key=lambda mark: self.threads[mark])
        is_ordered = ordered == sorted(ordered, key=lambda mark: (self.threads[mark], self.expected[mark]))
        problems = (
            _counted(lost, "not answered"),
            _counted(again, "answered more than once"),
            _counted(astray, "answered outside of its thread"),
            f"{len(idle)} more answers without a new message" if idle else "",
            "" if is_ordered else f"answered out of order: {' '.join(ordered)}",
            _counted(wrong, "answered in spite of the change"),
        )
        if found_problems := "; ".join(filter(None, problems)):
            raise ScenarioFailed(found_problems)

    async def until(self, condition: Callable[[Workspace], bool], timeout_s: float, what: str) -> None:
        """Wait until the workspace fulfils a condition.

        Raises:
            ScenarioFailed: it does not in time.
        """
        try:
            await self.slack.until(condition, timeout_s)
        except TimeoutError:
            raise ScenarioFailed(f"{what} within {timeout_s:g} s") from None


@asynccontextmanager
async def stage(agent: Agent, here: Path, folder: Path) -> AsyncIterator[Stage]:
    """Run the agent in a fresh workspace; its files and its log are in ``folder``, which exists."""
    async with LocalSlack(events=agent.events or EVENTS) as slack, Model() as model:
        process = AgentProcess(agent, here, folder, model.url, slack.variables)
        there = Stage(agent, slack, model, process)
        try:
            await there.start()
            yield there
        finally:
            await process.kill()


def _marks(message: WorkspaceMessage) -> list[str]:
    """Return the marks that a message answers; its text and its blocks may both have them."""
    found = ANSWER.findall(_content(message))
    return list(dict.fromkeys(mark for marks in found for mark in marks.split()))


def _content(message: WorkspaceMessage) -> str:
    return f"{message.text}\n{message.blocks}"


def _counted(marks: list[str], what: str) -> str:
    return f"{len(marks)} {what} ({' '.join(marks[:5])})" if marks else ""
