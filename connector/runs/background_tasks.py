"""What all conversations of a workspace share: the wire, the names, and the marks on people's messages."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Self

from connector.formatting.content import Content
from connector.formatting.links import escape
from connector.protocols import LeaseLost, SlackOptions
from connector.runs.run_slots import RunSlots
from connector.runs.status.message import take_away
from connector.slack_api.agent_sessions import AgentSessions
from connector.slack_api.best_effort import best_effort
from connector.slack_api.reactions import ReactionKey, Reactions
from connector.slack_api.users import Users

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine
    from types import TracebackType

    from connector.events import SlackMessage
    from connector.protocols import SessionManager
    from connector.records.entries import ThreadCatchUp
    from connector.records.pending_cleanup import Notice
    from connector.records.run_artifacts import RunArtifacts
    from connector.routing import Router
    from connector.slack_api.client import SlackClient

ENVELOPE = "incoming_envelope"
EYES = "eyes"
HOURGLASS = "hourglass_flowing_sand"
# How long a call may take: so long after a process was killed, its calls may still reach Slack.
CALLS_LATE_S = 15.0
_OLDER_FIRST_S = 30.0
_CLOSE_WITHIN_S = 1.0
# Conversations whose threads are read at once; the others wait in the store, without a lease.
_MOST_CATCHING_UP = 20
# Slack lets twenty marks a minute be taken away: more hourglasses than half of that would stand long after their runs.
_MOST_HOURGLASSES = 10


class BackgroundTasks:
    """Owns the tasks that speak to Slack beside the runs; none of them can harm another, or hold the end up."""

    def __init__(
        self,
        wire: SlackClient,
        calls_late_s: float = CALLS_LATE_S,
        older_first_s: float = _OLDER_FIRST_S,
        options: SlackOptions = SlackOptions(),  # noqa: B008 - it is frozen
    ) -> None:
        """`calls_late_s` is how long after a process was killed its calls may still reach Slack.

        `older_first_s` is how long what is to be read waits for older messages from a thread that Slack does not give.
        """
        self.wire = wire
        self.calls_late_s = calls_late_s
        self.older_first_s = older_first_s
        self.options = options
        self.names = Users(wire)
        self._marks = Reactions(wire)
        self._hourglasses: set[ReactionKey] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._resting: set[asyncio.Task[None]] = set()
        self._catching_up: set[asyncio.Task[None]] = set()
        self.native = AgentSessions(wire, self.spawn)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for rest in self._resting:
            rest.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=_CLOSE_WITHIN_S)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.names.close()

    def spawn(self, coroutine: Coroutine[Any, Any, object]) -> asyncio.Task[None]:
        task = asyncio.create_task(_beside(coroutine))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    @property
    def may_catch_up(self) -> bool:
        """Whether one more conversation may have its thread read."""
        return len(self._catching_up) < _MOST_CATCHING_UP

    def catch_up(self, coroutine: Coroutine[Any, Any, object]) -> asyncio.Task[None]:
        """Begin to read a thread."""
        task = self.spawn(coroutine)
        self._catching_up.add(task)
        task.add_done_callback(self._catching_up.discard)
        return task

    async def rest(self, until_s: float) -> None:
        """Return at this time of the loop; at the end, who rests is not waited for."""
        rest = asyncio.create_task(asyncio.sleep(until_s - asyncio.get_running_loop().time()))
        self._resting.add(rest)
        rest.add_done_callback(self._resting.discard)
        await rest

    def mark_accepted(self, message: SlackMessage) -> None:
        """📨: the message is with us, and will be read."""
        self.spawn(self._marks.put(ReactionKey(message.channel, message.ts, ENVELOPE), message.user))

    def take_back(self, message: SlackMessage) -> None:
        """The message is not accepted after all."""
        self.spawn(self._marks.take(ReactionKey(message.channel, message.ts, ENVELOPE)))

    def mark_read(self, message_id: str) -> None:
        """👀: the model has the message before it. What a module handed to the loop has an id of another form."""
        match message_id.split(":"):
            case [_team, channel, ts]:
                self._marks.forget(ReactionKey(channel, ts, ENVELOPE))  # to say that it will be read is too late
                self.spawn(self._marks.put(ReactionKey(channel, ts, EYES), message_id))

    def takes_mark(self, message: SlackMessage) -> bool:
        """Whether a run that begins with this message is to be marked ⏳; then there is room for that until it is not.

        Where there are many, the status message alone says so.
        """
        self._marks.forget(ReactionKey(message.channel, message.ts, ENVELOPE))  # the run shows more
        is_room = len(self._hourglasses) < _MOST_HOURGLASSES
        if is_room:
            self._hourglasses.add(_hourglass_on(message))
        return is_room

    def leaves_mark(self, message: SlackMessage) -> None:
        """Nobody here marks it any more, nor takes the mark away."""
        self._hourglasses.discard(_hourglass_on(message))

    async def mark_working(self, message: SlackMessage, confirm: Callable[[], Awaitable[None]]) -> bool:
        """⏳: a run has begun with the message, or was taken up.

        Returns whether the mark may be there; where this fails, it may be.

        Raises:
            SlackCallFailed: Slack did not take it.
        """
        mark = _hourglass_on(message)
        self._hourglasses.add(mark)
        is_there = True
        try:
            is_there = await self._marks.put(mark, message.user, confirm)
        except LeaseLost:
            is_there = False  # whoever owns the conversation takes it away
            raise
        finally:
            if not is_there:
                self._hourglasses.discard(mark)
        return is_there

    def forgo_working(self, message: SlackMessage) -> None:
        """A run is over: the ⏳ that still waits for its turn is not put any more."""
        self._marks.forget(_hourglass_on(message))

    async def take_away(self, traces: RunArtifacts) -> None:
        """Take away what a run has left. Nobody else would do it later: where Slack is away, it is waited for."""
        for ts in traces.statuses:
            await best_effort(self.wire.insisting(partial(take_away, self.wire, traces.channel, ts, traces.user)))
        if traces.is_marked:
            await best_effort(self.wire.insisting(partial(self.unmark, traces)))
            self._hourglasses.discard(_hourglass_of(traces))

    async def unmark(self, traces: RunArtifacts) -> None:
        """Take the hourglass of a run away.

        Raises:
            SlackCallFailed: Slack did not do it.
        """
        await self._marks.take(_hourglass_of(traces))

    async def say(self, notice: Notice, confirm: Callable[[], Awaitable[None]]) -> None:
        """Post a sentence of the service's own, and return when Slack has it, or refuses it.

        What `confirm` raises keeps it from being posted: another process does that.
        """
        in_doubt = notice.is_inherited

        async def attempt() -> None:
            nonlocal in_doubt
            was_in_doubt, in_doubt = in_doubt, True  # where it fails, it may have come through all the same
            content = Content(escape(notice.text))
            await self.wire.post(notice.message.place, content, notice.key, in_doubt=was_in_doubt, confirm=confirm)

        await best_effort(self.wire.insisting(attempt))


def _hourglass_on(message: SlackMessage) -> ReactionKey:
    return ReactionKey(message.channel, message.ts, HOURGLASS)


def _hourglass_of(traces: RunArtifacts) -> ReactionKey:
    return ReactionKey(traces.channel, traces.first_ts, HOURGLASS)


async def _beside(call: Coroutine[Any, Any, object]) -> None:
    """What is done beside the runs: that a conversation was lost concerns only those."""
    with suppress(LeaseLost):
        await best_effort(call)


@dataclass(frozen=True, slots=True)
class WorkspaceContext:
    """Hold the dependencies of conversations. `catch_up` admits the messages of a thread that no inbox has."""

    sessions: SessionManager
    desk: BackgroundTasks
    router: Router
    catch_up: Callable[[ThreadCatchUp], Awaitable[None]]
    slots: RunSlots = field(default_factory=RunSlots)
