"""The crowd: it writes, edits, takes back, stops and cancels at instants of the seed's choosing."""

from __future__ import annotations

import asyncio
import contextvars
from typing import TYPE_CHECKING, Any

from orchestrator_interactive import InjectionQueueFull, RunFinished
from simulated.invariants import StopRecord

from . import actions
from .actions import AtLine, AtStage

if TYPE_CHECKING:
    from collections.abc import Callable

    from orchestrator_interactive.kernel import AmplifierSession
    from simulated.invariants import Invariants, RunRecord
    from simulated.posts import People, Post
    from simulated.scenario import Scenario

    from .actions import Act

# While it is at one of these, the agent may have taken a message in hand, and not written it down.
_AT_WRITING = ("writing a row", "telling progress", "in a hook", "waiting for an approval")


class Crowd:
    """Acts on a run. `unread` are messages that came too late for one: each starts a run of its own."""

    def __init__(self, scene: Scenario, judges: Invariants, people: People, session: AmplifierSession) -> None:
        self._scene = scene
        self._judges = judges
        self._people = people
        self._session = session
        self._context = contextvars.copy_context()  # people survive the agent's process
        self._by_line: dict[int, list[tuple[AtLine, Act]]] = {}
        self._by_stage: dict[str, list[tuple[AtStage, Act]]] = {}
        self._task: asyncio.Task[object] | None = None
        self._run: RunRecord | None = None
        self._old_runs: list[str] = []
        self._written: dict[str, Post] = {}
        self.unread: list[Post] = []
        self.killed = asyncio.Event()

    def watch(self, run: RunRecord, task: asyncio.Task[object]) -> None:
        """Plan what happens to this run, and when."""
        if self._run is not None and self._run.id is not None:
            self._old_runs.append(self._run.id)
        self._run, self._task = run, task
        self._by_line, self._by_stage = {}, {}
        begun = len(self._scene.story.lines)
        if self._scene.calm:
            return
        for act in actions.planned(self._scene):
            match actions.some_instant(self._scene, act):
                case AtLine() as at:
                    self._by_line.setdefault(begun + at.line, []).append((at, act))
                case AtStage() as stage:
                    self._by_stage.setdefault(stage.stage, []).append((stage, act))
                case actions.After(seconds):
                    self._scene.loop.call_later(seconds, self._do, act, context=self._context)
        self._scene.story.on_line = self._on_line

    def meet(self, session: AmplifierSession) -> None:
        """Talk to another session from now on: the one before it was killed."""
        self._session = session
        self.killed.clear()

    def give(self, post: Post) -> None:
        """Hand a message over."""
        inject: Any = self._door("inject_message")
        receipt = inject(post.injection())
        self._written = {each: old for each, old in self._written.items() if old.number != post.number}
        self._written[receipt.id] = post
        self._judges.accepted(post, receipt)

    def act_idly(self) -> None:
        """What people do while no run is on."""
        for _ in range(self._scene.chance.choice([0, 0, 1, 2])):
            self._do(self._scene.chance.choice(actions.IDLE))

    def _on_line(self, number: int) -> None:
        for at, act in self._by_line.pop(number, ()):
            self._hop(at.hops, act)
        if not self._by_stage:
            return
        for stage, act in self._by_stage.pop(self._scene.stage(), ()):
            if stage.seconds:
                self._scene.loop.call_later(stage.seconds, self._do, act, context=self._context)
            else:
                self._hop(stage.hops, act)

    def _hop(self, hops: int, act: Act) -> None:
        if hops:
            self._scene.loop.call_soon(self._hop, hops - 1, act, context=self._context)
        elif isinstance(act, actions.Kill):
            self._scene.loop.call_soon(self._do, act, context=self._context)  # not while the agent is at a step
        else:
            self._do(act)

    def _do(self, act: Act) -> None:
        # What was meant for one run may come in the next, but not in calm.
        if self._scene.calm:
            return
        if isinstance(act, actions.Steer):
            self._steer()
        elif self.killed.is_set():
            self._scene.tell("crowd", "finds nobody there")
        else:
            self._do_to_it(act)

    def _do_to_it(self, act: Act) -> None:
        match act:
            case actions.Blank():
                self._write_nothing()
            case actions.Edit() | actions.Withdraw():
                self._correct(act)
            case actions.Repeat():
                self._repeat()
            case actions.Notice():
                self._scene.count("notice")
                self._door("notify")(self._judges.notices.give())
            case actions.Stop():
                self._stop(act)
            case actions.LateStop(immediate):
                self._stop_late(immediate)
            case actions.Cancel():
                self._cancel()
            case actions.SecondPrompt():
                self._scene.spawn(self._prompt_again(), "second prompt")
            case actions.Kill():
                self._kill()

    def _steer(self) -> None:
        post, scene = self._people.write(), self._scene
        if self.killed.is_set():
            self.unread.append(post)
            return
        try:
            self.give(post)
        except RunFinished:
            scene.tell("crowd", f"writes message {post.number}: too late, it starts a run of its own")
            scene.count("steer too late for its run")
            self.unread.append(post)
        except InjectionQueueFull:
            scene.tell("crowd", f"writes message {post.number}: refused, the queue is full")
            scene.count("steer refused: queue full")
        else:
            scene.count(f"{'urgent ' if post.is_urgent else ''}steer accepted {self._stage()}")
            scene.tell("crowd", f"writes{' urgently' if post.is_urgent else ''} message {post.number}: accepted")

    def _correct(self, act: actions.Edit | actions.Withdraw) -> None:
        scene, deliveries = self._scene, self._judges.deliveries
        if not self._written:
            return
        recent = list(self._written)[-4:]
        message_id = scene.chance.choice(recent)
        post, waits = self._written[message_id], deliveries.waits(self._written[message_id])
        in_hand = scene.is_at(*_AT_WRITING) or scene.story.lines[-1].who == "hook"
        if isinstance(act, actions.Edit):
            what, changed = "changes", self._people.rewrite(post)
            took: bool = self._door("edit_message")(message_id, changed.text)
            if took:
                self._written[message_id] = changed
                self._judges.edited(changed)
        else:
            what = "takes back"
            took = self._door("withdraw_message")(message_id)
            if took:
                self._judges.withdrawn(post, message_id)
        scene.count(f"message {what}" if took else f"message {what}: too late")
        scene.tell("crowd", f"{what} message {post.number}{'' if took else ': too late'}")
        if waits and not took and not in_hand:
            scene.blame(f"Message {post.number} waits, and its author may not touch it.")

    def _repeat(self) -> None:
        known = [receipt for receipt in self._door("receipts")() if receipt.id in self._written]
        if not known:
            return
        receipt = self._scene.chance.choice(known)
        post = self._written[receipt.id]
        if not post.plain:
            self._scene.count(f"message given again: {receipt.state}")
            self._scene.tell("crowd", f"gives message {post.number} again")
            if self._door("inject_message")(post.injection()) != receipt:
                self._scene.blame(f"Message {post.number} was given twice, and has two receipts.")

    def _stop(self, stop: actions.Stop) -> None:
        scene, run, stage = self._scene, self._run, self._stage()
        is_on = run is not None and run.entered and not run.over
        if stop.door == "session" and not is_on:
            return
        if stop.door == "session":
            token = self._session.coordinator.cancellation
            took = token.request_immediate() if stop.immediate else token.request_graceful()
        else:
            name = run.id if run is not None and stop.door == "own, by name" else None
            took = self._door("stop")(stop.immediate, name)
        kind = "immediate" if stop.immediate else "graceful"
        scene.count(f"stop {kind} {stage}" if took else "stop that changes nothing")
        scene.tell("crowd", f"stops ({kind}){'' if took else ': it changes nothing'}")
        if took and not is_on:
            scene.blame("A stop was taken while no run was on.")
        elif took and run is not None:
            certain = stop.door != "session" and not scene.finishing
            run.stops.append(StopRecord(scene.now(), stop.immediate, certain, len(scene.story.lines)))

    def _stop_late(self, immediate: bool) -> None:
        token = self._session.coordinator.cancellation
        before = token.state
        for name in (*self._old_runs[-1:], "nobody's run"):
            if self._door("stop")(immediate, name) or token.state != before:
                self._scene.blame("A stop for a run that is over was taken.")
        self._scene.count("stop for a run that is over")

    def _cancel(self) -> None:
        is_over = self._run is None or self._run.over
        if is_over or self._task is None or not self._task.cancel():
            return
        self._scene.count(f"cancel {self._stage()}")
        self._scene.tell("crowd", "cancels the task of the run")
        if self._run is not None and self._run.cancelled_s is None:
            self._run.cancelled_s = self._scene.now()

    def _kill(self) -> None:
        run = self._run
        if run is None or not run.entered or run.over:
            return
        self._scene.count(f"kill {self._stage()}")
        self._scene.tell("crowd", "kills the process")
        run.over = run.killed = True
        self._scene.loop.kill(run.life)
        self.killed.set()

    async def _prompt_again(self) -> None:
        if self._run is None or not self._run.entered or self._run.over:
            return
        try:
            await self._session.execute("and me?")
        except RuntimeError:
            self._scene.count("second prompt refused")
        else:
            self._scene.blame("Two prompts ran at once in one session.")

    def _write_nothing(self) -> None:
        try:
            self._door("inject_message")(" \n\t ")
        except ValueError:
            self._scene.count("blank message refused")
        else:
            self._scene.blame("A blank message was accepted.")

    def _door(self, name: str) -> Callable[..., Any]:
        door: Any = self._session.coordinator.get_capability(f"orchestrator.{name}")
        return door  # type: ignore[no-any-return]

    def _stage(self) -> str:
        run = self._run
        if run is None or run.over:
            return "while idle"
        return self._scene.stage() if run.entered else "before it begins"
