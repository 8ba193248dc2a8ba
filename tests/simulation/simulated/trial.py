"""One seed, played and judged."""

from __future__ import annotations

import gc
import random
import traceback
import warnings
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .engine import Busy, Deadlock, SimulatedLoop, order_for
from .logs import heard_logs
from .scenario import Scenario, chance_of
from .world import Parts, World

if TYPE_CHECKING:
    from .trace import Line


_CHANGING = {"exc_info", "run"}


@dataclass(frozen=True, slots=True)
class Verdict:
    """What came of a seed: nothing to blame, if it went as it must; what happened, counted; and the whole story."""

    seed: int
    blames: tuple[str, ...]
    tally: Counter[str]
    lines: tuple[Line, ...]

    def story(self) -> str:
        """The story in readable lines."""
        return "\n".join(map(str, self.lines))


def tried(seed: int, parts: Parts | None = None) -> Verdict:
    """Play the conversation of this seed."""
    verdict = _played(seed, parts or Parts())
    if verdict.blames or verdict.tally["run ended: killed"]:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about coroutines that were to be awaited
            gc.collect()
    return verdict


def _played(seed: int, parts: Parts) -> Verdict:
    random.seed(seed)  # for what does not come from the scene's own chance
    order = order_for(chance_of(seed, "order"))
    loop = SimulatedLoop(order)  # type: ignore[abstract] # it refuses the rest by name
    scene = Scenario(seed, loop)
    scene.tell("seed", f"{seed}: callbacks {type(order).__name__}")
    with heard_logs(lambda event, fields: scene.tell("agent", f"logs {event}{_told(fields)}")):
        try:
            world = World(scene, parts)
            scene.tell("seed", f"with {', '.join(sorted(scene.features))}")
            loop.run_until_complete(scene.spawn(world.play(), "the conversation"))
        except (Deadlock, Busy) as e:
            scene.blame(str(e))
        except Exception:  # noqa: BLE001 - the simulation itself broke: that is told like any other failure
            scene.blame(f"The simulation broke: {traceback.format_exc()}")
        scene.tally["callback"] = loop.callbacks
        scene.count(f"order {type(order).__name__}")
        verdict = Verdict(seed, tuple(scene.blames), Counter(scene.tally), tuple(scene.story.lines))
        loop.close()  # what is still pending may say this and that now; nobody listens
    return verdict


def _told(fields: dict[str, Any]) -> str:
    """The fields of a log entry that are the same in every process: no addresses, no tracebacks, no ids of runs."""
    told = {
        key: value for key, value in fields.items() if isinstance(value, str | int | float) and key not in _CHANGING
    }
    return "".join(f" {key}={value}" for key, value in told.items() if " at 0x" not in str(value))
