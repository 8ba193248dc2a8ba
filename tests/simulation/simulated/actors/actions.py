"""What people do, and when."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from simulated.scenario import STAGES

if TYPE_CHECKING:
    from simulated.scenario import Scenario


@dataclass(frozen=True, slots=True)
class Steer:
    """Write a message."""


@dataclass(frozen=True, slots=True)
class Blank:
    """Write a message without a word in it."""


@dataclass(frozen=True, slots=True)
class Edit:
    """Change the text of a message."""


@dataclass(frozen=True, slots=True)
class Withdraw:
    """Take a message back."""


@dataclass(frozen=True, slots=True)
class Repeat:
    """Hand a message over again, as whoever got no answer does."""


@dataclass(frozen=True, slots=True)
class Notice:
    """Leave a notice for the next run."""


@dataclass(frozen=True, slots=True)
class Stop:
    """Stop the run, through the orchestrator's own door or through the session's; at the first it may be named."""

    immediate: bool
    door: Literal["own", "own, by name", "session"]


@dataclass(frozen=True, slots=True)
class LateStop:
    """Stop a run that is over, by its name."""

    immediate: bool


@dataclass(frozen=True, slots=True)
class Cancel:
    """Cancel the task that runs it all."""


@dataclass(frozen=True, slots=True)
class SecondPrompt:
    """Run a second prompt beside the first."""


@dataclass(frozen=True, slots=True)
class Kill:
    """Kill the process: nothing of it runs any more, and only what the store has is left."""


Act = Steer | Blank | Edit | Withdraw | Repeat | Notice | Stop | LateStop | Cancel | SecondPrompt | Kill


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


Instant = AtLine | AtStage | After

IDLE: tuple[Act, ...] = (
    Steer(),
    Edit(),
    Withdraw(),
    Repeat(),
    Stop(immediate=False, door="own"),
    LateStop(immediate=True),
    Notice(),
)
# Stages that few runs are at, and the trouble that leads there.
_RARE = {"compaction": ("compacting", "reading the log"), "errors": ("retrying",)}
# A message leads there, too, while a tool is at work.
_RAREST = "waiting for late results"


def planned(scene: Scenario) -> list[Act]:
    """What people do to one run."""
    chance, features = scene.chance, scene.features
    acts: list[Act] = [Steer() for _ in range(chance.choice([0, 1, 2, 3, 6]))]
    acts += [act for act in (Blank(), Notice(), SecondPrompt(), Repeat()) if chance.random() < 0.1]
    if "edits" in features:
        acts += [chance.choice([Edit(), Withdraw()]) for _ in range(chance.choice([0, 1, 3]))]
    if "stops" in features and chance.random() < 0.6:
        acts += [_some_stop(scene) for _ in range(chance.choice([1, 1, 2]))]
    if "cancels" in features and chance.random() < 0.5:
        acts += [Cancel() for _ in range(chance.choice([1, 1, 2, 3]))]
    if "kills" in features and chance.random() < 0.5:
        acts.append(Kill())
    return acts


def some_instant(scene: Scenario, act: Act) -> Instant:
    """When they do it."""
    chance = scene.chance
    if "urgent steers" in scene.features and chance.random() < 0.3:
        stage = "in a tool" if isinstance(act, Steer) and chance.random() < 0.8 else _RAREST
        return AtStage(stage, chance.choice([0, 2]), chance.choice([0.0, scene.some_s(0.1, 1)]))
    hops = chance.choice([0, 0, 1, 2, 3, 5, 8])
    rare = [stage for feature, stages in _RARE.items() if feature in scene.features for stage in stages]
    match chance.choice(["after", *["at a stage", "at a line"] * 2, *["at a rare stage"] * len(rare)]):
        case "after":
            return After(scene.some_s(0.05, 1, 10))
        case "at a stage":
            return AtStage(chance.choice(STAGES), hops, chance.choice([0.0, scene.some_s(0.1, 1)]))
        case "at a rare stage":
            return AtStage(chance.choice(rare), hops, chance.choice([0.0, scene.some_s(0.1, 1)]))
    return AtLine(int(chance.expovariate(1 / chance.choice([5, 25, 60]))), hops)


def _some_stop(scene: Scenario) -> Act:
    chance = scene.chance
    immediate = chance.random() < 0.5
    if chance.random() < 0.15:
        return LateStop(immediate)
    return Stop(immediate, chance.choice(["own", "own", "own, by name", "session"]))
