"""When a run has returned, nothing of it goes on: no task, no row, no error that nobody looked at."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from orchestrator_interactive.kernel.contracts.errors import LLMError
from simulated.engine import standing
from simulated.scenario import InjectedFault

if TYPE_CHECKING:
    from simulated.invariants.runs import RunRecord
    from simulated.scenario import Scenario


_SOON_S = 0.1


class Remains:
    """Looks at what a run leaves behind."""

    def __init__(self, scene: Scenario) -> None:
        self._scene = scene
        self.current: RunRecord | None = None

    def row_added(self, row: dict[str, Any]) -> None:
        if self.current is None or self.current.over:
            self._scene.blame(f"A row of the role '{row['role']}' was added while no run was on.")

    def returned(self, run: RunRecord) -> None:
        """At the very instant at which the run has returned."""
        left = [task for task in self._scene.loop.pending() if not self._is_excused(task)]
        for task in left:
            if not task.cancelling():
                self._scene.blame(f"A task is left when the run has returned: {standing(task)}.")
        self._scene.loop.call_later(_SOON_S, self._look_again, left)
        self._check_error(run)

    def all_over(self) -> None:
        for task in self._scene.loop.tasks:
            if not task.done() and not self._scene.is_ours(task):
                self._scene.blame(f"A task is left at the very end: {standing(task)}.")
            elif task.done() and getattr(task, "_log_traceback", False):
                self._scene.blame(f"Nobody looked at the error of {task.get_name()}: {task.exception()!r}.")
        for error in self._scene.loop.errors:
            self._scene.blame(f"The event loop was told of an error: {error}.")

    def _is_excused(self, task: asyncio.Task[Any]) -> bool:
        return self._scene.is_ours(task) or task in self._scene.deaf

    def _look_again(self, left: list[asyncio.Task[Any]]) -> None:
        """A task that has been cancelled hears of it a callback later."""
        for task in left:
            if not task.done() and not self._is_excused(task):
                self._scene.blame(f"A task is left long after its run: {standing(task)}.")

    def _check_error(self, run: RunRecord) -> None:
        if isinstance(run.error, asyncio.CancelledError):
            if run.cancelled_s is None:
                self._scene.blame("The run was cancelled, and nobody cancelled it.")
        elif run.error is not None and not isinstance(run.error, LLMError | InjectedFault):
            self._scene.blame(f"The run failed with an error that nobody made: {run.error!r}.")
        elif run.error is None and run.cancelled_s is not None:
            self._scene.blame("The task was cancelled, and the run returned as if it had not been.")
