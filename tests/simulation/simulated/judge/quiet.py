"""After a stop nothing begins any more, and what is on ends within its time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from simulated.judge.runs import RunRecord
    from simulated.scene import Scene

# Callbacks take a little virtual time; and a task that is cancelled hears of it a callback later.
_SLACK_S = 0.1
_HEED_WITHIN_S = 0.3

# Where these are, a run may wait for them on its way out.
_HOLDING = {"slow hooks", "hanging hooks", "deaf hooks", "slow store", "slow sink"}


@dataclass(slots=True)
class Activity:
    """A model call, or a tool at work."""

    kind: Literal["model", "tool"]
    name: str
    run: RunRecord
    began_s: float


class Quiet:
    """Watches what is at work. `grace_s` is how long tools may go on after a graceful stop."""

    def __init__(self, scene: Scene, grace_s: float) -> None:
        self._scene = scene
        self._grace_s = grace_s

    def began(self, kind: Literal["model", "tool"], name: str, run: RunRecord) -> Activity:
        now = self._scene.now()
        if run.over:
            self._scene.blame(f"The {kind} '{name}' began after its run was over.")
        if run.stops:
            self._scene.blame(f"The {kind} '{name}' began after the stop.")
        elif run.cancelled_s is not None and now > run.cancelled_s + _SLACK_S:
            self._scene.blame(f"The {kind} '{name}' began {now - run.cancelled_s:.3f} s after the run was cancelled.")
        return Activity(kind, name, run, now)

    def ended(self, activity: Activity, *, deaf: bool) -> None:
        limit = self._limit(activity)
        if not deaf and limit is not None and self._scene.now() > max(limit, activity.began_s) + _SLACK_S:
            late_s = self._scene.now() - limit
            self._scene.blame(f"The {activity.kind} '{activity.name}' was at work {late_s:.3f} s after its time.")

    def returned(self, run: RunRecord) -> None:
        """The run is over: was it in time?"""
        if _HOLDING & self._scene.features:
            return
        limits = []
        if run.harshly_cut_s is not None:
            limits.append(run.harshly_cut_s + 2 * _HEED_WITHIN_S)
        if run.cut_s is not None:
            limits.append(run.cut_s + self._grace_s + 2 * _HEED_WITHIN_S)
        if limits and self._scene.now() > min(limits) + _SLACK_S:
            self._scene.blame(f"The run ended {self._scene.now() - min(limits):.3f} s after its time.")

    def _limit(self, activity: Activity) -> float | None:
        run = activity.run
        if activity.kind == "model":
            return run.cut_s
        limits = []
        if run.harshly_cut_s is not None:
            limits.append(run.harshly_cut_s)
        if run.cut_s is not None:
            limits.append(run.cut_s + self._grace_s)
        return min(limits, default=None)
