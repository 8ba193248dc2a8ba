"""`tool-dispatch-worker`: the model hands a task to a worker, which outlives the answer and reports in the thread."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar
from uuid import uuid4

from pydantic import Field

from orchestrator_interactive.config import Options, validate
from orchestrator_interactive.kernel.interop import to_local_coordinator
from orchestrator_interactive.kernel.tool_support import current_call
from orchestrator_interactive.validated_tool import ValidatedTool

if TYPE_CHECKING:
    from orchestrator_interactive.kernel.coordinator import ModuleCoordinator

_MOST_MINUTES = 7 * 24 * 60


class WorkerOptions(Options):
    """Options of `tool-dispatch-worker`; `minutes` is the time limit of a worker if the model names none."""

    minutes: float = Field(default=240.0, gt=0, le=_MOST_MINUTES)


class _Input(Options):
    task: str = Field(min_length=1, description="The task. The worker does not see this conversation: include all.")
    title: str = Field(min_length=1, max_length=120, description="The task in a few words, for people.")
    agent: str = Field("", description="Which agent does it, of those for `delegate`. Blank: a copy of you.")
    minutes: float | None = Field(None, gt=0, le=_MOST_MINUTES, description="After how many minutes it is stopped.")


class DispatchWorkerTool(ValidatedTool[_Input]):
    """Dispatches a worker, and returns its id at once. A repeated call dispatches no second one."""

    name = "dispatch_worker"
    description = (
        "Hand a long task to a worker. It works on its own after your answer, shows its progress in the thread, and "
        "posts its report there; you read the report with the next message. Tell the people what you have handed over."
    )
    input_kind = _Input
    resumable: ClassVar[bool] = True
    destructive: ClassVar[bool] = False

    def __init__(self, coordinator: ModuleCoordinator, options: WorkerOptions) -> None:
        self._coordinator = coordinator
        self._minutes = options.minutes

    def label(self, input: dict[str, Any]) -> str:  # noqa: A002 - the name is the contract's
        return f"Dispatching a worker: {input.get('title', '')}"

    async def _work(self, wanted: _Input) -> str:
        dispatch = self._coordinator.get_capability("workers.dispatch")
        if dispatch is None:
            raise ValueError("There are no workers here. Do it yourself.")
        call = current_call.get()
        agents = self._coordinator.config.get("agents") or {}
        if wanted.agent and wanted.agent not in agents:
            known = ", ".join(sorted(agents)) or "none; leave it blank"
            raise ValueError(f"There is no agent '{wanted.agent}'. Agents: {known}.")
        worker = await dispatch(
            instruction=wanted.task,
            title=wanted.title,
            agent=wanted.agent,
            timeout_s=60 * (self._minutes if wanted.minutes is None else wanted.minutes),
            call_id=uuid4().hex if call is None else call.id,
        )
        return (
            f"Worker {worker['id']} has begun: {worker['title']}. It reports in the thread. People write to it "
            f"with `@{worker['id']} …` and stop it with `!worker stop {worker['id']}`."
        )


async def mount(coordinator: ModuleCoordinator, config: dict[str, Any]) -> None:
    """Mount `dispatch_worker`. It dispatches through the capability `workers.dispatch`, which the service registers.

    Raises:
        ValueError: an unknown option, or a value out of range.
    """
    coordinator = to_local_coordinator(coordinator)
    tool = DispatchWorkerTool(coordinator, validate(WorkerOptions, config, "tool-dispatch-worker"))
    await coordinator.mount("tools", tool, name=tool.name)
