"""What all processes of a seed share: Slack, the store, the agent's model and tools."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .agent import Cast
from .log_store import SimulatedLogStore
from .network import Server
from .run_store import SimulatedRunStore
from .slack import Slack
from .witness import Witness

if TYPE_CHECKING:
    from orchestrator_interactive.interactions.stores.base import LogStore
    from service.store.base import Known, RunStore
    from simulated.scene import Scene

    from .parts import Parts

_USUALLY_S = (0.0003, 0.0003, 0.002)


class Ground:
    """`lease_s` is how long a conversation stays with a process of which nothing is heard."""

    def __init__(self, scene: Scene, parts: Parts) -> None:
        self.scene = scene
        self.parts = parts
        self.slack = Slack(scene.now)
        self.witness = Witness(scene)
        self.cast = Cast(scene, self.witness, parts.tool)
        self.lease_s = scene.chance.choice([3.0, 6.0, 12.0])
        self.shutdown_grace_s = scene.chance.choice([3.0, 8.0])
        self.store = Server(scene, "store", "flaky store", _USUALLY_S)
        self.table = parts.table(scene.now)
        self.logs: LogStore = parts.logs()

    def stores(self, process: int) -> tuple[RunStore, LogStore]:
        """A process's own doors to the store."""
        return (
            SimulatedRunStore(self.store, self.table, self.witness, process),
            SimulatedLogStore(self.store, self.logs, self.witness, process),
        )

    async def known(self, conversation_id: str) -> Known | None:
        return self.table.known(conversation_id)
