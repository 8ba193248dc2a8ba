"""The parts of the connector that all conversations of a workspace share."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from connector.observer import Observer
from connector.runs.run_slots import RunSlots

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from connector.events import SlackMessage, StopRequest, ThreadAddress
    from connector.protocols import (
        ConversationHistory,
        Memory,
        PersonalRecords,
        Recipes,
        RunService,
        SessionManager,
        Workers,
    )
    from connector.records import ThreadCatchUp
    from connector.routing import Router
    from connector.runs.background_tasks import BackgroundTasks
    from connector.runs.home import HomeTabs
    from connector.schedules import Schedules


@dataclass(frozen=True, slots=True)
class WorkspaceContext:
    """The dependencies of the workers.

    `catch_up` admits the messages of a thread that no inbox contains; `stop_in_dm` and `admit_asked` are as in
    `Admitter`. Without a `history`, commands cannot change logs; without `records`, no runs of people are kept; without
    a `home`, no Home tabs are published; without `workers`, no conversation is a worker's; without `recipes` or
    `schedules`, people can run or make none.
    """

    runs: RunService
    sessions: SessionManager
    background: BackgroundTasks
    router: Router
    catch_up: Callable[[ThreadCatchUp], Awaitable[None]]
    stop_in_dm: Callable[[StopRequest, ThreadAddress], Awaitable[str]]
    admit_asked: Callable[[SlackMessage, str], Awaitable[None]]
    slots: RunSlots = field(default_factory=RunSlots)
    observer: Observer = field(default_factory=Observer)
    history: ConversationHistory | None = None
    records: PersonalRecords | None = None
    home: HomeTabs | None = None
    workers: Workers | None = None
    recipes: Recipes | None = None
    schedules: Schedules | None = None
    memory: Memory | None = None
