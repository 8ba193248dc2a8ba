"""After a stop nothing begins any more, and what is on ends within its time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from simulated.invariants.runs import RunRecord
    from simulated.scenario import Scenario

    from .loop_options import Terms

# Callbacks take a little virtual time; and a task that is cancelled hears of it a callback later.
_SLACK_S = 0.1
_HEED_WITHIN_S = 0.3
# So long after its tools are cut, the agent goes without whatever still holds up the end of a run.
_ENDED_WITHIN_S = 2.0
# Whoever is told of the end has a moment each: hooks twice, the watcher, and those who are told of a cancellation.
_TOLD_WITHIN_S = 4 * _HEED_WITHIN_S

# Where these are, a run may wait for them on its way out.
_HOLDING = {"slow hooks", "hanging hooks", "deaf hooks", "slow store", "slow sink"}


@dataclass(slots=True)
class Activity:
    """A model call, or a tool at work."""

    kind: Literal["model", "tool"]
    name: str
    run: RunRecord
    began_s: float
    timeout_s: float | None = None


class Quiet:
    """Watches what is at work."""

    def __init__(self, scene: Scenario, terms: Terms) -> None:
        self._scene = scene
        self._grace_s = terms.stop_grace_s

    def began(
        self, kind: Literal["model", "tool"], name: str, run: RunRecord, timeout_s: float | None = None
    ) -> Activity:
        now = self._scene.now()
        if run.over:
            self._scene.blame(f"The {kind} '{name}' began after its run was over.")
        if run.stops:
            self._scene.blame(f"The {kind} '{name}' began after the stop.")
        elif run.cancelled_s is not None and now > run.cancelled_s + _SLACK_S:
            self._scene.blame(f"The {kind} '{name}' began {now - run.cancelled_s:.3f} s after the run was cancelled.")
        return Activity(kind, name, run, now, timeout_s)

    def ended(self, activity: Activity, *, deaf: bool) -> None:
        limit = self._limit(activity)
        if not deaf and limit is not None and self._scene.now() > max(limit, activity.began_s) + _SLACK_S:
            late_s = self._scene.now() - limit
            self._scene.blame(f"The {activity.kind} '{activity.name}' was at work {late_s:.3f} s after its time.")

    def returned(self, run: RunRecord) -> None:
        """The run is over: was it in time?"""
        if run.cut_s is None:
            return
        since_s = self._scene.now() - self._cut_tools_s(run)
        run.was_abandoned = since_s >= _ENDED_WITHIN_S
        within_s = _ENDED_WITHIN_S + _TOLD_WITHIN_S if _HOLDING & self._scene.features else 2 * _HEED_WITHIN_S
        if since_s > within_s + _SLACK_S and "deaf hooks" not in self._scene.features:
            self._scene.blame(f"The run ended {since_s - within_s:.3f} s after its time.")

    def _limit(self, activity: Activity) -> float | None:
        run = activity.run
        if activity.kind == "model":
            return run.cut_s
        limits = [] if activity.timeout_s is None else [activity.began_s + activity.timeout_s]
        if run.cut_s is not None:
            limits.append(self._cut_tools_s(run))
        if run.deadline_s is not None:
            limits.append(run.deadline_s + self._grace_s)
        return min(limits, default=None)

    def _cut_tools_s(self, run: RunRecord) -> float:
        """When the tools of a run that was cut are to end."""
        gracefully_s = (run.cut_s or 0.0) + self._grace_s
        return gracefully_s if run.harshly_cut_s is None else min(run.harshly_cut_s, gracefully_s)
