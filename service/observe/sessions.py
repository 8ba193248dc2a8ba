"""Feed metrics and traces from the connector's reports and from the events of the agents' sessions."""

from __future__ import annotations

import asyncio
import time
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any

from connector.observer import Observer, RunReport
from connector.protocols import LeaseLost
from orchestrator_interactive.kernel.contracts import events
from orchestrator_interactive.kernel.hooks import CONTINUE
from orchestrator_interactive.loop.outcome import NO_USAGE, UsageTotals, usage_from_dict, usage_totals

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from connector.observer import LeaseMove
    from connector.protocols import End, InboxEntry, ProgressCallback
    from orchestrator_interactive.interactions.records import Key
    from orchestrator_interactive.kernel import HookResult, ModuleCoordinator
    from service.observe.metrics import Metrics
    from service.observe.traces import RunSpans, Traces

_NAME = "observe"
# Before the handlers of modules: one that denies an event ends its dispatch.
_FIRST = -2000


class ServiceObserver(Observer):
    """Counts runs, stops, calls, messages and leases, and traces runs and admitted messages."""

    def __init__(self, metrics: Metrics, traces: Traces | None = None) -> None:
        self.metrics = metrics
        self._traces = traces

    @contextmanager
    def run(self, run_id: str, conversation_id: str, instance: str, message_id: str) -> Iterator[RunReport]:
        report, began_s = RunReport(), time.monotonic()
        traces = self._traces
        span = nullcontext() if traces is None else traces.run(run_id, conversation_id, instance, message_id, report)
        with span:
            try:
                yield report
            except (LeaseLost, asyncio.CancelledError):
                report.outcome = "lost"
                raise
            finally:
                self.metrics.run_ended(instance, report.outcome, time.monotonic() - began_s)

    def stopped(self, door: str, user: str, conversation_id: str, run_id: str | None) -> None:  # noqa: ARG002 - not counted
        self.metrics.stop(door)

    def called(self, method: str, result: str) -> None:
        self.metrics.call(method, result)

    def admitted(self, conversation_id: str, entry: InboxEntry) -> None:
        if self._traces is not None and entry.kind == "message":
            self._traces.admitted(conversation_id, entry.id)

    def left_inbox(self, ends: Collection[End]) -> None:
        for end in ends:
            if end != "done":
                self.metrics.message(end or "delivered")

    def lease(self, move: LeaseMove) -> None:
        self.metrics.lease(move)


class SessionObserver:
    """Follows the runs of the agents' sessions by their progress and their hook events."""

    def __init__(self, metrics: Metrics, traces: Traces | None = None) -> None:
        self._metrics = metrics
        self._traces = traces
        self._followed: dict[Key, _FollowedRun] = {}
        # By instance, the model that answered last: that of a call which is cancelled before its answer.
        self._models: dict[str, str] = {}

    def attach(self, coordinator: ModuleCoordinator, key: Key) -> None:
        """Listen to a new session."""
        listened = [events.PROVIDER_RESPONSE]
        if self._traces is not None:
            listened.append(events.PROVIDER_ERROR)
            if self._traces.with_content:  # hooks on requests get a copy of the conversation
                listened += [events.PROVIDER_REQUEST, events.TOOL_POST, events.TOOL_ERROR]
        for event in listened:
            coordinator.hooks.register(event, partial(self._on_event, coordinator, key), priority=_FIRST, name=_NAME)

    @contextmanager
    def following(
        self, key: Key, on_progress: ProgressCallback | None, *, is_resumed: bool
    ) -> Iterator[ProgressCallback]:
        """Follow a run of a session, and return the callback for its progress."""
        spans = None if self._traces is None else self._traces.spans_of_run()
        run = self._followed[key] = _FollowedRun(
            self._metrics, spans, key.agent_id, self._models, is_resumed=is_resumed
        )

        async def progress(event: str, data: dict[str, Any]) -> None:
            run.on_progress(event, data)
            if on_progress is not None:
                await on_progress(event, data)

        try:
            yield progress
        finally:
            del self._followed[key]
            if spans is not None:
                spans.end()

    async def _on_event(self, coordinator: ModuleCoordinator, key: Key, event: str, data: dict[str, Any]) -> HookResult:
        if (run := self._followed.get(key)) is None:
            return CONTINUE
        if event == events.PROVIDER_RESPONSE:
            run.answered(_model(coordinator, data), data)
        elif run.spans is not None:
            run.spans.on_event(event, data)
        return CONTINUE


class _FollowedRun:
    def __init__(
        self, metrics: Metrics, spans: RunSpans | None, instance: str, models: dict[str, str], *, is_resumed: bool
    ) -> None:
        self.spans = spans
        self._metrics = metrics
        self._instance = instance
        self._is_resumed = is_resumed
        self._models = models
        self._counted = NO_USAGE
        self._began_s: dict[str, float] = {}

    def on_progress(self, event: str, data: dict[str, Any]) -> None:
        match event:
            case "tool:start":
                self._began_s[data["id"]] = time.monotonic()
            case "tool:end":
                if (began_s := self._began_s.pop(data["id"], None)) is not None:
                    outcome = "finished" if data.get("success", True) else "failed"
                    self._metrics.tool(data["tool"], outcome, time.monotonic() - began_s)
            case "complete" if not self._is_resumed:  # that of a resumed run includes what other processes counted
                self._count_rest(usage_from_dict(data.get("usage")))
        if self.spans is not None:
            self.spans.on_progress(event, data)

    def answered(self, model: str, data: dict[str, Any]) -> None:
        """Count an answer of the model."""
        self._models[self._instance] = model
        self._metrics.turn(self._instance)
        usage = usage_totals(data.get("usage"))
        self._counted = self._counted.plus(usage)
        self._metrics.usage(model, usage)
        if self.spans is not None:
            self.spans.answered(model, usage, data)

    def _count_rest(self, total: UsageTotals) -> None:
        """Count the usage that no answer reported: of summaries, and of calls that were cancelled."""
        tokens = [max(all_ - counted, 0) for all_, counted in zip(total[:-1], self._counted[:-1], strict=True)]
        cost = (total.cost_usd or 0) - (self._counted.cost_usd or 0)
        self._metrics.usage(
            self._models.get(self._instance, "unknown"), UsageTotals._make((*tokens, max(cost, 0) or None))
        )


def _model(coordinator: ModuleCoordinator, data: dict[str, Any]) -> str:
    """Return the model that answered: as the response names it, or else the default of its provider."""
    metadata = getattr(data.get("response"), "metadata", None) or {}
    if metadata.get("model"):
        return str(metadata["model"])
    provider = (coordinator.get("providers") or {}).get(data.get("provider"))
    defaults = (provider.get_info().defaults or {}) if provider is not None else {}
    return str(defaults.get("model") or data.get("provider") or "unknown")
