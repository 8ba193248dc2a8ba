"""Where all processes of a seed keep what they have: one place, and a door to it for each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from .log_store import SimulatedLogStore
from .network import Server
from .run_store import SimulatedRunStore

if TYPE_CHECKING:
    from orchestrator_interactive.interactions.stores.base import LogStore
    from service.store.base import ConversationRecord, RunStore
    from simulated.scenario import Scenario

    from .parts import Parts
    from .store_observer import Witness

_USUALLY_S = (0.0003, 0.0003, 0.002)


class Stores(Protocol):
    """What processes share. `logs` is for who reads them when all is over."""

    logs: LogStore

    async def doors(self, process: int) -> tuple[RunStore, LogStore]:
        """A process's own."""
        ...

    def dead(self, process: int) -> None:
        """A process was killed, or has ended."""
        ...

    def go_away(self) -> None:
        """Answer nobody from here on, and forget what nobody has heard yet of the news."""
        ...

    def come_back(self) -> None: ...

    async def known(self) -> dict[str, ConversationRecord]:
        """All that is known of all conversations."""
        ...

    def close(self) -> None:
        """Leave nothing behind."""
        ...


class NetworkStores:
    """A server that many processes reach over a network; what it has answered, it keeps."""

    def __init__(self, scene: Scenario, parts: Parts, witness: Witness) -> None:
        self.logs: LogStore = parts.logs()
        self._table = parts.table(scene.now)
        self._server = Server(scene, "store", "flaky store", _USUALLY_S)
        self._witness = witness

    async def doors(self, process: int) -> tuple[RunStore, LogStore]:
        return (
            SimulatedRunStore(self._server, self._table, self._witness, process),
            SimulatedLogStore(self._server, self.logs, self._witness, process),
        )

    def dead(self, process: int) -> None:
        """What it has sent arrives all the same."""

    def go_away(self) -> None:
        self._server.is_away = True
        self._table.forget_news()

    def come_back(self) -> None:
        self._server.is_away = False

    async def known(self) -> dict[str, ConversationRecord]:
        names = list(self._table.conversations)
        return {name: known for name in names if (known := self._table.known(name)) is not None}

    def close(self) -> None:
        """There is nothing outside of this process."""
