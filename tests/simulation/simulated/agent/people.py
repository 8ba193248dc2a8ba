"""People who write, edit, withdraw, stop, cancel and kill at times that the seed determines."""

from __future__ import annotations

import asyncio
import contextvars
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from orchestrator_interactive import InjectionQueueFull, RunFinished
from orchestrator_interactive.kernel import AmplifierSession
from simulated.simulation import STAGES, Simulation

from .invariants import Invariants, RunRecord, StopRecord
from .messages import Post, Writer

# At these stages the agent may have taken a message from the queue without having written it down.
_WRITING_STAGES = ("writing a row", "reporting progress", "in a hook", "waiting for an approval")
# Stages that few runs reach, and the faults that lead there.
_RARE_STAGES = {"compaction": ("compacting", "reading the log"), "errors": ("retrying",)}


@dataclass(frozen=True, slots=True)
class Action:
    """What a person does. `immediate` and `via` belong to stops; "named stop" gives the id of the run."""

    kind: Literal[
        *("steer", "blank", "edit", "withdraw", "repeat", "notice"),
        *("stop", "late stop", "cancel", "second prompt", "kill"),
    ]
    immediate: bool = False
    via: Literal["stop", "named stop", "session"] = "stop"


@dataclass(frozen=True, slots=True)
class When:
    """The time of an action: once the run's trace has `line` lines, at a `stage`, or after `seconds`.

    `hops` callbacks later; without a hop the action happens inside the call that wrote the line.
    """

    line: int | None = None
    stage: str | None = None
    hops: int = 0
    seconds: float = 0.0


_IDLE = (
    *(Action("steer"), Action("edit"), Action("withdraw"), Action("repeat"), Action("stop")),
    *(Action("late stop", immediate=True), Action("notice")),
)


def plan(sim: Simulation) -> list[Action]:
    """Draw the actions during one run."""
    rng, features = sim.rng, sim.features
    actions = [Action("steer") for _ in range(rng.choice([0, 1, 2, 3, 6]))]
    actions += [Action(kind) for kind in ("blank", "notice", "second prompt", "repeat") if rng.random() < 0.1]
    if "edits" in features:
        actions += [Action(rng.choice(["edit", "withdraw"])) for _ in range(rng.choice([0, 1, 3]))]
    if "stops" in features and rng.random() < 0.6:
        actions += [_some_stop(sim) for _ in range(rng.choice([1, 1, 2]))]
    if "cancels" in features and rng.random() < 0.5:
        actions += [Action("cancel") for _ in range(rng.choice([1, 1, 2, 3]))]
    if "kills" in features and rng.random() < 0.5:
        actions.append(Action("kill"))
    return actions


def _some_stop(sim: Simulation) -> Action:
    immediate = sim.rng.random() < 0.5
    if sim.rng.random() < 0.15:
        return Action("late stop", immediate)
    return Action("stop", immediate, sim.rng.choice(["stop", "stop", "named stop", "session"]))


def some_time(sim: Simulation, action: Action) -> When:
    rng = sim.rng
    if "urgent steers" in sim.features and rng.random() < 0.3:
        # A message reaches the wait for late results, too, if it arrives while a tool is active.
        in_tool = action.kind == "steer" and rng.random() < 0.8
        stage = "in a tool" if in_tool else "waiting for late results"
        return When(stage=stage, hops=rng.choice([0, 2]), seconds=rng.choice([0.0, sim.delay_s(0.1, 1)]))
    hops = rng.choice([0, 0, 1, 2, 3, 5, 8])
    rare = [stage for feature, stages in _RARE_STAGES.items() if feature in sim.features for stage in stages]
    match rng.choice(["after", *["stage", "line"] * 2, *["rare stage"] * len(rare)]):
        case "after":
            return When(seconds=sim.delay_s(0.05, 1, 10))
        case "stage":
            return When(stage=rng.choice(STAGES), hops=hops, seconds=rng.choice([0.0, sim.delay_s(0.1, 1)]))
        case "rare stage":
            return When(stage=rng.choice(rare), hops=hops, seconds=rng.choice([0.0, sim.delay_s(0.1, 1)]))
    return When(line=int(rng.expovariate(1 / rng.choice([5, 25, 60]))), hops=hops)


class People:
    """Acts on the runs of a session. `unread` are messages that came too late for a run: each starts its own."""

    def __init__(self, sim: Simulation, invariants: Invariants, writer: Writer, session: AmplifierSession):
        self._sim = sim
        self._invariants = invariants
        self._writer = writer
        self._session = session
        self._context = contextvars.copy_context()  # people outlive the agent's process
        self._by_line: defaultdict[int, list[tuple[When, Action]]] = defaultdict(list)
        self._by_stage: defaultdict[str, list[tuple[When, Action]]] = defaultdict(list)
        self._task: asyncio.Task[object] | None = None
        self._run: RunRecord | None = None
        self._old_runs: list[str] = []
        self._written: dict[str, Post] = {}
        self.unread: list[Post] = []
        self.killed = asyncio.Event()

    def watch(self, run: RunRecord, task: asyncio.Task[object]) -> None:
        """Plan the actions during this run."""
        if self._run is not None and self._run.id is not None:
            self._old_runs.append(self._run.id)
        self._run, self._task = run, task
        self._by_line.clear()
        self._by_stage.clear()
        begun = len(self._sim.lines)
        if self._sim.calm:
            return
        for action in plan(self._sim):
            when = some_time(self._sim, action)
            if when.line is not None:
                self._by_line[begun + when.line].append((when, action))
            elif when.stage is not None:
                self._by_stage[when.stage].append((when, action))
            else:
                self._sim.loop.call_later(when.seconds, self._do, action, context=self._context)
        self._sim.on_line = self._on_line

    def use(self, session: AmplifierSession) -> None:
        """Switch to the session of another process, after a kill."""
        self._session = session
        self.killed.clear()

    def give(self, post: Post) -> None:
        receipt = self._capability("inject_message")(post.injection())
        self._written = {each: old for each, old in self._written.items() if old.number != post.number}
        self._written[receipt.id] = post
        self._invariants.emit("accepted", post, receipt)

    def act_idly(self) -> None:
        """Act while no run is active."""
        for _ in range(self._sim.rng.choice([0, 0, 1, 2])):
            self._do(self._sim.rng.choice(_IDLE))

    def _on_line(self, number: int) -> None:
        for when, action in self._by_line.pop(number, ()):
            self._hop(when.hops, action)
        for when, action in self._by_stage.pop(self._sim.stage(), ()) if self._by_stage else ():
            if when.seconds:
                self._sim.loop.call_later(when.seconds, self._do, action, context=self._context)
            else:
                self._hop(when.hops, action)

    def _hop(self, hops: int, action: Action) -> None:
        if hops:
            self._sim.loop.call_soon(self._hop, hops - 1, action, context=self._context)
        elif action.kind == "kill":
            self._sim.loop.call_soon(self._do, action, context=self._context)  # not inside a step of the agent
        else:
            self._do(action)

    def _do(self, action: Action) -> None:
        # An action that is planned for one run may happen in the next, but not in calm.
        if self._sim.calm:
            return
        if self.killed.is_set() and action.kind != "steer":
            self._sim.log("people", "reach no process")
            return
        handlers: dict[str, Callable[[], object]] = {
            "steer": self._steer,
            "blank": self._send_blank,
            "edit": lambda: self._correct(is_edit=True),
            "withdraw": lambda: self._correct(is_edit=False),
            "repeat": self._repeat,
            "notice": self._notify,
            "stop": lambda: self._stop(action),
            "late stop": lambda: self._stop_finished_run(action.immediate),
            "cancel": self._cancel,
            "second prompt": lambda: self._sim.spawn(self._prompt_again(), "second prompt"),
            "kill": self._kill,
        }
        handlers[action.kind]()

    def _notify(self) -> None:
        self._sim.count("notice")
        self._capability("notify")(self._invariants.notices.create())

    def _steer(self) -> None:
        post = self._writer.write()
        if self.killed.is_set():
            self.unread.append(post)
            return
        self._send(post, f"write{' urgently' if post.is_urgent else ''} message {post.number}")

    def _send(self, post: Post, what: str) -> None:
        sim = self._sim
        try:
            self.give(post)
        except RunFinished:
            sim.log("people", f"{what}: too late, it starts its own run")
            sim.count("steer too late for its run")
            self.unread.append(post)
        except InjectionQueueFull:
            sim.log("people", f"{what}: refused, the queue is full")
            sim.count("steer refused: queue full")
        else:
            sim.count(f"{'urgent ' if post.is_urgent else ''}steer accepted {self._stage()}")
            sim.log("people", f"{what}: accepted")

    def _correct(self, *, is_edit: bool) -> None:
        """Edit or withdraw a recent message."""
        sim = self._sim
        if not self._written:
            return
        message_id = sim.rng.choice(list(self._written)[-4:])
        post = self._written[message_id]
        waits = self._invariants.deliveries.is_pending(post)
        in_hand = sim.is_at(*_WRITING_STAGES) or sim.lines[-1].who == "hook"
        if is_edit:
            what, changed = "edit", self._writer.rewrite(post)
            took: bool = self._capability("edit_message")(message_id, changed.text)
            if took:
                self._written[message_id] = changed
                self._invariants.emit("edited", changed)
        else:
            what = "withdraw"
            took = self._capability("withdraw_message")(message_id)
            if took:
                self._invariants.emit("withdrawn", post, message_id)
        sim.count(f"message {what}" if took else f"message {what}: too late")
        sim.log("people", f"{what} message {post.number}{'' if took else ': too late'}")
        if waits and not took and not in_hand:
            sim.violation(f"Message {post.number} is pending, and its author cannot change it.")

    def _repeat(self) -> None:
        """Inject a message again, as a sender does that got no reply."""
        known = [receipt for receipt in self._capability("receipts")() if receipt.id in self._written]
        if not known:
            return
        receipt = self._sim.rng.choice(known)
        post = self._written[receipt.id]
        if not post.plain and post not in self.unread:
            self._sim.count(f"message injected again: {receipt.state}")
            if receipt.state == "withdrawn":
                self._send(post, f"inject message {post.number} again, which was withdrawn")
                return
            self._sim.log("people", f"inject message {post.number} again")
            if self._capability("inject_message")(post.injection()) != receipt:
                self._sim.violation(f"Message {post.number} was injected twice, and has two receipts.")

    def _stop(self, action: Action) -> None:
        sim, run, stage = self._sim, self._run, self._stage()
        is_active = run is not None and run.entered and not run.over
        if action.via == "session" and not is_active:
            return
        if action.via == "session":
            token = self._session.coordinator.cancellation
            took = token.request_immediate() if action.immediate else token.request_graceful()
        else:
            name = run.id if run is not None and action.via == "named stop" else None
            took = self._capability("stop")(action.immediate, name)
        kind = "immediate" if action.immediate else "graceful"
        sim.count(f"stop {kind} {stage}" if took else "stop that changes nothing")
        sim.log("people", f"stop ({kind}){'' if took else ': no change'}")
        if took and not is_active:
            sim.violation("A stop was accepted while no run was active.")
        elif took and run is not None:
            certain = action.via != "session" and not sim.finishing
            run.stops.append(StopRecord(sim.now(), action.immediate, certain, len(sim.lines)))

    def _stop_finished_run(self, immediate: bool) -> None:
        token = self._session.coordinator.cancellation
        before = token.state
        for name in (*self._old_runs[-1:], "unknown run"):
            if self._capability("stop")(immediate, name) or token.state != before:
                self._sim.violation("A stop of a finished run was accepted.")
        self._sim.count("stop of a finished run")

    def _cancel(self) -> None:
        if self._run is None or self._run.over or self._task is None or not self._task.cancel():
            return
        self._sim.count(f"cancel {self._stage()}")
        self._sim.log("people", "cancel the task of the run")
        if self._run.cancelled_s is None:
            self._run.cancelled_s = self._sim.now()

    def _kill(self) -> None:
        run = self._run
        if run is None or not run.entered or run.over:
            return
        self._sim.count(f"kill {self._stage()}")
        self._sim.log("people", "kill the process")
        run.over = run.killed = True
        self._sim.loop.kill(run.process)
        self.killed.set()

    async def _prompt_again(self) -> None:
        if self._run is None or not self._run.entered or self._run.over:
            return
        try:
            await self._session.execute("and me?")
        except RuntimeError:
            self._sim.count("second prompt refused")
        else:
            self._sim.violation("Two prompts ran at once in one session.")

    def _send_blank(self) -> None:
        try:
            self._capability("inject_message")(" \n\t ")
        except ValueError:
            self._sim.count("blank message refused")
        else:
            self._sim.violation("A blank message was accepted.")

    def _capability(self, name: str) -> Any:
        return self._session.coordinator.get_capability(f"orchestrator.{name}")

    def _stage(self) -> str:
        run = self._run
        if run is None or run.over:
            return "while idle"
        return self._sim.stage() if run.entered else "before it begins"
