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
    ScriptedHook,
    ScriptedModel,
    ScriptedTool,
    WatchedContext,
)
from orchestrator_interactive.validation.runner import Cancelled, Hung, NotChecked, Raised, Returned, cancel_in_time

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
        hook: the hook of the scenario, if it has one.
    """

    scenario: Scenario
    ended: Ending
    interrupted: bool
    emitted: tuple[Emitted, ...]
    contributed: frozenset[str]
    asked: int
    requests: tuple[Request, ...]
    invalid_requests: tuple[str, ...]
    executions: tuple[tuple[str, dict[str, Any]], ...]
    rows: tuple[dict[str, Any], ...]
    hook: ScriptedHook | None

    def of(self, event: str) -> list[dict[str, Any]]:
        """Return the data of every emission of an event, in order."""
        return [emitted.data for emitted in self.emitted if emitted.event == event]

    def triggered_hook(self) -> ScriptedHook:
        """Return the hook of the scenario after it was called.

        Raises:
            NotChecked: its event was not emitted.
        """
        if self.hook is None or self.hook.data is None:
            event = self.scenario.hook_script.event if self.scenario.hook_script else "an event"
            raise NotChecked(f"In the run with {self.scenario.name} {event} was not emitted.", f"Emit {event}.")
        return self.hook

    def requests_after_hook(self) -> list[str]:
        """Return the requests after the hook was called, as text."""
        since = self.triggered_hook().events_before
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


async def run_all(validator: Validator, sandboxes: SandboxSession) -> Recordings:
    """Run every scenario in its own session; stop after several that do not end."""
    recordings: list[Recording] = []
    for scenario in SCENARIOS:
        if sum(isinstance(recording.ended, Hung) for recording in recordings) >= _MOST_HUNG:
            break
        doing = f"a run with {scenario.name}"
        limit_s = validator.limit_s + _OVERHEAD_S
        done = await validator.perform(doing, _run(scenario, sandboxes, validator.limit_s), limit_s)
        if isinstance(done, Returned):
            recordings.append(done.value)
    return Recordings(validator.location, recordings)


async def _run(scenario: Scenario, sandboxes: SandboxSession, limit_s: float) -> Recording:
    async with sandboxes.open() as sandbox:
        script, context = ModelScript(scenario, sandbox.hooks), WatchedContext()
        sandbox.coordinator.mount("context", context)
        hook = _register_hook(scenario, sandbox)
        run = asyncio.create_task(_executed(sandbox, script, context))
        ended = await _ending(run, script, limit_s)
        return Recording(
            scenario=scenario,
            ended=ended,
            interrupted=script.interrupted.is_set(),
            emitted=tuple(sandbox.hooks.emitted),
            contributed=frozenset(await sandbox.contributed_events()),
            asked=script.asked,
            requests=tuple(script.requests),
            invalid_requests=tuple(script.invalid_requests),
            executions=tuple(script.executions),
            rows=tuple(await context.get_messages()),
            hook=hook,
        )


def _register_hook(scenario: Scenario, sandbox: ValidationSandbox) -> ScriptedHook | None:
    if scenario.approval is not None:
        sandbox.coordinator.approval_system = MockApprovalSystem(scenario.approval)
    if scenario.hook_script is None:
        return None
    hook = ScriptedHook(scenario.hook_script, sandbox.hooks)
    sandbox.hooks.register(scenario.hook_script.event, hook, priority=50, name="validation")
    return hook


async def _executed(sandbox: ValidationSandbox, script: ModelScript, context: WatchedContext) -> Any:
    providers = {name: ScriptedModel(name, script) for name in script.scenario.providers}
    tools = {name: ScriptedTool(name, script) for name in TOOLS}
    for name, provider in providers.items():
        sandbox.coordinator.mount("providers", provider, name)
    for name, tool in tools.items():
        sandbox.coordinator.mount("tools", tool, name)
    orchestrator = sandbox.one("orchestrator")
    return await orchestrator.execute(PROMPT, context, providers, tools, sandbox.hooks, coordinator=sandbox.coordinator)


async def _ending(run: asyncio.Task[Any], script: ModelScript, limit_s: float) -> Ending:
    interrupted = asyncio.ensure_future(script.interrupted.wait())
    done, _ = await asyncio.wait({run, interrupted}, timeout=limit_s, return_when=asyncio.FIRST_COMPLETED)
    interrupted.cancel()
    if run not in done and not await cancel_in_time(run):
        return Hung(limit_s, stopped=False)
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
