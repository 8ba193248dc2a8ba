"""What is tried: the parts of the service, and of what is under it, that can be had otherwise."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from connector.runs.background_tasks import BackgroundTasks
from connector.slack_api.client import SlackClient
from orchestrator_interactive.interactions.stores.memory import MemoryStore
from service.runs.runs import StoredRuns

from .agent import Tool
from .run_table import RunTable
from .sessions import Sessions
from .slots import Slots
from .stores import NetworkStores

if TYPE_CHECKING:
    from collections.abc import Callable

    from simulated.scenario import Scenario

    from .store_observer import Witness
    from .stores import Stores


@dataclass(frozen=True, slots=True)
class Parts:
    """What is usual, unless it is named.

    Args:
        stores: the place that processes share; `table` and `logs` are what `NetworkStores` keeps.
        is_hasty: processes acknowledge events before they keep them.
        features: kinds of trouble that every seed has, whatever it draws; `without`: that none has.
    """

    stores: Callable[[Scenario, Parts, Witness], Stores] = NetworkStores
    table: type[RunTable] = RunTable
    logs: type[MemoryStore] = MemoryStore
    wire: type[SlackClient] = SlackClient
    background: Callable[[SlackClient], BackgroundTasks] = BackgroundTasks
    sessions: type[Sessions] = Sessions
    runs: type[StoredRuns] = StoredRuns
    tool: type[Tool] = Tool
    slots: type[Slots] = Slots
    is_hasty: bool = False
    features: frozenset[str] = frozenset()
    without: frozenset[str] = frozenset()
