"""Metrics, health and traces of the service, if its configuration asks for them."""

from __future__ import annotations

import os
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING

from service.config.config_errors import ConfigError
from service.config.slack import address_of
from service.logging import hide_secrets
from service.observe.server import Health, health_server

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Collection, Sequence

    from service.config.observe import ObserveConfig
    from service.observe.sessions import ServiceObserver, SessionObserver


_NO_OTEL = (
    "observe.traces: OpenTelemetry is not installed. Install it with `pip install 'amplifier-slack[otel]'`, or set "
    "`traces: false`."
)
_BAD_OTEL = (
    "observe.traces: OpenTelemetry cannot use its environment variables ({error}). Correct those that begin with "
    "OTEL_, or set `traces: false`."
)
# Variables of OpenTelemetry that may contain the key of a collector.
_HEADERS = ("OTEL_EXPORTER_OTLP_HEADERS", "OTEL_EXPORTER_OTLP_TRACES_HEADERS")


def problems_of(config: ObserveConfig) -> list[str]:
    """Return what prevents traces, in sentences for operators."""
    return [_NO_OTEL] if config.traces and not all(map(find_spec, ("opentelemetry", "opentelemetry.sdk"))) else []


@dataclass(frozen=True, slots=True)
class Observation:
    """The health of a service, and its observers, if there are any."""

    health: Health
    service: ServiceObserver | None = None
    sessions: SessionObserver | None = None


@asynccontextmanager
async def observing(
    config: ObserveConfig,
    instances: Sequence[str],
    reserve_mb: int,
    free_mb: dict[str, int],
    secrets: Collection[str],
) -> AsyncIterator[Observation]:
    """Observe a service as its configuration says. Without `listen` and `traces`, nothing is measured.

    `secrets`, which may grow, are hidden in traces.

    Raises:
        ConfigError: the address cannot be used, or traces need a package that is not installed.
    """
    health = Health(reserve_mb, free_mb)
    if config.listen is None and not config.traces:
        yield Observation(health)
        return
    # Imported here, so that a service without metrics starts faster and uses less memory.
    from service.observe.metrics import Metrics  # noqa: PLC0415
    from service.observe.sessions import ServiceObserver, SessionObserver  # noqa: PLC0415

    async with AsyncExitStack() as opened:
        metrics, traces = Metrics(instances), None
        if config.traces:
            try:
                from service.observe.traces import Traces  # noqa: PLC0415
            except ImportError as e:
                raise ConfigError(_NO_OTEL) from e
            try:
                traces = Traces(with_content=config.content, hide=lambda text: hide_secrets(text, tuple(secrets)))
            except Exception as e:  # OpenTelemetry reads its variables in many ways
                raise ConfigError(_BAD_OTEL.format(error=e)) from e
            opened.push_async_callback(traces.aclose)
            for name in _HEADERS:  # the exporter has read them, and child processes must not inherit a key
                os.environ.pop(name, None)
        if config.listen is not None:
            address = address_of(config.listen)
            await opened.enter_async_context(health_server(address.host, address.port, health, metrics))
        yield Observation(health, ServiceObserver(metrics, traces), SessionObserver(metrics, traces))
