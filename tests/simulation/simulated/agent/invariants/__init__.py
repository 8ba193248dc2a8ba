"""The invariants of the agent. Each is a class that records violations; `Invariants` holds one of each."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from simulated.agent.messages import Post
from simulated.simulation import Simulation

from .messages import Deliveries, InjectionTiming, Notices, Receipts, UrgentMessages
from .records import Invariant, LoopOptions, ModelCall, RunRecord, StopRecord, ToolCallRecord
from .requests import EPHEMERAL, Requests, ToolChoice, refusals
from .runs import AfterRun, Budgets, Events, Retries, ShownTexts, StopEffects
from .tools import CallPairs, ChildProcesses, LateResults, ToolExecutions, ToolResults, result_mark

__all__ = [
    "EPHEMERAL",
    "Invariants",
    "LoopOptions",
    "ModelCall",
    "Post",
    "RunRecord",
    "StopRecord",
    "ToolCallRecord",
    "refusals",
    "result_mark",
]


class Invariants:
    """Passes each event to the invariants that observe it, in this order."""

    def __init__(self, sim: Simulation, options: LoopOptions):
        self._run: RunRecord | None = None
        self._compacts = "compaction" in sim.features
        self.token_budget: int | None = None
        self.options = options
        self.stops = StopEffects(sim, options)  # sets `was_abandoned` of a run
        self.events = Events(sim)
        self.deliveries = Deliveries(sim)
        self.notices = Notices(sim, self.deliveries)
        self.requests = Requests(sim)
        self.budgets = Budgets(sim, options)
        self.tool_choice = ToolChoice(sim, self.budgets)
        self.call_pairs = CallPairs(sim)
        self.injection_timing = InjectionTiming(sim, self.deliveries)
        self.shown_texts = ShownTexts(sim)
        self.after_run = AfterRun(sim)
        self.tool_executions = ToolExecutions(sim)
        self.late_results = LateResults(sim)
        self.urgent_messages = UrgentMessages(sim, self.deliveries)
        self.retries = Retries(sim, options)
        self.receipts = Receipts(sim)
        self.tool_results = ToolResults(sim, options, self.tool_executions)
        self.child_processes = ChildProcesses(sim)
        # Executions get their call ids first, and notices are checked before their row delivers the prompt.
        first = [self.stops, self.tool_executions, self.events, self.notices]
        rest = [each for each in vars(self).values() if isinstance(each, Invariant) and each not in first]
        self._handlers: defaultdict[str, list[Any]] = defaultdict(list)
        for each in (*first, *rest):
            for name in dir(each):
                if name.startswith("on_"):
                    self._handlers[name.removeprefix("on_")].append(getattr(each, name))

    @property
    def run(self) -> RunRecord:
        """The active run, or the last one."""
        assert self._run is not None
        return self._run

    @property
    def is_whole(self) -> bool:
        """Whether the next request contains the whole conversation."""
        return self.token_budget is None and not self._compacts

    def begin(self, run: RunRecord) -> None:
        self._run = run
        self.emit("run_started", run)

    def read_log(self, token_budget: int | None) -> None:
        """Note that the agent reads the log. With another budget it may get another view."""
        if token_budget != self.token_budget:
            self.requests.view_changed()
        self.token_budget = token_budget

    def emit(self, event: str, *data: Any) -> None:
        for handle in self._handlers[event]:
            handle(*data)
