"""What people see of a run: the hourglass, the status message, and the texts."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import structlog

from connector import phrases
from connector.activity import Activity
from connector.outbound.content import Content
from connector.outbound.errors import SlackCallFailed
from connector.outbound.markdown import escape, markdown_to_slack, pieces
from connector.outbound.outbox import Outbox
from connector.outbound.scheduler import NotNeeded, Turn, Urgency
from connector.protocols import LeaseLost

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
    from typing import Any

    from connector.desk import Desk
    from connector.protocols import Lease, Persona
    from connector.run_record import RunRecord

log = structlog.get_logger(__name__)

# How the key of a status message ends; before it stands the id of the run.
STATUS_KEY = ":status"
STATUS_SPACING_S = 2.0
# How long the next run may wait for the traces of this one to go; what takes longer goes on beside it.
_TIDY_WITHIN_S = 5.0
# A run that goes on is seen to do so by one of these; one that was complete only ends.
_AT_WORK = frozenset({"thinking", "tool:start", "retrying", "fallback", "compacting"})


class View:
    """The traces of one run in its thread. Showing them never holds the run up.

    A run that goes on after its process died goes on with the traces that it left.
    """

    def __init__(
        self,
        desk: Desk,
        lease: Lease,
        record: RunRecord,
        persona: Persona,
        keep_status: Callable[[str], Awaitable[None]],
    ) -> None:
        """`keep_status` is given the ts of the status message when Slack has told it."""
        self._desk, self._wire = desk, desk.wire
        self._record = record
        self._place = record.first.message.place
        self._turn = Turn(Urgency.STATUS, self._place.conversation_id, lambda: not self._is_over)
        self._goes_on = lease.claim.run is not None and lease.claim.run.get("id") == record.id
        self._lease = lease
        self._keep_status = keep_status
        self._outbox = Outbox(desk.wire, lease, self._place, record.id, persona)
        self._activity = Activity()
        self._shown = ""
        self._changed = asyncio.Event()
        self._at_work = asyncio.Event()
        self._is_over = self._is_suspended = False
        self._status_ts: asyncio.Future[str | None] = asyncio.get_running_loop().create_future()

    def is_status(self, ts: str) -> bool:
        """Whether this is the ts of the status message, as far as Slack has told it."""
        return self._status_ts.done() and self._status_ts.result() == ts

    def hear(self, event: str, data: dict[str, Any]) -> None:
        """Take note of what the run is doing; the status message says so soon."""
        self._activity.hear(event, data)
        self._changed.set()
        if event in _AT_WORK:
            self._at_work.set()

    def say(self, part: str, markdown: str) -> bool:
        """Post a text of the agent under its persona, after those before it; whether there was anything to see."""
        texts = tuple(pieces(markdown_to_slack(markdown)))
        if texts:
            self._outbox.add(part, texts, by_agent=True)
        return bool(texts)

    def notice(self, part: str, text: str) -> None:
        """Post a sentence of the service's own, after the texts before it."""
        self._outbox.add(part, (escape(text),), by_agent=False)

    async def posted(self) -> None:
        """Return once Slack has all that was said."""
        await self._outbox.empty()

    def suspend(self) -> None:
        """Leave the traces where they are at the end: another process goes on with them."""
        self._is_suspended = True

    @asynccontextmanager
    async def shown(self) -> AsyncIterator[None]:
        """Show hourglass and status; at the end post what is left to say, then take both away.

        Where the body fails or is cancelled, everything stays as it is: the run is not over.
        """
        async with asyncio.TaskGroup() as tasks:
            hourglass = tasks.create_task(self._mark())
            status = tasks.create_task(self._open_status())
            updates = tasks.create_task(self._update_status())
            posts = tasks.create_task(self._outbox.work())
            yield
            await self.posted()
            self._is_over = True
            self._at_work.set()
            self._changed.set()
            posts.cancel()
            updates.cancel()
            await asyncio.wait((hourglass, status, updates))
            await self._lease.confirm()
            await (self._pause() if self._is_suspended else self._take_away())

    async def _mark(self) -> None:
        await best_effort(self._desk.mark_working(self._record.first.message, self._lease.confirm))

    async def _open_status(self) -> None:
        ts, before = None, self._record.status_ts
        try:
            ts = before or await self._status()
        except LeaseLost:
            raise
        except NotNeeded:
            log.debug("status.not_needed")
        except Exception:  # a Slack handler's border: a run goes on without its status
            log.exception("status.not_posted", conversation=self._place.conversation_id)
        finally:
            self._status_ts.set_result(ts)
        if ts is not None and ts != before and not self._is_over:
            await self._keep_status(ts)

    async def _status(self) -> str | None:
        """The ts of the status message, which is posted where there is none; `None`: the run was over before that."""
        key = f"{self._record.id}{STATUS_KEY}"
        if self._goes_on:  # a run that was complete needs none, and is over before it looks for one to take away
            await self._at_work.wait()
            if (ts := await self._wire.find(self._place, key)) is not None:
                return ts
        if self._is_over:
            return None
        return await self._wire.post(self._place, self._content(), key, turn=self._turn, confirm=self._lease.confirm)

    async def _update_status(self) -> None:
        # It also looks whether the run is over: a call that times out as it is cancelled loses the cancellation.
        ts = await asyncio.shield(self._status_ts)
        while ts is not None and not self._is_over:
            await asyncio.sleep(STATUS_SPACING_S)
            while escape(self._activity.phrase()) == self._shown and not self._is_over:
                self._changed.clear()
                self._activity.told()
                if escape(self._activity.phrase()) == self._shown:
                    await self._changed.wait()
            if not self._is_over:
                await self._lease.confirm()
                await best_effort(self._wire.update(self._place.channel, ts, self._content, self._turn))

    def _content(self) -> Content:
        self._shown = escape(self._activity.phrase())
        self._activity.told()
        return Content(self._shown)

    async def _pause(self) -> None:
        if (ts := self._status_ts.result()) is not None:
            await best_effort(
                self._wire.update(self._place.channel, ts, lambda: Content(phrases.SUSPENDED), Turn(run=self._turn.run))
            )

    async def _take_away(self) -> None:
        """Nobody else would do it later: where Slack is away or has no room, it is waited for, beside the next run."""
        tidying = self._desk.spawn(self._tidy())
        await asyncio.wait((tidying,), timeout=_TIDY_WITHIN_S)

    async def _tidy(self) -> None:
        channel, ts = self._place.channel, self._status_ts.result()
        if ts is not None:
            await best_effort(self._wire.insisting(lambda: self._wire.delete(channel, ts)))
        await self._desk.unmark_working(self._record.first.message, by_another=self._goes_on)


async def best_effort(call: Coroutine[Any, Any, object]) -> None:
    """Await a call to Slack whose failure is logged and changes nothing else."""
    try:
        await call
    except LeaseLost:
        raise
    except NotNeeded:
        return
    except SlackCallFailed as e:
        log.warning("slack.call_failed", error=str(e))
    except Exception:  # a Slack handler's border: what decorates a run may not end it
        log.exception("slack.call_crashed")
