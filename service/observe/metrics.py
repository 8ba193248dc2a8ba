"""The metrics of this process, for Prometheus. No label names a person, a channel or a conversation."""

from __future__ import annotations

import asyncio
from collections import Counter as Counted
from functools import partial
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics
from prometheus_client.gc_collector import GCCollector
from prometheus_client.process_collector import ProcessCollector

if TYPE_CHECKING:
    from collections.abc import Sequence

    from connector.app import Connection
    from orchestrator_interactive.loop.outcome import UsageTotals

PREFIX = "amplifier_slack"
# Most values of a label that a module or a model names; further ones are counted as `other`.
_MOST_VALUES = 100
_OTHER = "other"
_RUN_SECONDS = (1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 7200)
_TOOL_SECONDS = (0.01, 0.05, 0.1, 0.5, 1, 5, 10, 30, 60, 300, 600)


disable_created_metrics()  # type: ignore[no-untyped-call] # they would double the number of series


class Metrics:
    """The counters, histograms and gauges, in a registry of their own.

    The label `agent` is the instance: Prometheus names the process `instance`.
    """

    def __init__(self, instances: Sequence[str]) -> None:
        self.registry = CollectorRegistry()
        self._instances = set(instances)
        self._known: dict[str, set[str]] = {}
        counter = partial(Counter, namespace=PREFIX, registry=self.registry)
        gauge = partial(Gauge, namespace=PREFIX, registry=self.registry)
        histogram = partial(Histogram, namespace=PREFIX, registry=self.registry)
        self._runs_active = gauge("runs_active", "Runs at work.", ("agent",))
        self._runs_waiting = gauge("runs_waiting", "Conversations that wait for a slot.")
        self._runs = counter("runs", "Runs that ended or were handed over.", ("agent", "outcome"))
        self._run_seconds = histogram(
            "run_seconds", "Duration of runs, with their waiting time.", ("agent",), buckets=_RUN_SECONDS
        )
        self._turns = counter("turns", "Answers of models.", ("agent",))
        self._messages = counter("messages", "Messages that left their inbox.", ("end",))
        self._stops = counter("stops", "Requests to stop a run.", ("door",))
        self._tool_seconds = histogram(
            "tool_seconds", "Duration of tool calls.", ("tool", "outcome"), buckets=_TOOL_SECONDS
        )
        self._tokens = counter("tokens", "Tokens of model calls.", ("kind", "model"))
        self._cost = counter("cost_dollars", "Cost of model calls with a known cost.", ("model",))
        self._calls = counter("slack_calls", "Calls of Slack's Web API.", ("method", "result"))
        self._rate_left = gauge(
            "rate_budget_left", "Calls that the rate budget grants at once; of several, the least.", ("method",)
        )
        self._workspaces = gauge("workspaces", "Workspaces that are open in this process.")
        self._inbox_depth = gauge("inbox_depth", "Messages in the inboxes that this process owns.")
        self._leases = counter("leases", "Moves of this process's leases.", ("move",))
        self._loop_lag = gauge("loop_lag_seconds", "Longest delay of the event loop in the last 15 seconds.")
        self._tasks = gauge("tasks", "Tasks of the event loop.")
        ProcessCollector(registry=self.registry)
        GCCollector(registry=self.registry)

    def run_ended(self, instance: str, outcome: str, seconds: float) -> None:
        self._runs.labels(instance, outcome).inc()
        self._run_seconds.labels(instance).observe(seconds)

    def turn(self, instance: str) -> None:
        self._turns.labels(instance).inc()

    def tool(self, name: str, outcome: str, seconds: float) -> None:
        self._tool_seconds.labels(self._bounded("tool", name), outcome).observe(seconds)

    def usage(self, model: str, usage: UsageTotals) -> None:
        """Count the tokens and the cost of model calls; `input` tokens include those of the cache."""
        model = self._bounded("model", model)
        for field, tokens in zip(usage._fields[:-1], usage[:-1], strict=True):
            if tokens > 0:
                self._tokens.labels(field.removesuffix("_tokens"), model).inc(tokens)
        if usage.cost_usd:
            self._cost.labels(model).inc(float(usage.cost_usd))

    def message(self, end: str) -> None:
        self._messages.labels(end).inc()

    def stop(self, door: str) -> None:
        self._stops.labels(door).inc()

    def call(self, method: str, result: str) -> None:
        self._calls.labels(self._bounded("method", method), self._bounded("result", result)).inc()

    def lease(self, move: str) -> None:
        self._leases.labels(move).inc()

    async def refresh(self, connection: Connection | None, loop_lag_s: float) -> None:
        """Set the gauges; without a connection, only those of the event loop."""
        self._loop_lag.set(loop_lag_s)
        self._tasks.set(len(asyncio.all_tasks()))
        if connection is None:
            return
        workspaces, active, left = list(connection.workspaces.values()), Counted[str](), dict[str, float]()
        for workspace in workspaces:
            active += workspace.worker_pool.active_runs()
            for method, calls in (await workspace.rate_limiter.left()).items():
                left[method] = min(left.get(method, calls), calls)
        self._instances |= active.keys()  # a reload may add instances
        for instance in self._instances:
            self._runs_active.labels(instance).set(active[instance])
        self._runs_waiting.set(connection.slots.waiting)
        self._inbox_depth.set(sum(each.worker_pool.inbox_depth() for each in workspaces))
        self._workspaces.set(len(workspaces))
        for method, calls in left.items():
            self._rate_left.labels(self._bounded("method", method)).set(calls)

    def _bounded(self, label: str, value: str) -> str:
        known = self._known.setdefault(label, set())
        if value not in known and len(known) >= _MOST_VALUES:
            return _OTHER
        known.add(value)
        return value
