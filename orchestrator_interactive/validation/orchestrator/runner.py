"""Run an orchestrator in each scenario and record the run."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from orchestrator_interactive.testing import MockApprovalSystem
from orchestrator_interactive.validation.orchestrator.scenarios import PROMPT, SCENARIOS
from orchestrator_interactive.validation.orchestrator.script import (
    TOOLS,
    ModelScript,
    ScriptedModel,
    ScriptedTool,
    WatchedContext,
    Wisher,
)
from orchestrator_interactive.validation.runner import Cancelled, Hung, NotChecked, Raised, Returned, heeds_cancel

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from orchestrator_interactive.kernel.loading.location import ModuleLocation
    from orchestrator_interactive.validation.orchestrator.scenarios import Scenario
    from orchestrator_interactive.validation.orchestrator.script import Request
    from orchestrator_interactive.validation.runner import Ending, Validator
    from orchestrator_interactive.validation.sandbox import Emitted, SandboxSession, ValidationSandbox

# Additional time for mounting and for the end of a cancelled run.
_OVERHEAD_S = 5.0
# After this many runs that did not end, the others are skipped.
_MOST_HUNG = 2


@dataclass(frozen=True, slots=True)
class Recording:
    """Recording of one run.

    Args:
        interrupted: whether the run was cancelled, by the scenario or because it did not end.
        rows: the context at the end.
        wisher: the hook of the scenario, if it has one.
    """

    scenario: Scenario
    ended: Ending
    interrupted: bool
    emitted: tuple[Emitted, ...]
    contributed: frozenset[str]
    asked: int
    requests: tuple[Request, ...]
    strange_requests: tuple[str, ...]
    executions: tuple[tuple[str, dict[str, Any]], ...]
    rows: tuple[dict[str, Any], ...]
    wisher: Wisher | None

    def of(self, event: str) -> list[dict[str, Any]]:
        """Return the data of every emission of an event, in order."""
        return [emitted.data for emitted in self.emitted if emitted.event == event]

    def wished_for(self) -> Wisher:
        """Return the hook of the scenario after it was called.

        Raises:
            NotChecked: its event was not emitted.
        """
        if self.wisher is None or self.wisher.data is None:
            event = self.scenario.wish.event if self.scenario.wish else "an event"
            raise NotChecked(f"In the run with {self.scenario.name} {event} was not emitted.", f"Emit {event}.")
        return self.wisher

    def requests_after_the_wish(self) -> list[str]:
        """Return the requests after the hook was called, as text."""
        since = self.wished_for().events_before
        return [as_text(request.messages) for request in self.requests if request.events_before >= since]


class Recordings:
    """Runs of an orchestrator by scenario. Iteration skips runs that did not end; one rule reports them."""

    def __init__(self, location: ModuleLocation, recordings: Sequence[Recording]) -> None:
        self.location = location
        self.all = tuple(recordings)
        self._by_name = {recording.scenario.name: recording for recording in recordings}

    def __iter__(self) -> Iterator[Recording]:
        return (recording for recording in self.all if not isinstance(recording.ended, Hung))

    def of(self, scenario: Scenario) -> Recording:
        """Return the run of a scenario.

        Raises:
            NotChecked: it did not end, or was skipped.
        """
        recording = self._by_name.get(scenario.name)
        if recording is None or isinstance(recording.ended, Hung):
            raise NotChecked(f"The run with {scenario.name} did not end.", "Let it end first, see above.")
        return recording


async def play_all(examination: Validator, theatre: SandboxSession) -> Recordings:
    """Run every scenario in its own session; stop after several that do not end."""
    recordings: list[Recording] = []
    for scenario in SCENARIOS:
        if sum(isinstance(recording.ended, Hung) for recording in recordings) >= _MOST_HUNG:
            break
        doing = f"a run with {scenario.name}"
        limit_s = examination.limit_s + _OVERHEAD_S
        done = await examination.perform(doing, _play(scenario, theatre, examination.limit_s), limit_s)
        if isinstance(done, Returned):
            recordings.append(done.value)
    return Recordings(examination.location, recordings)


async def _play(scenario: Scenario, theatre: SandboxSession, limit_s: float) -> Recording:
    async with theatre.stage() as stage:
        script, context = ModelScript(scenario, stage.hooks), WatchedContext()
        stage.coordinator.mount("context", context)
        wisher = _wisher(scenario, stage)
        run = asyncio.create_task(_executed(stage, script, context))
        ended = await _ending(run, script, limit_s)
        return Recording(
            scenario=scenario,
            ended=ended,
            interrupted=script.interrupted.is_set(),
            emitted=tuple(stage.hooks.emitted),
            contributed=frozenset(await stage.contributed_events()),
            asked=script.asked,
            requests=tuple(script.requests),
            strange_requests=tuple(script.strange_requests),
            executions=tuple(script.executions),
            rows=tuple(await context.get_messages()),
            wisher=wisher,
        )


def _wisher(scenario: Scenario, stage: ValidationSandbox) -> Wisher | None:
    if scenario.approval is not None:
        stage.coordinator.approval_system = MockApprovalSystem(scenario.approval)
    if scenario.wish is None:
        return None
    wisher = Wisher(scenario.wish, stage.hooks)
    stage.hooks.register(scenario.wish.event, wisher, priority=50, name="validation")
    return wisher


async def _executed(stage: ValidationSandbox, script: ModelScript, context: WatchedContext) -> Any:
    providers = {name: ScriptedModel(name, script) for name in script.scenario.providers}
    tools = {name: ScriptedTool(name, script) for name in TOOLS}
    for name, provider in providers.items():
        stage.coordinator.mount("providers", provider, name)
    for name, tool in tools.items():
        stage.coordinator.mount("tools", tool, name)
    orchestrator = stage.one("orchestrator")
    return await orchestrator.execute(PROMPT, context, providers, tools, stage.hooks, coordinator=stage.coordinator)


async def _ending(run: asyncio.Task[Any], script: ModelScript, limit_s: float) -> Ending:
    interrupted = asyncio.ensure_future(script.interrupted.wait())
    done, _ = await asyncio.wait({run, interrupted}, timeout=limit_s, return_when=asyncio.FIRST_COMPLETED)
    interrupted.cancel()
    if run not in done and not await heeds_cancel(run):
        return Hung(limit_s, heeded=False)
    if not done and not script.scenario.endless:
        return Hung(limit_s)
    if not done:
        script.interrupted.set()  # it is slow and would continue
    if run.cancelled():
        return Cancelled()
    error = run.exception()
    return Returned(run.result()) if error is None else Raised(error)


def as_text(messages: Sequence[dict[str, Any]]) -> str:
    """Return messages as one text for searching."""
    return json.dumps(list(messages), default=str, ensure_ascii=False)
