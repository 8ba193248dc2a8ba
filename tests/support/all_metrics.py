"""Every metric of a service, with a value for each label."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace

from prometheus_client import Metric

from orchestrator_interactive.loop.outcome import UsageTotals
from service.observe.metrics import Metrics


async def families() -> list[Metric]:
    """Return the metrics of a service after it has counted something of each kind."""
    metrics = Metrics(("alpha",))
    metrics.run_ended("alpha", "success", 1)
    metrics.turn("alpha")
    metrics.message("delivered")
    metrics.stop("word")
    metrics.tool("look", "finished", 1)
    metrics.usage("model", UsageTotals(1, 1, cost_usd=1))
    metrics.call("auth.test", "ok")
    metrics.lease("taken")

    async def left() -> dict[str, float]:
        return {"auth.test": 1.0}

    pool = SimpleNamespace(active_runs=Counter, inbox_depth=lambda: 0)
    workspace = SimpleNamespace(worker_pool=pool, rate_limiter=SimpleNamespace(left=left))
    connection = SimpleNamespace(workspaces={"T1": workspace}, slots=SimpleNamespace(waiting=0))
    await metrics.refresh(connection, 0.0)
    return list(metrics.registry.collect())


def labels_of(family: Metric) -> list[str]:
    return sorted({label for sample in family.samples for label in sample.labels} - {"le"})
