"""Resources shared by all conversations of a workspace: Slack client, user names, reactions and background tasks."""

from __future__ import annotations

import asyncio
import re
import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from connector.protocols import LeaseLost, SlackOptions
from connector.slack_api.agent_sessions import AgentSessions
from connector.slack_api.app_views import AppViews
from connector.slack_api.client import best_effort
from connector.slack_api.rate_limiter import CallCancelled, CallSlot, CancelScope
from connector.slack_api.users import Users

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine
    from types import TracebackType

    from connector.events import SlackMessage
    from connector.records import RunArtifacts
    from connector.slack_api.client import SlackClient

ENVELOPE = "incoming_envelope"
EYES = "eyes"
HOURGLASS = "hourglass_flowing_sand"
# Timeout of a call. The calls of a killed process may reach Slack for this long.
CALLS_LATE_S = 15.0
_OLDER_FIRST_S = 30.0
_CLOSE_WITHIN_S = 0.6
_MOST_ADDED = 10_000
# Limit on threads read concurrently; further conversations wait in the store, without a lease.
_MOST_CATCHING_UP = 20
# Slack allows 20 reaction removals a minute. More hourglasses than half of that would outlast their runs.
_MOST_HOURGLASSES = 10
_TS = re.compile(r"[0-9]+\.[0-9]+")


class ReactionKey(NamedTuple):
    """An emoji on a message."""

    channel: str
    ts: str
    name: str


@dataclass(slots=True)
class _PendingReaction:
    """A reaction being added. Once it `is_sent` it may exist, even if the call fails."""

    scope: CancelScope = field(default_factory=CancelScope)
    is_sent: bool = False
    is_done: asyncio.Event = field(default_factory=asyncio.Event)


class Reactions:
    """Adds and removes reactions. Their rate limit is low: removing one that is not sent yet cancels it."""

    def __init__(self, client: SlackClient) -> None:
        self._client = client
        self._pending: dict[ReactionKey, _PendingReaction] = {}
        # Those that this process has added, the latest last.
        self._added: dict[ReactionKey, None] = {}

    async def add(self, reaction: ReactionKey, run: str, confirm: Callable[[], Awaitable[None]] | None = None) -> bool:
        """Add a reaction; return whether it may exist. An exception from `confirm` prevents the call.

        Raises:
            SlackCallFailed: Slack refused it.
        """
        pending = self._pending[reaction] = _PendingReaction()

        async def send() -> None:
            if confirm is not None:
                await confirm()
            pending.scope.check()
            pending.is_sent = True

        try:
            await self._client.react(*reaction, CallSlot(run=run, scope=pending.scope), send)
            self._added[reaction] = None
            if len(self._added) > _MOST_ADDED:
                self._added.pop(next(iter(self._added)))
        except CallCancelled:
            return pending.is_sent
        finally:
            pending.is_done.set()
            if self._pending.get(reaction) is pending:
                del self._pending[reaction]
        return True

    def has(self, reaction: ReactionKey) -> bool:
        """Return whether this process has added a reaction, or is about to."""
        pending = self._pending.get(reaction)
        return reaction in self._added or (pending is not None and not pending.scope.is_cancelled)

    def cancel(self, reaction: ReactionKey) -> bool:
        """Cancel a reaction that waits to be sent. Return True if it certainly was never sent."""
        pending = self._pending.get(reaction)
        if pending is None:
            return False
        pending.scope.cancel()
        return not pending.is_sent

    async def remove(self, reaction: ReactionKey) -> None:
        """Remove a reaction. If it is being sent, wait for that first, so that it is not added afterwards.

        Raises:
            SlackCallFailed: Slack refused.
        """
        pending, is_there = self._pending.get(reaction), reaction in self._added
        self._added.pop(reaction, None)
        if self.cancel(reaction) and not is_there:  # an earlier run may have added it
            return
        if pending is not None:
            await pending.is_done.wait()
        await self._client.unreact(*reaction)


class BackgroundTasks:
    """Owns the tasks that call Slack in the background. Their errors are isolated, and they do not delay shutdown."""

    def __init__(
        self,
        client: SlackClient,
        calls_late_s: float = CALLS_LATE_S,
        older_first_s: float = _OLDER_FIRST_S,
        options: SlackOptions = SlackOptions(),  # noqa: B008 - it is frozen
        now_s: Callable[[], float] = time.time,
    ) -> None:
        """`calls_late_s` is how long the calls of a killed process may still reach Slack.

        `older_first_s` is how long messages wait for older ones while their thread cannot be read from Slack. `now_s`
        returns seconds since the epoch.
        """
        self.client = client
        self.calls_late_s = calls_late_s
        self.older_first_s = older_first_s
        self.options = options
        self.now_s = now_s
        self.users = Users(client)
        self._reactions = Reactions(client)
        # Loop time until which threads are read with little patience, because a read has failed.
        self.impatient_until_s = 0.0
        self._hourglasses: set[ReactionKey] = set()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._sleeping: set[asyncio.Task[None]] = set()
        # The tasks that read threads.
        self.catching_up: set[asyncio.Task[None]] = set()
        self.agent_sessions = AgentSessions(client, self.spawn)
        self.app_views = AppViews(client, self.spawn)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for sleep_until in self._sleeping:
            sleep_until.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=_CLOSE_WITHIN_S)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.users.close()

    def spawn(self, coroutine: Coroutine[Any, Any, object], *registries: set[asyncio.Task[None]]) -> asyncio.Task[None]:
        """Start a task; the `registries` contain it until its end. `LeaseLost` is ignored: the run handles it."""

        async def guarded() -> None:
            with suppress(LeaseLost):
                await best_effort(coroutine)

        task = asyncio.create_task(guarded())
        self.keep(task)
        for tasks in registries:
            tasks.add(task)
            task.add_done_callback(tasks.discard)
        return task

    def keep(self, task: asyncio.Task[Any]) -> None:
        """Wait for a task at the end of the process, then cancel it."""
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    @property
    def may_catch_up(self) -> bool:
        """Whether one more thread may be read now."""
        return len(self.catching_up) < _MOST_CATCHING_UP

    async def sleep_until(self, until_s: float) -> None:
        """Sleep until this time of the event loop's clock. Shutdown cancels the sleep."""
        sleep_until = asyncio.create_task(asyncio.sleep(until_s - asyncio.get_running_loop().time()))
        self._sleeping.add(sleep_until)
        sleep_until.add_done_callback(self._sleeping.discard)
        await sleep_until

    def mark_accepted(self, message: SlackMessage) -> None:
        """Add 📨: the message is accepted. Slack's limit on reactions leaves no room for a second call."""
        envelope = ReactionKey(message.channel, message.ts, ENVELOPE)
        if not (message.key or self._reactions.has(envelope)):
            self.spawn(self._reactions.add(envelope, message.user))

    def unmark_accepted(self, message: SlackMessage) -> None:
        """Remove 📨: the message is withdrawn or refused."""
        if not message.key:
            self.spawn(self._reactions.remove(ReactionKey(message.channel, message.ts, ENVELOPE)))

    def mark_delivered(self, message_id: str) -> None:
        """Add 👀: the message is delivered. Ignore ids of another form: of notes, and those that modules inject."""
        match message_id.split(":"):
            case [_team, channel, ts] if _TS.fullmatch(ts):
                self._reactions.cancel(ReactionKey(channel, ts, ENVELOPE))  # a queued 📨 is obsolete
                self.spawn(self._reactions.add(ReactionKey(channel, ts, EYES), message_id))

    def reserve_hourglass(self, message: SlackMessage) -> bool:
        """Reserve one of the ten ⏳ reactions for the run that begins with this message.

        Returns False if all are in use, or the message is not in Slack; then only the status message shows the run.
        """
        if message.key:
            return False
        # The status message replaces a queued 📨.
        self._reactions.cancel(ReactionKey(message.channel, message.ts, ENVELOPE))
        is_room = len(self._hourglasses) < _MOST_HOURGLASSES
        if is_room:
            self._hourglasses.add(ReactionKey(message.channel, message.ts, HOURGLASS))
        return is_room

    def release_hourglass(self, channel: str, ts: str) -> None:
        """Release the ⏳ reservation: this process neither adds nor removes it."""
        self._hourglasses.discard(ReactionKey(channel, ts, HOURGLASS))

    async def add_hourglass(self, message: SlackMessage, confirm: Callable[[], Awaitable[None]]) -> bool:
        """Add ⏳: a run begins with the message, or resumes. Returns whether the reaction may be there.

        After an error it may be there, too.

        Raises:
            SlackCallFailed: Slack rejected the call.
        """
        hourglass = ReactionKey(message.channel, message.ts, HOURGLASS)
        self._hourglasses.add(hourglass)
        is_there = True
        try:
            is_there = await self._reactions.add(hourglass, message.user, confirm)
        except LeaseLost:
            is_there = False  # the new owner removes it
            raise
        finally:
            if not is_there:
                self._hourglasses.discard(hourglass)
        return is_there

    def cancel_hourglass(self, message: SlackMessage) -> None:
        """Cancel a queued ⏳, because the run is over."""
        self._reactions.cancel(ReactionKey(message.channel, message.ts, HOURGLASS))

    async def remove_hourglass(self, artifacts: RunArtifacts) -> None:
        """Remove the hourglass of a run.

        Raises:
            SlackCallFailed: Slack rejected the call.
        """
        await self._reactions.remove(ReactionKey(artifacts.channel, artifacts.first_ts, HOURGLASS))
