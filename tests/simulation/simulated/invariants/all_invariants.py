"""All judges of one conversation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .after_run import Remains
from .after_stop import Quiet
from .budgets import Spending
from .call_pairs import Pairs
from .child_processes import Children
from .deliveries import Deliveries
from .events import Events
from .late_results import Late
from .model_texts import Said
from .notices import Notices
from .prompt_delivery import Reading, is_refused
from .receipts import Receipts
from .requests import Requests
from .results import Results
from .retries import Patience
from .tool_choice import Freedom
from .tool_executions import Uses
from .urgency import Urgency

if TYPE_CHECKING:
    from orchestrator_interactive import Receipt
    from orchestrator_interactive.kernel.contracts.messages import ChatRequest
    from simulated.posts import Post
    from simulated.scenario import Scenario

    from .loop_options import Terms
    from .runs import RunRecord
    from .tool_executions import Use


class Invariants:
    """What the cast tells goes to whom it concerns."""

    def __init__(self, scene: Scenario, terms: Terms) -> None:
        self._run: RunRecord | None = None
        self._token_budget: int | None = None
        self._compacts = "compaction" in scene.features
        self.terms = terms
        self.deliveries = Deliveries(scene)
        self.requests = Requests(scene)
        self.events = Events(scene)
        self.freedom = Freedom(scene)
        self.notices = Notices(scene, self.deliveries)
        self.pairs = Pairs(scene)
        self.quiet = Quiet(scene, terms)
        self.reading = Reading(scene, self.deliveries)
        self.said = Said(scene)
        self.remains = Remains(scene)
        self.uses = Uses(scene)
        self.late = Late(scene)
        self.urgency = Urgency(scene, self.deliveries)
        self.patience = Patience(scene, terms)
        self.spending = Spending(scene, terms)
        self.receipts = Receipts(scene)
        self.results = Results(scene, terms, self.uses)
        self.children = Children(scene)

    @property
    def run(self) -> RunRecord:
        """The run that is on, or the last one that was."""
        assert self._run is not None
        return self._run

    def begin(self, run: RunRecord) -> None:
        self._run = run
        self.remains.current = run
        self.reading.answered()
        self.events.begin(run)
        self.freedom.begin()
        self.said.begin()
        self.uses.begin()
        self.urgency.begin()
        self.patience.begin()
        self.spending.begin()
        self.receipts.begin()

    def prompted(self, post: Post) -> None:
        """A run began with this as its prompt."""
        self.deliveries.accept(post)
        self.reading.accepted(post)

    def accepted(self, post: Post, receipt: Receipt) -> None:
        """The agent took a message."""
        self.deliveries.accept(post)
        self.reading.accepted(post)
        self.urgency.accepted(post)
        self.receipts.accepted(post, receipt)

    def edited(self, post: Post) -> None:
        """The agent says that it took another text in the place of the one before."""
        self.deliveries.edit(post)

    def withdrawn(self, post: Post, message_id: str) -> None:
        """The agent says that it gave a message back."""
        self.deliveries.withdraw(post)
        self.urgency.withdrawn(post)
        self.receipts.withdrawn(message_id)

    def view_asked_for(self, token_budget: int | None) -> None:
        """The agent reads the log; with another budget it may see another view."""
        if token_budget != self._token_budget:
            self.requests.view_changed()
        self._token_budget = token_budget

    def asked(self, name: str, request: ChatRequest, *, can_choose: bool) -> None:
        """A model is asked; `can_choose` says that it may be told not to use its tools."""
        is_whole = self._token_budget is None and not self._compacts
        self.requests.asked(request)
        self.events.model_called()
        self.freedom.asked(request, can_choose=can_choose)
        self.reading.asked(request, is_whole=is_whole)
        self.urgency.asked()
        self.uses.asked()
        self.late.asked()
        self.patience.asked(name, self._token_budget)

    def call_over(self, run: RunRecord) -> None:
        """The model has answered the run that asked it, or failed."""
        if not run.over:
            self.reading.answered()

    def tool_began(self, use: Use) -> Use:
        self.uses.began(use)
        self.events.tool_executed(use.call_id)
        return use

    def row_added(self, row: dict[str, Any]) -> None:
        self.notices.row_added(row, self._run)
        self.deliveries.row_added(row)
        self.freedom.row_added(row)
        self.reading.row_added(row)
        self.pairs.row_added(row)
        self.said.row_added(row)
        self.remains.row_added(row)
        self.uses.row_added(row)
        self.late.row_added(row)
        self.spending.row_added(row)
        self.receipts.row_added(row)
        self.results.row_added(row)
        if is_refused(row):
            self.requests.view_changed()

    def store_failed(self) -> None:
        """The log did not take a row."""
        self.pairs.excuse()
        self.late.excuse()
        self.said.excuse()
        self.uses.store_failed = True

    def heard(self, event: str, data: dict[str, Any]) -> None:
        """A hook has heard an event."""
        self.events.heard(event, data)
        self.patience.heard(event, data)
        match event:
            case "tool:pre":
                self.uses.prepared(data)
            case "provider:response":
                response = data["response"]
                self.freedom.answered()
                self.receipts.answered()
                self.spending.answered(data["usage"], response.finish_reason)
                self.said.answered(response.finish_reason)
                self.uses.answered(response.finish_reason)
            case "provider:error":
                self.spending.failed()
            case "injection:applied":
                self.deliveries.applied(data["ids"])
            case "context:post_compact":
                self.requests.view_changed()
                self.spending.compacted(data.get("usage"))
            case "execution:end":
                self.late.ended()

    def progressed(self, event: str, data: dict[str, Any]) -> None:
        """Whoever watches was told of progress."""
        self.events.progressed(event, data)
        self.patience.progressed(event, data)
        match event:
            case "text":
                self.said.shown(data["text"])
            case "thinking":
                self.late.thinks()
                self.spending.thinks()
                self.freedom.thinks(self.spending.limits)
            case "complete":
                self.deliveries.told(self.run, data["waiting"])
                self.uses.told(data["tools"])
                self.spending.told(self.run, data)
                self.receipts.told(self.run, data["messages"], where="The end")

    def returned(self, run: RunRecord) -> None:
        """At the very instant at which `execute` returns or raises."""
        self.quiet.returned(run)
        self.pairs.returned(run)
        self.uses.returned(run)
        self.late.returned(run)
        self.results.returned(run)
        self.urgency.returned(run)
        self.patience.returned(run)
        self.remains.returned(run)
        self.children.returned()
        self.events.end(run)
        self.said.end(run)
        self.deliveries.check_prompt(run)

    def killed(self, run: RunRecord) -> None:
        """The process has died in the middle of the run."""
        self.deliveries.check_prompt(run)
        self.pairs.excuse()
        self.notices.forget()
        self.late.killed()
        self.receipts.forget()
        self.patience.forget()
        self.children.forget()

    def all_over(self) -> None:
        self.deliveries.all_over()
        self.notices.all_over()
        self.remains.all_over()
        self.children.all_over()
