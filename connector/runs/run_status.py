"""What a thread shows of an active run: its hourglass, its agent session status, and the status message."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING

import structlog

from connector import texts
from connector.formatting.content import Content
from connector.records import RunArtifacts
from connector.runs.status_text import Activity, status_content, until_next_step
from connector.slack_api.agent_sessions import PROCESSING, SUSPENDED, title_of
from connector.slack_api.client import best_effort
from connector.slack_api.errors import RetryDecision, SlackCallFailed, error_boundary
from connector.slack_api.rate_limiter import CallCancelled, CallSlot, CancelScope, Priority

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
    from typing import Any

    from connector.protocols import ConversationLease, Persona
    from connector.records import RequestRecord, RunRecord
    from connector.runs.background_tasks import BackgroundTasks
    from connector.slack_api.client import SlackClient

log = structlog.get_logger(__name__)

# How long a finished run waits for the call that adds its hourglass.
_MARKED_WITHIN_S = 2.0
# How often a status message that Slack does not let the bot edit is replaced by a new one.
_REPLACEMENTS = 2
# Slack ends `processing` by itself after about an hour.
_RENEW_SESSION_S = 45 * 60.0
# The key of a status message is the run id, this suffix, and the ts of the message that it replaces, if any.
STATUS_KEY = ":status"
# Events that show that a resumed run is working. A run whose log was complete only ends.
_AT_WORK = frozenset({"waiting", "thinking", "tool:start", "retrying", "fallback", "compacting", "disconnected"})


async def remove_status(client: SlackClient, channel: str, ts: str, run: str = "") -> None:
    """Delete a status message; if Slack forbids that, change its text to "Done.". `run` is as in `CallSlot`.

    Raises:
        SlackCallFailed: Slack rejected the call.
    """
    try:
        await client.delete(channel, ts, CallSlot(Priority.STATUS, run))
    except SlackCallFailed as e:
        if e.error != "cant_delete_message":
            raise
        await client.update(channel, ts, lambda: Content(texts.DONE), CallSlot())


class RunStatus:
    """The status message of a run, its hourglass and its agent session status. Updating them never delays the run.

    The status message is posted at the start, edited while the run is active, and posted again if it was deleted or
    cannot be edited. A resumed run reuses what the earlier owner left.
    """

    def __init__(  # noqa: PLR0913 - the facts of a run, and two callbacks
        self,
        background: BackgroundTasks,
        lease: ConversationLease,
        record: RunRecord,
        persona: Persona,
        *,
        name: str = "",
        keep_ts: Callable[[str], Awaitable[None]],
        on_closed: Callable[[str], None],
    ) -> None:
        """`name`: what works, for the status message; blank: it is clear, because there is only one agent.

        `keep_ts` stores the ts of the status message.
        `on_closed` is called with Slack's error code if Slack no longer accepts posts in the conversation.
        """
        self._background = background
        self._client = background.client
        self._lease = lease
        self._record = record
        # Of Slack's own status only: an edited message loses them.
        self._persona = persona
        self._keep_ts, self._on_closed = keep_ts, on_closed
        self._place = record.first.message.place
        self._has_hourglass = record.has_hourglass
        self._cancel_scope = CancelScope()
        # Fair between people: the status messages of one person do not delay those of others.
        self._slot = CallSlot(Priority.STATUS, record.first.message.user, self._cancel_scope)
        self._activity = Activity(worker=name)
        self._began_s = asyncio.get_running_loop().time()
        self._shown: Content | None = None
        self._ts: str | None = record.status_ts
        self._all = [record.status_ts] if record.status_ts else []
        self._lost: set[str] = set()
        self._changed, self._at_work = asyncio.Event(), asyncio.Event()
        self._is_plain = False
        self._replacements = 0
        # Whether a copy of unknown ts may exist, or arrive late.
        self.is_in_doubt = False
        self.is_suspended = False
        # Slack shows a run that waits for people as one that needs attention.
        self._is_waiting = False
        self._tasks = asyncio.TaskGroup()
        self._opening: asyncio.Task[None] | None = None
        self._updating: asyncio.Task[None] | None = None

    def is_mine(self, ts: str) -> bool:
        """Return whether this is the known ts of a status message of the run."""
        return ts in self._all

    @property
    def phrase(self) -> str:
        """The current activity as one line."""
        return self._activity.phrase()

    @property
    def artifacts(self) -> RunArtifacts:
        """The artifacts to remove when the run is over."""
        first = self._record.first.message
        return RunArtifacts(
            first.channel,
            first.ts,
            statuses=tuple(ts for ts in self._all if ts not in self._lost),
            has_hourglass=self._has_hourglass,
            team=self._place.team,
            thread_ts=self._place.thread_ts or "",
            run_id=self._record.id,
            user=first.user,
            is_inherited=self._record.was_taken_over,
            worker=self._place.worker,
        )

    def on_event(self, event: str, data: dict[str, Any]) -> None:
        """Record a progress event; the next edit shows it."""
        self._activity.on_event(event, data)
        self._changed.set()
        if event in _AT_WORK:
            self._at_work.set()

    def show_waiting(self, requests: Sequence[RequestRecord]) -> None:
        """Show for which answers of people the run waits, if it does."""
        was_waiting, self._is_waiting = self._is_waiting, bool(requests)
        self._activity.wait_for([texts.PRIVATE if each.request.person else each.request.title for each in requests])
        self._changed.set()
        if was_waiting != self._is_waiting and not self._is_over:
            self._at_work.set()
            self._background.agent_sessions.show(self._place, SUSPENDED if requests else PROCESSING)

    def stop(self) -> None:
        """Record that a person asked the run to stop."""
        self._activity.stop()
        self._changed.set()

    @asynccontextmanager
    async def shown(self) -> AsyncIterator[None]:
        """Show the run while the body runs. Cleanup removes hourglass and status message later."""
        background, first = self._background, self._record.first
        async with self._tasks as tasks:
            hourglass = background.spawn(self._add_hourglass()) if self._has_hourglass else None
            self._opening = tasks.create_task(self._open())
            updating = self._updating = tasks.create_task(self._update(self._opening))
            renewing = tasks.create_task(self._show_as_processing())
            yield
            self._cancel_scope.cancel()
            self._at_work.set()
            self._changed.set()
            renewing.cancel()
            updating.cancel()
            await asyncio.wait((updating, renewing))
            await asyncio.wait((self._opening,))
            if hourglass is not None:
                background.cancel_hourglass(first.message)
                await asyncio.wait((hourglass,), timeout=_MARKED_WITHIN_S)
            await self._lease.confirm()
            if self.is_suspended:  # the next owner reuses the message
                background.agent_sessions.show(self._place, SUSPENDED)
                if (ts := self._ts) is not None:
                    slot, shown = CallSlot(run=self._slot.run), Content(texts.SUSPENDED)
                    await best_effort(self._client.update(self._place.channel, ts, lambda: shown, slot))

    async def _show_as_processing(self) -> None:
        """Show the thread as processing, and again before Slack ends that; the first message is the title."""
        first, sessions = self._record.first, self._background.agent_sessions
        # The root of a direct message thread may be Slack's own.
        begins = first.message.direct or first.message.ts == self._place.thread_ts
        begins = begins and not self._record.was_taken_over
        title = title_of(self._background.users.with_names(first.prompt)) if begins else ""
        while True:
            sessions.show(self._place, SUSPENDED if self._is_waiting else PROCESSING, title, self._persona)
            await asyncio.sleep(_RENEW_SESSION_S)

    async def _add_hourglass(self) -> None:
        is_there = await self._background.add_hourglass(self._record.first.message, self._lease.confirm)
        self._has_hourglass = is_there or self._record.was_taken_over

    async def _open(self) -> None:
        """Post the status message, unless it exists."""
        if self._ts is None:
            if self._record.was_taken_over:  # a run whose log was complete needs no status message
                await self._at_work.wait()
            await self._post(f"{self._record.id}{STATUS_KEY}")

    async def _post(self, key: str) -> None:
        """Post the status message, unless an earlier owner did."""
        posted_ts = None
        # After an error, the run continues without a status message.
        with error_boundary("status.not_posted", conversation=self._place.conversation_id):
            try:
                posted_ts = await self._send(key)
            except CallCancelled:
                log.debug("status.not_needed")
            except SlackCallFailed as e:
                self._give_up(e)
        if posted_ts is not None:
            self._ts = posted_ts
            if self._record.was_taken_over:
                self._shown = None  # the text of an earlier owner's message is outdated
            self._all.append(posted_ts)
            if not self._is_over:
                await self._keep_ts(posted_ts)

    async def _send(self, key: str) -> str:
        def on_doubt() -> None:
            self.is_in_doubt = True

        self._cancel_scope.check()
        since, confirm = f"{self._record.first.written_s:.6f}", self._lease.confirm
        post = partial(self._client.post, self._place, key=key, slot=self._slot, since=since, confirm=confirm)
        in_doubt = self._record.was_taken_over  # an earlier owner may have posted it
        try:
            return await post(self._content(), in_doubt=in_doubt, on_doubt=on_doubt)
        except SlackCallFailed as e:
            if e.decision is not RetryDecision.TOO_MUCH or self._is_plain:
                raise
            self._simplify(e)
            return await self._send(key)

    def _simplify(self, refused: SlackCallFailed) -> None:
        """Do without cards, in the whole workspace; or if there are none, without blocks."""
        if self._has_cards:
            self._client.takes_cards = False
            log.warning("status.no_cards", error=str(refused))
        else:
            log.warning("status.plain", error=str(refused))
            self._is_plain = True

    @property
    def _has_cards(self) -> bool:
        return self._background.options.cards and self._client.takes_cards and not self._is_plain

    def _give_up(self, failed: SlackCallFailed) -> None:
        log.warning("status.not_shown", conversation=self._place.conversation_id, error=str(failed))
        if failed.decision is RetryDecision.CONVERSATION_CLOSED:
            self._on_closed(failed.error)

    async def _update(self, opening: asyncio.Task[None]) -> None:
        # The post may be in flight: cancelling the updates must not cancel it.
        await asyncio.shield(opening)
        # Check `_is_over` as well: a call that times out while it is cancelled loses the cancellation.
        while self._ts is not None and not self._is_over:
            await asyncio.sleep(self._background.options.status_interval_s)
            while self._compose() == self._shown and not self._is_over:
                self._changed.clear()
                self._activity.mark_shown()
                if self._compose() == self._shown:
                    with suppress(TimeoutError):  # the next step of the elapsed time
                        async with asyncio.timeout(until_next_step(self._elapsed_s)):
                            await self._changed.wait()
            if not self._is_over:
                await self._lease.confirm()
                await self._edit(self._ts)

    async def _edit(self, ts: str) -> None:
        failed = None
        with error_boundary("slack.call_crashed"), suppress(CallCancelled):  # a status error must not end the run
            try:
                await self._client.update(self._place.channel, ts, self._content, self._slot)
            except SlackCallFailed as e:
                failed = e
        match failed:
            case None:
                pass
            case SlackCallFailed(decision=RetryDecision.TOO_MUCH) if not self._is_plain:
                self._simplify(failed)
            case SlackCallFailed(decision=RetryDecision.GONE):
                await self._replace(ts, failed)
            case SlackCallFailed(decision=RetryDecision.CONVERSATION_CLOSED):
                self._ts = None
                self._give_up(failed)
            case _:
                log.warning("slack.call_failed", error=str(failed))
                if failed.is_transient:
                    self._shown = None

    async def _replace(self, lost: str, failed: SlackCallFailed) -> None:
        """Post a new status message, and delete the old one if it still exists."""
        log.info("status.lost", conversation=self._place.conversation_id, error=str(failed))
        self._ts = None
        is_there = failed.error != "message_not_found"
        self._replacements += is_there
        if self._replacements > _REPLACEMENTS:
            return
        self._opening = self._tasks.create_task(self._post(f"{self._record.id}{STATUS_KEY}:{lost}"))
        await asyncio.shield(self._opening)
        if is_there:
            await best_effort(self._client.delete(self._place.channel, lost))
        else:
            self._lost.add(lost)

    @property
    def _is_over(self) -> bool:
        return self._cancel_scope.is_cancelled

    @property
    def _elapsed_s(self) -> float:
        return asyncio.get_running_loop().time() - self._began_s

    def _compose(self) -> Content:
        return status_content(
            self._activity, self._record.id, self._elapsed_s, is_plain=self._is_plain, has_cards=self._has_cards
        )

    def _content(self) -> Content:
        self._shown = self._compose()
        self._activity.mark_shown()
        return self._shown
