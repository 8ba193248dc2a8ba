"""What all processes of a seed share: Slack, the store, the agent's model and tools."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .agent import Cast
from .slack import Slack
from .store_observer import Witness

if TYPE_CHECKING:
    from simulated.scenario import Scenario

    from .parts import Parts


class Ground:
    """Processes are told these times, in seconds.

    `lease_s` is how long a conversation stays with a process of which nothing is heard, `idle_evict_s` how long a
    session stays in memory that rests.
    """

    def __init__(self, scene: Scenario, parts: Parts) -> None:
        self.scene = scene
        self.parts = parts
        self.slack = Slack(scene.now, scene.chance.choice([2, 200]), scene.loop.died_s)
        self.witness = Witness(scene)
        self.cast = Cast(scene, self.witness, parts.tool)
        self.lease_s = scene.chance.choice([3.0, 6.0, 12.0])
        self.shutdown_grace_s = scene.chance.choice([3.0, 8.0])
        self.idle_evict_s = scene.chance.choice([0.5, 5.0, 900.0])
        self.stores = parts.stores(scene, parts, self.witness)
