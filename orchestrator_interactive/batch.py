"""A batch of tool calls: side by side, results in call order, and a result for every call whatever happens."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import structlog

from orchestrator_interactive.kernel.borders import told
from orchestrator_interactive.run import RunDenied, RunStopped
from orchestrator_interactive.tools import ToolUse, failure
from orchestrator_interactive.work import Work

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orchestrator_interactive.kernel.messages import ToolCall
    from orchestrator_interactive.run import Run

log = structlog.get_logger(__name__)

# How long a cancelled run waits for the log to take the row that it was writing.
_WRITTEN_WITHIN_S = 2.0


class ToolBatch:
    """The calls of one answer, side by side."""

    def __init__(self, run: Run, row: dict[str, Any], calls: Sequence[ToolCall], stop_grace_s: float) -> None:
        self._run = run
        self._row = row
        self._stop_grace_s = stop_grace_s
        self._uses = [ToolUse(run, call) for call in calls]
        self._works: list[Work[None]] = []
        self._grace: asyncio.TimerHandle | None = None
        self._is_cut = False
        self._collecting: Work[None] | None = None

    async def go(self) -> None:
        """Commit the answer's row, then run the calls, and add every result in call order, as early as it allows.

        A graceful stop lets running calls go on for the grace period; an immediate one cuts them; so does cancelling
        the caller. Whichever way it ends, once the row stands each call has its result.
        """
        collecting = self._collecting = Work(self._collect())
        try:
            with self._run.stop.watch(self._on_stop):
                await collecting.end(self._cut_all)
            if not collecting.finished():  # a stop, while the log hung
                raise RunStopped
            collecting.task.result()
        finally:
            if self._grace is not None:
                self._grace.cancel()

    def _on_stop(self) -> None:
        for use, work in zip(self._uses, self._works, strict=False):  # no work before the row stands
            if self._run.stop.is_immediate or use.stage in ("waiting", "announced"):
                work.cut()
        if self._grace is None:
            self._grace = asyncio.get_running_loop().call_later(self._stop_grace_s, self._cut_all)

    def _cut_all(self) -> None:
        if not self._works and not self._is_cut:
            asyncio.get_running_loop().call_later(_WRITTEN_WITHIN_S, self._cut_writing)
        self._is_cut = True
        for work in self._works:
            work.cut()

    def _cut_writing(self) -> None:
        # A log that hangs may not hold whoever cancels the run; whether the row stands is not known then.
        if not self._works and self._collecting is not None:
            self._collecting.cut()

    def _start(self) -> None:
        self._works = [Work(use.go()) for use in self._uses]
        if self._is_cut:
            self._cut_all()
        elif self._run.stop.is_cancelled:
            self._on_stop()

    async def _collect(self) -> None:
        await self._run.context.add_message(self._row)
        self._start()
        told: list[ToolUse] = []
        try:
            for use, work in zip(self._uses, self._works, strict=True):
                await work.end()
                _note_crash(use, work)
                row = use.close()
                told.append(use)
                try:
                    await self._run.context.add_message(row)
                finally:
                    await use.report_cut()
        except BaseException:
            await self._abandon([use for use in self._uses if use not in told])
            raise
        for event, wish in [wish for use in self._uses for wish in use.wishes]:
            try:
                await self._run.route(wish, event)
            except RunDenied:
                log.info("hook.denied_too_late", hook=wish.hook_name, hook_event=event)

    async def _abandon(self, rest: list[ToolUse]) -> None:
        """End what still runs, and close its events, where the results cannot be kept."""
        self._cut_all()
        for work in self._works:
            await work.end()
        for use in rest:
            use.close()
            await use.report_cut()


def _note_crash(use: ToolUse, work: Work[None]) -> None:
    """What went wrong around a tool (a hook, an odd result) is a failed call, too."""
    error = work.task.exception() if work.finished() else None
    if error is not None:
        log.error("tool.use_failed", tool=use.call.name, exc_info=error)
        use.result = use.result or failure(f"{type(error).__name__}: {told(error)}")
