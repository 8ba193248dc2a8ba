"""The crowd: it writes, stops and cancels at instants of the seed's choosing."""

from __future__ import annotations

import asyncio
import contextvars
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from orchestrator_interactive import InjectionQueueFull, RunFinished
from simulated.judge import StopRecord
from simulated.scene import STAGES

if TYPE_CHECKING:
    from collections.abc import Callable

    from orchestrator_interactive.kernel import AmplifierSession
    from simulated.judge import Judges, RunRecord
    from simulated.posts import People, Post
    from simulated.scene import Scene


@dataclass(frozen=True, slots=True)
class Steer:
    """Write a message."""


@dataclass(frozen=True, slots=True)
class Blank:
    """Write a message without a word in it."""


@dataclass(frozen=True, slots=True)
class Notice:
    """Leave a notice for the next run."""


@dataclass(frozen=True, slots=True)
class Stop:
    """Stop the run, through the orchestrator's own door or through the session's."""

    immediate: bool
    own_door: bool


@dataclass(frozen=True, slots=True)
class Cancel:
    """Cancel the task that runs it all."""


@dataclass(frozen=True, slots=True)
class SecondPrompt:
    """Run a second prompt beside the first."""


@dataclass(frozen=True, slots=True)
class Kill:
    """Kill the process: nothing of it runs any more, and only what the store has is left."""


Act = Steer | Blank | Notice | Stop | Cancel | SecondPrompt | Kill


@dataclass(frozen=True, slots=True)
class AtLine:
    """When the story of the run is so many lines long, and so many hops of the event loop later.

    Without a hop it happens in the very call in which that line is told.
    """

    line: int
    hops: int


@dataclass(frozen=True, slots=True)
class AtStage:
    """Once the run is at this stage, and so many hops or seconds later."""

    stage: str
    hops: int
    seconds: float


@dataclass(frozen=True, slots=True)
class After:
    seconds: float


_IDLE: tuple[Act, ...] = (Steer(), Stop(immediate=False, own_door=True), Notice())


class Crowd:
    """Acts on a run. `unread` are messages that came too late for one: each starts a run of its own."""

    def __init__(self, scene: Scene, judges: Judges, people: People, session: AmplifierSession) -> None:
        self._scene = scene
        self._judges = judges
        self._people = people
        self._session = session
        self._context = contextvars.copy_context()  # people survive the agent's process
        self._by_line: dict[int, list[tuple[AtLine, Act]]] = {}
        self._by_stage: dict[str, list[tuple[AtStage, Act]]] = {}
        self._task: asyncio.Task[object] | None = None
        self._run: RunRecord | None = None
        self.unread: list[Post] = []
        self.killed = asyncio.Event()

    def watch(self, run: RunRecord, task: asyncio.Task[object]) -> None:
        """Plan what happens to this run, and when."""
        self._run, self._task = run, task
        self._by_line, self._by_stage = {}, {}
        begun = len(self._scene.story.lines)
        if self._scene.calm:
            return
        for act in self._plan():
            match self._instant():
                case AtLine() as at:
                    self._by_line.setdefault(begun + at.line, []).append((at, act))
                case AtStage() as stage:
                    self._by_stage.setdefault(stage.stage, []).append((stage, act))
                case After(seconds):
                    self._scene.loop.call_later(seconds, self._do, act, context=self._context)
        self._scene.story.on_line = self._on_line

    def meet(self, session: AmplifierSession) -> None:
        """Talk to another session from now on: the one before it was killed."""
        self._session = session
        self.killed.clear()

    def act_idly(self) -> None:
        """What people do while no run is on."""
        for _ in range(self._scene.chance.choice([0, 0, 1, 2])):
            self._do(self._scene.chance.choice(_IDLE))

    def _plan(self) -> list[Act]:
        chance = self._scene.chance
        acts: list[Act] = [Steer() for _ in range(chance.choice([0, 1, 2, 3, 6]))]
        acts += [act for act in (Blank(), Notice(), SecondPrompt()) if chance.random() < 0.1]
        if "stops" in self._scene.features and chance.random() < 0.6:
            acts += [Stop(chance.random() < 0.5, chance.random() < 0.7) for _ in range(chance.choice([1, 1, 2]))]
        if "cancels" in self._scene.features and chance.random() < 0.5:
            acts += [Cancel() for _ in range(chance.choice([1, 1, 2, 3]))]
        if "kills" in self._scene.features and chance.random() < 0.5:
            acts.append(Kill())
        return acts

    def _instant(self) -> AtLine | AtStage | After:
        scene, chance = self._scene, self._scene.chance
        hops = chance.choice([0, 0, 1, 2, 3, 5, 8])
        match chance.choice(["after", "at a stage", "at a stage", "at a line", "at a line"]):
            case "after":
                return After(scene.some_s(0.05, 1, 10))
            case "at a stage":
                often = ("compacting", "reading the log") * 3 if "compaction" in scene.features else ()
                return AtStage(chance.choice([*STAGES, *often]), hops, chance.choice([0.0, scene.some_s(0.1, 1)]))
        return AtLine(int(chance.expovariate(1 / chance.choice([5, 25, 60]))), hops)

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
        elif isinstance(act, Kill):
            self._scene.loop.call_soon(self._do, act, context=self._context)  # not while the agent is at a step
        else:
            self._do(act)

    def _do(self, act: Act) -> None:
        # What was meant for one run may come in the next, but not in calm.
        if self._scene.calm:
            return
        match act:
            case Steer():
                self._steer()
            case _ if self.killed.is_set():
                self._scene.tell("crowd", "finds nobody there")
            case Blank():
                self._refused(lambda: self._door("inject_message")(" \n\t "), ValueError)
            case Notice():
                self._scene.count("notice")
                self._door("notify")(self._judges.notices.give())
            case Stop():
                self._stop(act)
            case Cancel():
                self._cancel()
            case SecondPrompt():
                self._scene.spawn(self._prompt_again(), "second prompt")
            case Kill():
                self._kill()

    def _steer(self) -> None:
        post, scene = self._people.write(), self._scene
        if self.killed.is_set():
            self.unread.append(post)
            return
        try:
            self._door("inject_message")(post.injection())
        except RunFinished:
            scene.tell("crowd", f"writes message {post.number}: too late, it starts a run of its own")
            scene.count("steer too late for its run")
            self.unread.append(post)
        except InjectionQueueFull:
            scene.tell("crowd", f"writes message {post.number}: refused, the queue is full")
            scene.count("steer refused: queue full")
        else:
            self._judges.accepted(post)
            scene.count(f"steer accepted {self._stage()}")
            scene.tell("crowd", f"writes message {post.number}: accepted")

    def _stop(self, stop: Stop) -> None:
        scene, run, stage = self._scene, self._run, self._stage()
        is_on = run is not None and run.entered and not run.over
        if stop.own_door:
            took: bool = self._door("stop")(stop.immediate)
        elif is_on:
            token = self._session.coordinator.cancellation
            took = token.request_immediate() if stop.immediate else token.request_graceful()
        else:
            return
        kind = "immediate" if stop.immediate else "graceful"
        scene.count(f"stop {kind} {stage}" if took else "stop that changes nothing")
        scene.tell("crowd", f"stops ({kind}){'' if took else ': it changes nothing'}")
        if took and not is_on:
            scene.blame("A stop was taken while no run was on.")
        elif took and run is not None:
            certain = stop.own_door and not scene.finishing
            run.stops.append(StopRecord(scene.now(), stop.immediate, certain, len(scene.story.lines)))

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

    def _refused(self, attempt: Callable[[], object], *errors: type[Exception]) -> None:
        try:
            attempt()
        except errors:
            self._scene.count("blank message refused")
        else:
            self._scene.blame("A blank message was accepted.")

    def _door(self, name: str) -> Callable[..., bool]:
        door: Any = self._session.coordinator.get_capability(f"orchestrator.{name}")
        return cast("Callable[..., bool]", door)

    def _stage(self) -> str:
        run = self._run
        if run is None or run.over:
            return "while idle"
        return self._scene.stage() if run.entered else "before it begins"
