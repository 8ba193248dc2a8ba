"""The health of this process, and the server of `/metrics`, `/healthz` and `/readyz`."""

from __future__ import annotations

import asyncio
import errno
from collections import deque
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import structlog
from aiohttp import web

from orchestrator_interactive.storage.errors import StoreError
from service.config.config_errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping

    from connector.app import Connection
    from orchestrator_interactive.storage.retry import StoreRetryPolicy
    from service.observe.metrics import Metrics
    from service.store.base import RunStore

log = structlog.get_logger(__name__)

# How often the delay of the event loop is measured, and how many measurements are kept.
_LAG_EVERY_S = 0.5
_LAGS = 30
# Above these, the process is not ready, and not alive.
_READY_LAG_S, _ALIVE_LAG_S = 1.0, 10.0
_STORE_WITHIN_S = 1.0
_CLOSE_WITHIN_S = 0.1


@dataclass(frozen=True, slots=True)
class Check:
    """The result of a check; `says` is a sentence for the operator."""

    ok: bool
    says: str


class Health:
    """The parts of the service whose state decides whether it is ready.

    Args:
        reserve_mb: free disk space that each place must have.
        free_mb: the free space of each place, kept up to date by its owner.

    Attributes:
        connection: the connection to Slack, once it is open.
        store: the run store, once it is open.
        retry: the policy by which the service uses the store.
        is_stopping: the service shuts down.
        are_agents_there: returns whether the process of the agents answers; `None`: they work in this process.
    """

    def __init__(self, reserve_mb: int, free_mb: Mapping[str, int]) -> None:
        self.connection: Connection | None = None
        self.store: RunStore | None = None
        self.retry: StoreRetryPolicy | None = None
        self.is_stopping = False
        self.are_agents_there: Callable[[], bool] | None = None
        self._reserve_mb = reserve_mb
        self._free_mb = free_mb
        self._lags_s: deque[float] = deque([0.0], _LAGS)

    @property
    def loop_lag_s(self) -> float:
        """The longest delay of the event loop in the last 15 seconds."""
        return max(self._lags_s)

    async def watch_loop(self) -> None:
        """Measure the delay of the event loop, for ever."""
        loop = asyncio.get_running_loop()
        while True:
            due_s = loop.time() + _LAG_EVERY_S
            await asyncio.sleep(_LAG_EVERY_S)
            self._lags_s.append(max(loop.time() - due_s, 0.0))

    def alive(self) -> dict[str, Check]:
        return {"event_loop": self._loop(_ALIVE_LAG_S)}

    async def ready(self) -> dict[str, Check]:
        return {
            "service": self._service(),
            "transport": self._transport(),
            "store": await self._store(),
            **({} if self.are_agents_there is None else {"agents": self._agents(self.are_agents_there())}),
            "disk": self._disk(),
            "event_loop": self._loop(_READY_LAG_S),
        }

    def _service(self) -> Check:
        if self.is_stopping:
            return Check(ok=False, says="The service is shutting down.")
        is_open = self.connection is not None
        return Check(is_open, "The service is running." if is_open else "The service is starting.")

    def _transport(self) -> Check:
        if self.connection is not None and self.connection.transport.is_connected:
            return Check(ok=True, says="Slack can deliver events.")
        return Check(ok=False, says="No connection to Slack is open; the log has the reason.")

    async def _store(self) -> Check:
        if self.store is None:
            return Check(ok=False, says="The store is not open.")
        try:
            async with asyncio.timeout(_STORE_WITHIN_S):
                await self.store.thread_of("health:check:0")
        except TimeoutError:
            return Check(ok=False, says=f"The store does not answer within {_STORE_WITHIN_S:g} s.")
        except StoreError as e:
            return Check(ok=False, says=f"The store does not answer: {e}")
        if self.retry is not None and self.retry.is_unavailable:  # a call of the service waits
            return Check(ok=False, says="The store does not accept writes; the log has the reason (store.unavailable).")
        return Check(ok=True, says="The store answers.")

    @staticmethod
    def _agents(are_there: bool) -> Check:
        if are_there:
            return Check(ok=True, says="The process of the agents answers.")
        return Check(
            ok=False, says="The process of the agents does not answer. `amplifier-slack sessions serve` is it."
        )

    def _disk(self) -> Check:
        low = [f"{place} has {mb} MB" for place, mb in self._free_mb.items() if mb < self._reserve_mb]
        if low:
            return Check(ok=False, says=f"Free disk space is below {self._reserve_mb} MB: {', '.join(low)}.")
        return Check(ok=True, says=f"Free disk space is above {self._reserve_mb} MB.")

    def _loop(self, most_s: float) -> Check:
        lag_s = self.loop_lag_s
        return Check(lag_s < most_s, f"The event loop was late by at most {lag_s:.2f} s in the last 15 s.")


@asynccontextmanager
async def health_server(host: str, port: int, health: Health, metrics: Metrics) -> AsyncIterator[None]:
    """Serve health and metrics while the context is open.

    Raises:
        ConfigError: the address cannot be used.
    """
    from prometheus_client.exposition import choose_encoder  # noqa: PLC0415 - most services have no server

    async def on_metrics(request: web.Request) -> web.Response:
        await metrics.refresh(health.connection, health.loop_lag_s)
        encode, content_type = choose_encoder(request.headers.get("Accept", ""))
        return web.Response(body=encode(metrics.registry), headers={"Content-Type": content_type})

    async def on_alive(_request: web.Request) -> web.Response:
        return _answer("alive", health.alive())

    async def on_ready(_request: web.Request) -> web.Response:
        return _answer("ready", await health.ready())

    app = web.Application()
    app.add_routes([web.get("/metrics", on_metrics), web.get("/healthz", on_alive), web.get("/readyz", on_ready)])
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=_CLOSE_WITHIN_S)
    await runner.setup()
    watching = asyncio.create_task(health.watch_loop())
    try:
        try:
            await web.TCPSite(runner, host, port).start()
        except OSError as e:
            problem = "another program uses it" if e.errno == errno.EADDRINUSE else e.strerror or str(e)
            raise ConfigError(f"observe.listen: cannot listen on {host} port {port}: {problem}.") from e
        log.info("observe.listening", host=host, port=port)
        yield
    finally:
        watching.cancel()
        await runner.cleanup()


def _answer(name: str, checks: Mapping[str, Check]) -> web.Response:
    is_ok = all(check.ok for check in checks.values())
    body = {name: is_ok, "checks": {name: {"ok": check.ok, "says": check.says} for name, check in checks.items()}}
    return web.json_response(body, status=200 if is_ok else 503)
