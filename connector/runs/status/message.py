"""The status message of a run: posted when it begins, and edited while it goes on."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol

import structlog

from connector import texts
from connector.formatting.content import Content
from connector.protocols import LeaseLost
from connector.runs.status.activity import Activity
from connector.runs.status.blocks import plain_status, status_content, until_next_step
from connector.slack_api.best_effort import best_effort
from connector.slack_api.errors import RetryDecision, SlackCallFailed
from connector.slack_api.rate_limiter import CallCancelled, CallSlot, CancelScope, Priority

if TYPE_CHECKING:
    from typing import Any

    from connector.protocols import ConversationLease
    from connector.records.run_record import RunRecord
    from connector.slack_api.client import SlackClient
    from connector.slack_api.history import FoundPost

log = structlog.get_logger(__name__)

# Where edits are forbidden, it is posted anew so often; then it is left as it is.
_REPLACEMENTS = 2
# Between the id of its run, which begins the key of a status message, and the ts of the one that it stands in for.
STATUS_KEY = ":status"
STATUS_SPACING_S = 2.0
# A run that goes on is seen to do so by one of these; one that was complete only ends.
_AT_WORK = frozenset({"waiting", "thinking", "tool:start", "retrying", "fallback", "compacting"})


class Keeper(Protocol):
    """Who is to know what becomes of a run's traces."""

    async def keep_status(self, ts: str) -> None:
        """Remember which message is the status."""
        ...

    def on_closed(self, error: str) -> None:
        """Slack does not let us write in this conversation (any more), for a reason in its own word."""
        ...


async def take_away(wire: SlackClient, channel: str, ts: str, run: str = "") -> None:
    """Delete a status message, `run` as in `CallSlot`; where Slack does not let us, have it say that it is over.

    Raises:
        SlackCallFailed: Slack did not do it.
    """
    try:
        await wire.delete(channel, ts, run)
    except SlackCallFailed as e:
        if e.error != "cant_delete_message":
            raise
        await wire.update(channel, ts, lambda: Content(texts.DONE), CallSlot())


class Status:
    """What people see of a run while it goes on. One that Slack has lost, or does not let us edit, is posted anew."""

    def __init__(  # noqa: PLR0913 - what it is made of
        self,
        wire: SlackClient,
        lease: ConversationLease,
        record: RunRecord,
        keeper: Keeper,
        before: FoundPost | None,
        *,
        spacing_s: float = STATUS_SPACING_S,
    ) -> None:
        """At least `spacing_s` pass between two edits.

        `before` is what stood there when the run was taken up; `None`: it begins here.
        """
        self._wire = wire
        self._spacing_s = spacing_s
        self._lease = lease
        self._record = record
        self._keeper = keeper
        self._place = record.first.message.place
        self._need = CancelScope()
        # People take turns: the status messages of one person do not delay those of the others.
        self._turn = CallSlot(Priority.STATUS, record.first.message.user, self._need)
        self._before = before
        self._activity = Activity()
        self._began = asyncio.get_running_loop().time()
        self._shown: Content | None = None
        self._ts: str | None = record.status_ts
        self._all = [record.status_ts] if record.status_ts else []
        self._lost: set[str] = set()
        self._changed, self._at_work = asyncio.Event(), asyncio.Event()
        self._is_plain = False
        self._replacements = 0
        # Whether there may be one of which Slack has not told the ts.
        self.is_in_doubt = False
        self._tasks: asyncio.TaskGroup | None = None
        self._opening: asyncio.Task[None] | None = None
        self._updating: asyncio.Task[None] | None = None

    def is_mine(self, ts: str) -> bool:
        """Whether this is a status message of the run, as far as Slack has told it."""
        return ts in self._all

    @property
    def standing(self) -> tuple[str, ...]:
        """Those that may still be in the thread."""
        return tuple(ts for ts in self._all if ts not in self._lost)

    def hear(self, event: str, data: dict[str, Any]) -> None:
        """Take note of what the run is doing; the message says so soon."""
        self._activity.hear(event, data)
        self._changed.set()
        if event in _AT_WORK:
            self._at_work.set()

    def stop(self) -> None:
        """Take note that somebody has asked the run to stop."""
        self._activity.stop()
        self._changed.set()

    def begin(self, tasks: asyncio.TaskGroup) -> None:
        """Show it, and keep it up to date."""
        self._tasks = tasks
        self._opening = tasks.create_task(self._open())
        self._updating = tasks.create_task(self._update())

    async def end(self) -> None:
        """Change nothing any more; what is on its way is waited for."""
        self._need.forget()
        self._at_work.set()
        self._changed.set()
        if self._updating is not None:
            self._updating.cancel()
            await asyncio.wait((self._updating,))
        if self._opening is not None:
            await asyncio.wait((self._opening,))

    async def pause(self) -> None:
        """Leave it for another process, saying so."""
        if (ts := self._ts) is not None:
            turn = CallSlot(run=self._turn.run)
            await best_effort(self._wire.update(self._place.channel, ts, lambda: Content(texts.SUSPENDED), turn))

    async def _open(self) -> None:
        """Post it, unless it is there, or the run was over before that."""
        if self._ts is not None:
            return
        if self._before is not None:  # a run that was complete needs none, and is over before it looks for one
            await self._at_work.wait()
        await self._post(f"{self._record.id}{STATUS_KEY}")

    async def _post(self, key: str) -> None:
        """Post it, unless the process that had the run before has."""
        try:
            found = await self._before.find(key, self._turn) if self._before is not None else None
            if found is not None:
                self._shown = None  # what it says is of that time
            self._ts = await self._posted(key) if found is None else found
        except LeaseLost:
            raise
        except CallCancelled:
            log.debug("status.not_needed")
        except SlackCallFailed as e:
            self._give_up(e)
        except Exception:  # a Slack handler's border: a run goes on without its status
            log.exception("status.not_posted", conversation=self._place.conversation_id)
        else:
            await self._keep(self._ts)

    async def _posted(self, key: str) -> str:
        self._need.check()
        try:
            return await self._send(key)
        except SlackCallFailed as e:
            if e.verdict is not RetryDecision.TOO_MUCH or self._is_plain:
                raise
            log.warning("status.plain", error=str(e))
            self._is_plain = True
            return await self._send(key)

    async def _send(self, key: str) -> str:
        confirm = self._lease.confirm
        return await self._wire.post(self._place, self._content(), key, turn=self._turn, confirm=confirm)

    async def _keep(self, ts: str) -> None:
        self._all.append(ts)
        if not self._is_over:
            await self._keeper.keep_status(ts)

    def _give_up(self, failed: SlackCallFailed) -> None:
        log.warning("status.not_shown", conversation=self._place.conversation_id, error=str(failed))
        self.is_in_doubt = self.is_in_doubt or failed.is_passing
        if failed.verdict is RetryDecision.CONVERSATION_CLOSED:
            self._keeper.on_closed(failed.error)

    async def _update(self) -> None:
        # It also looks whether the run is over: a call that times out as it is cancelled loses the cancellation.
        await self._opened()
        while self._ts is not None and not self._is_over:
            await asyncio.sleep(self._spacing_s)
            while self._compose() == self._shown and not self._is_over:
                self._changed.clear()
                self._activity.told()
                if self._compose() == self._shown:
                    await self._news()
            if not self._is_over:
                await self._lease.confirm()
                await self._edit(self._ts)

    async def _opened(self) -> None:
        # The message may be on its way: what posts it is not cancelled with what edits it.
        if self._opening is not None:
            await asyncio.shield(self._opening)

    async def _news(self) -> None:
        """Wait for something new to say, be it only the time."""
        with suppress(TimeoutError):
            async with asyncio.timeout(until_next_step(self._elapsed_s)):
                await self._changed.wait()

    async def _edit(self, ts: str) -> None:
        try:
            await self._wire.update(self._place.channel, ts, self._content, self._turn)
        except SlackCallFailed as e:
            match e.verdict:
                case RetryDecision.TOO_MUCH if not self._is_plain:
                    log.warning("status.plain", error=str(e))
                    self._is_plain = True
                case RetryDecision.GONE:
                    await self._replace(ts, e)
                case RetryDecision.CONVERSATION_CLOSED:
                    self._ts = None
                    self._give_up(e)
                case _:
                    log.warning("slack.call_failed", error=str(e))
                    if e.is_passing:
                        self._shown = None
        except CallCancelled:
            pass
        except LeaseLost:
            raise
        except Exception:  # a Slack handler's border: what decorates a run may not end it
            log.exception("slack.call_crashed")

    async def _replace(self, lost: str, failed: SlackCallFailed) -> None:
        """Post the status anew, and take the lost one away if it is there."""
        log.info("status.lost", conversation=self._place.conversation_id, error=str(failed))
        self._ts = None
        is_there = failed.error != "message_not_found"
        self._replacements += is_there
        if self._replacements > _REPLACEMENTS:
            return
        if self._tasks is not None:
            self._opening = self._tasks.create_task(self._post(f"{self._record.id}{STATUS_KEY}:{lost}"))
        await self._opened()
        if is_there:
            await best_effort(self._wire.delete(self._place.channel, lost))
        else:
            self._lost.add(lost)

    @property
    def _is_over(self) -> bool:
        return self._need.is_over

    @property
    def _elapsed_s(self) -> float:
        return asyncio.get_running_loop().time() - self._began

    def _compose(self) -> Content:
        if self._is_plain:
            return plain_status(self._activity, self._elapsed_s)
        return status_content(self._activity, self._record.id, self._elapsed_s)

    def _content(self) -> Content:
        self._shown = self._compose()
        self._activity.told()
        return self._shown
