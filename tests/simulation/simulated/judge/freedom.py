"""The model may use its tools, except after a tool that makes it answer, and after the last iteration with tools."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from orchestrator_interactive.kernel.messages import ChatRequest
    from simulated.scene import Scene

    from .runs import RunRecord

FORCING = "dispatch_worker"


class Freedom:
    """Looks at which tools a request declares, and whether they may be used."""

    def __init__(self, scene: Scene, max_iterations: int) -> None:
        self._scene = scene
        self._max_iterations = max_iterations
        self._must_answer = False
        self._declared: list[str] | None = None

    def begin(self) -> None:
        self._must_answer = False

    def row_added(self, row: dict[str, Any]) -> None:
        if calls := row.get("tool_calls"):
            self._must_answer = any(call["function"]["name"] == FORCING for call in calls)

    def asked(self, request: ChatRequest, run: RunRecord, *, can_choose: bool) -> None:
        """`run.model_calls` counts the calls before this one."""
        expected = not self._must_answer and run.model_calls < self._max_iterations
        self._must_answer = False
        allowed = bool(request.tools) and request.tool_choice != "none"
        if allowed != expected:
            self._scene.blame("The model may use its tools, and should not." if allowed else "It may not, and should.")
        names = [tool.name for tool in request.tools or ()]
        if can_choose and self._declared is not None and names != self._declared:
            self._scene.blame(f"The tools of a request are {names}; they were {self._declared}.")
        self._declared = names
