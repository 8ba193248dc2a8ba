"""All judges of one conversation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .deliveries import Deliveries
from .events import Events
from .freedom import Freedom
from .notices import Notices
from .pairs import Pairs
from .quiet import Quiet
from .reading import Reading
from .remains import Remains
from .requests import Requests
from .said import Said

if TYPE_CHECKING:
    from orchestrator_interactive.kernel.messages import ChatRequest
    from simulated.posts import Post
    from simulated.scene import Scene

    from .runs import RunRecord


class Judges:
    """What the cast tells goes to whom it concerns."""

    def __init__(self, scene: Scene, grace_s: float, max_iterations: int) -> None:
        self._run: RunRecord | None = None
        self.deliveries = Deliveries(scene)
        self.requests = Requests(scene)
        self.events = Events(scene)
        self.freedom = Freedom(scene, max_iterations)
        self.notices = Notices(scene, self.deliveries)
        self.pairs = Pairs(scene)
        self.quiet = Quiet(scene, grace_s)
        self.reading = Reading(scene, self.deliveries)
        self.said = Said(scene)
        self.remains = Remains(scene)

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

    def accepted(self, post: Post) -> None:
        """The agent took a message, or a run began with it as its prompt."""
        self.deliveries.accept(post)
        self.reading.accepted(post)

    def asked(self, request: ChatRequest, run: RunRecord, *, can_choose: bool) -> None:
        """The model is asked; `can_choose` says that it may be told not to use its tools."""
        self.requests.asked(request)
        self.events.model_called()
        self.freedom.asked(request, run, can_choose=can_choose)
        self.reading.asked(request)

    def answered(self, run: RunRecord) -> None:
        """The model has answered the run that asked it."""
        if not run.over:
            self.reading.answered()

    def row_added(self, row: dict[str, Any]) -> None:
        self.notices.row_added(row, self._run)
        self.deliveries.row_added(row)
        self.freedom.row_added(row)
        self.pairs.row_added(row)
        self.said.row_added(row)
        self.remains.row_added(row)

    def heard(self, event: str, data: dict[str, Any]) -> None:
        """A hook has heard an event."""
        self.events.heard(event, data)
        if event == "injection:applied":
            self.deliveries.applied(data["ids"])
        if event == "context:post_compact":
            self.requests.view_changed()

    def progressed(self, event: str, data: dict[str, Any]) -> None:
        """Whoever watches was told of progress."""
        self.events.progressed(event, data)
        if event == "text":
            self.said.shown(data["text"])

    def returned(self, run: RunRecord) -> None:
        """At the very instant at which `execute` returns or raises."""
        self.quiet.returned(run)
        self.pairs.returned()
        self.remains.returned(run)
        self.events.end(run)
        self.said.end(run)
        self.deliveries.check_prompt(run)
        self.deliveries.run_over(self.events.waiting)

    def killed(self, run: RunRecord) -> None:
        """The process has died in the middle of the run."""
        self.deliveries.check_prompt(run)
        self.pairs.excuse()
        self.notices.forget()

    def all_over(self) -> None:
        self.deliveries.all_over()
        self.notices.all_over()
        self.remains.all_over()
