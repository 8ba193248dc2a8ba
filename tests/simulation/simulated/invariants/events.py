"""Every event that opens something is followed by the one that closes it, once, within its run."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from simulated.invariants.runs import RunRecord, StopRecord
    from simulated.scenario import Scenario

# These are the session's or the modules'; they come outside of runs, too.
_ANY_TIME = ("session:", "module:", "context:")

# How the other witnesses put what the progress calls by these names.
_SAME = {
    "execution:end": {"success": "completed", "incomplete": "completed", "cancelled": "cancelled", "error": "error"},
    "orchestrator:complete": {
        "success": "success",
        "incomplete": "incomplete",
        "cancelled": "cancelled",
        "error": "incomplete",
    },
    "session": {"success": "completed", "incomplete": "completed", "cancelled": "cancelled", "error": "failed"},
}


class Events:
    """Counts the events of a run, from hooks and from progress."""

    def __init__(self, scene: Scenario) -> None:
        self._scene = scene
        self._run: RunRecord | None = None
        self._order: list[str] = []
        self._uses: dict[str, Counter[str]] = {}
        self._shown: set[str] = set()
        self._calls = 0
        self._is_asking = False

    def begin(self, run: RunRecord) -> None:
        self._run, self._order, self._uses, self._calls = run, [], {}, 0
        self._shown, self._is_asking = set(), False

    def model_called(self) -> None:
        self._calls += 1

    def tool_executed(self, call_id: str) -> None:
        self._use(call_id)["executed"] += 1

    def heard(self, event: str, data: dict[str, Any]) -> None:
        """A hook has heard this."""
        if event.startswith(_ANY_TIME):
            return
        self._note(event)
        self._note_asking(event, data)
        if event.startswith("tool:"):
            self._use(data["tool_call_id"])[event] += 1
        if event == "execution:end" and self._run is not None:
            self._run.ends(self._scene.now())
            if self._run.stops:
                self._run.was_ending = self._nothing_since(self._run.stops[0])
        if event in _SAME and self._run is not None:
            self._run.statuses[event] = data["status"]

    def progressed(self, event: str, data: dict[str, Any]) -> None:
        """Whoever watches the progress was told this."""
        self._note(f"progress {event}")
        if event in {"tool:start", "tool:end"}:
            self._use(data["id"])[f"progress {event}"] += 1
            (self._shown.add if event == "tool:start" else self._shown.discard)(data["id"])
        if event == "tool:progress":
            self._scene.count("tool report")
            if data["id"] not in self._shown:
                self._scene.blame(f"A report of the call {data['id']} came outside of its tool:start and tool:end.")
        if event == "complete" and self._run is not None:
            self._run.statuses["progress"] = data["status"]

    def end(self, run: RunRecord) -> None:
        if not run.entered or (run.cancelled_s is not None and not self._order):
            return  # cancelled before its first step
        self._check_frame()
        for call_id, use in self._uses.items() if not run.was_abandoned else ():
            self._check_use(call_id, use)
        self._check_answers(run)
        self._check_statuses(run)

    def _note_asking(self, event: str, data: dict[str, Any]) -> None:
        """A call that was announced is told of; an urgent message that came meanwhile may be read first."""
        if event == "provider:request":
            if self._is_asking:
                self._scene.blame("A call to the model was announced, and nobody was told what came of it.")
            self._is_asking = True
        was_urgent = event == "injection:applied" and any(text.startswith("!") for text in data["messages"])
        if was_urgent or event in {"provider:response", "provider:error"}:
            self._is_asking = False

    def _nothing_since(self, stop: StopRecord) -> bool:
        """Whether the run did nothing more between its stop and this event."""
        lines = self._scene.story.lines[stop.line :]
        did = next((line.what for line in lines if line.who not in {"crowd", "agent"}), None)
        return did is None or did.startswith("execution:end")

    def _note(self, event: str) -> None:
        if self._run is None or self._run.over:
            self._scene.blame(f"'{event}' came while no run was on.")
        self._order.append(event)

    def _use(self, call_id: str) -> Counter[str]:
        return self._uses.setdefault(call_id, Counter())

    def _check_frame(self) -> None:
        frame = ("execution:start", "execution:end", "orchestrator:complete", "progress complete")
        counts = {event: self._order.count(event) for event in frame}
        for event, count in counts.items():
            if count != 1:
                self._scene.blame(f"'{event}' came {count} times in one run.")
        if max(counts.values()) == min(counts.values()) == 1:
            places = [self._order.index(event) for event in frame]
            if places != sorted(places):
                self._scene.blame(
                    f"The frame of the run came in the wrong order: {[e for e in self._order if e in frame]}."
                )
            self._check_inside(places[0], places[1])

    def _check_inside(self, start: int, end: int) -> None:
        for place, event in enumerate(self._order):
            framed = event.startswith(("tool:", "provider:", "prompt:", "injection:", "progress t", "progress i"))
            if framed and not start < place < end:
                self._scene.blame(f"'{event}' came outside of execution:start and execution:end.")

    def _check_use(self, call_id: str, use: Counter[str]) -> None:
        closed = use["tool:post"] + use["tool:error"]
        if closed != use["executed"]:
            self._scene.blame(f"The call {call_id} was executed {use['executed']} times, and closed {closed} times.")
        if use["tool:pre"] < use["executed"]:
            self._scene.blame(f"The call {call_id} was executed without tool:pre.")
        started, ended = use["progress tool:start"], use["progress tool:end"]
        if started != ended:
            self._scene.blame(f"The progress of call {call_id} started {started} times, and ended {ended} times.")
        if use["tool:pre"] and not use["executed"]:
            self._scene.count("tool call refused or cut before it ran")

    def _check_answers(self, run: RunRecord) -> None:
        if run.cut_s is not None or run.was_out_of_time:
            return
        # An urgent message may cut a call before it has begun.
        told = self._order.count("provider:response") + self._order.count("provider:error")
        if self._calls > told:
            self._scene.blame(f"The model was called {self._calls} times; {told} answers or errors were told of.")
        if self._is_asking and run.ended_by_itself:
            self._scene.blame("A call to the model was announced, and the run ended without it.")

    def _check_statuses(self, run: RunRecord) -> None:
        status = run.statuses.get("progress", "")
        if status not in _expected(run):
            cut = "" if run.cut_s is None else " that was stopped or cancelled"
            self._scene.blame(f"A run{cut} says that it ended with '{status}' (error: {run.error!r}).")
        for witness, words in _SAME.items():
            # What is cut while it tells of its end has ended one way, and its session another.
            is_sure = witness != "session" or run.cut_s is None or status == "cancelled"
            if is_sure and run.statuses.get(witness) != words.get(status):
                self._scene.blame(f"The progress calls the run '{status}', {witness} '{run.statuses.get(witness)}'.")


def _expected(run: RunRecord) -> set[str]:
    if run.is_certainly_stopped and not run.was_denied:  # denied first, and stopped on its way out
        return {"cancelled"} if run.error is None else {"cancelled", "error"}
    if run.cut_s is not None:
        return {"success", "incomplete", "cancelled", "error"}
    return {"error"} if run.error is not None else {"success", "incomplete"}
