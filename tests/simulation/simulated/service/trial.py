"""One seed of the whole service, played and judged."""

from __future__ import annotations

import gc
import random
import sys
import traceback
import warnings
from collections import Counter
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from simulated.engine import LIFE, Busy, Deadlock, SimulatedLoop, order_for
from simulated.logs import heard_logs
from simulated.scenario import Scenario, chance_of
from simulated.trial import Verdict

from .kill_points import STAGES
from .parts import Parts
from .world import World

if TYPE_CHECKING:
    from collections.abc import Iterator

_MOST_CALLBACKS = 200_000
# What a campaign must have seen before its silence says anything.
WANTED = (
    *(f"{act} {stage}" for act in ("kill", "term", "pause") for stage in STAGES),
    *(f"accepted: {kind}" for kind in ("message", "edit", "withdrawal", "stop")),
    *("store: refused", "store: reply lost", "outage", "restart", "process ended"),
    *("run taken up by another process", "run taken up by the same process"),
    *("run taken up with a post pending", "run taken up with no post pending"),
    *("event redelivered", "event came again though acknowledged", "event given up", "run stopped"),
    *("Slack: dropped after", "Slack: 500 after", "Slack: ratelimited"),
    *("post made, and its answer lost", "post sent again"),
    *("a row of a stale owner refused", "a change of a stale owner refused"),
    *("agent called into a thread of others", "no look-ups", "accepted: catch_up"),
    *("Slack away", "call of a dead process", "model failed for good", "run stopped again"),
    *("run waits for a slot, shown", "run waits for a slot, parked"),
    *("deletion of a status", "deletion of a root with replies", "deletion of a root without replies"),
)
# One process at a time has a file, and asks nobody over a network.
_NOT_WITH_A_FILE = (
    *("pause", "store:", "run taken up by the same", "kill between runs", "term between runs"),
    *("a row of a stale owner", "a change of a stale owner"),
)
WANTED_WITH_A_FILE = tuple(each for each in WANTED if not each.startswith(_NOT_WITH_A_FILE))
# Fields of log entries that differ from one process to the next.
_CHANGING = {"exc_info", "run_id"}


def tried(seed: int, parts: Parts | None = None) -> Verdict:
    """Play the conversations of this seed."""
    gc.disable()  # so that what it leaves behind is young, and found without a look at all else
    try:
        verdict = _played(seed, parts or Parts())
        with _unheard():
            gc.collect(0)
    finally:
        gc.enable()
    return verdict


def _played(seed: int, parts: Parts) -> Verdict:
    random.seed(seed)  # for what does not come from the scene's own chance
    order = order_for(chance_of(seed, "order"))
    loop = SimulatedLoop(order, _MOST_CALLBACKS)  # type: ignore[abstract] # it refuses the rest by name
    scene = Scenario(seed, loop)
    scene.tell("seed", f"{seed}: callbacks {type(order).__name__}")
    world = World(scene, parts)

    def hear(event: str, fields: dict[str, Any]) -> None:
        scene.tell(f"service {LIFE.get()}", f"logs {event}{_told(fields)}")
        if event.endswith(".crashed"):
            scene.blame(f"The service says {event}.")

    with heard_logs(hear):
        try:
            scene.tell("seed", f"with {', '.join(sorted(scene.features))}")
            loop.run_until_complete(scene.spawn(world.play(), "the world"))
        except (Deadlock, Busy) as e:
            scene.blame(str(e))
        except Exception:  # noqa: BLE001 - the simulation itself broke: that is told like any other failure
            scene.blame(f"The simulation broke: {traceback.format_exc()}")
        for error in loop.errors:
            scene.blame(f"An error that nobody handles: {error}")
        scene.tally["callback"] = loop.callbacks
        scene.count(f"order {type(order).__name__}")
        verdict = Verdict(seed, tuple(scene.blames), Counter(scene.tally), tuple(scene.story.lines))
        with _unheard():
            loop.close()
            world.close()
    return verdict


@contextmanager
def _unheard() -> Iterator[None]:
    """What is still pending may say this and that when it is torn down; nobody listens."""
    before, sys.unraisablehook = sys.unraisablehook, lambda _: None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        sys.unraisablehook = before


def _told(fields: dict[str, Any]) -> str:
    told = {
        key: value for key, value in fields.items() if isinstance(value, str | int | float) and key not in _CHANGING
    }
    text = "".join(f" {key}={value}" for key, value in told.items() if " at 0x" not in str(value))
    if (error := fields.get("exc_info")) is not None:
        text += f" {error if isinstance(error, BaseException) else sys.exc_info()[1]!r}"
    return text
