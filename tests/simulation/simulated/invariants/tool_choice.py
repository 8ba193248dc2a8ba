"""The model may use its tools, except after a tool that makes it answer, and after the run has reached a limit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Collection

    from orchestrator_interactive.kernel.contracts.messages import ChatRequest
    from simulated.scenario import Scenario

FORCING = "dispatch_worker"


class Freedom:
    """Looks at which tools a request declares, and whether they may be used.

    `must_answer`: a tool has made it answer in words. An answer uses that up, and a call that failed does not.
    """

    def __init__(self, scene: Scenario) -> None:
        self._scene = scene
        self._declared: list[str] | None = None
        self.begin()

    def begin(self) -> None:
        self.must_answer = False
        self._is_free = True

    def row_added(self, row: dict[str, Any]) -> None:
        if calls := row.get("tool_calls"):
            self.must_answer = any(call["function"]["name"] == FORCING for call in calls)

    def answered(self) -> None:
        """The agent has told of an answer."""
        self.must_answer = False

    def thinks(self, limits: Collection[str]) -> None:
        """The agent is about to ask the model."""
        self._is_free = not self.must_answer and not limits

    def asked(self, request: ChatRequest, *, can_choose: bool) -> None:
        allowed = bool(request.tools) and request.tool_choice != "none"
        if allowed != self._is_free:
            self._scene.blame("The model may use its tools, and should not." if allowed else "It may not, and should.")
        if not can_choose:
            return
        names = [tool.name for tool in request.tools or ()]
        if self._declared is not None and names != self._declared:
            self._scene.blame(f"The tools of a request are {names}; they were {self._declared}.")
        self._declared = names
