"""The composition root: connects Slack to the agents."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import threading
import time
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Literal
from uuid import uuid4

import structlog

from connector import AccessRules, Instance, Persona, RunLimits, SlackOptions, connected
from orchestrator_interactive.interactions.stores import retrying
from orchestrator_interactive.storage.retry import StoreRetryPolicy
from service.config.config import store_of
from service.config.credentials import secrets, slack_access
from service.notes import Notes
from service.runs import StoredRuns
from service.sessions.manager import InProcessSessionManager
from service.sessions.workspaces import Workspaces
from service.store import open_budget, open_log_store, open_run_store
from service.store.maintenance import expiring, lines, places, watching_disks

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping
    from types import FrameType

    from connector.protocols import RateBudget
    from orchestrator_interactive.interactions.stores import LogStore
    from service.config.config import Environment, ServiceConfig
    from service.store.base import RunStore, SharedBudget

    Handler = Callable[[int, FrameType | None], object] | int | None

log = structlog.get_logger(__name__)

# Seconds of the shutdown grace that are reserved for closing sessions, leases and stores after the connector has
# ended (at most half of the grace), and the part of that time for closing the stores.
_AFTER_CONNECTOR_S = 1.5
_CLOSED_WITHIN_S = 0.3
# A process stops taking over conversations when it owns this many more than its limit of concurrent runs.
_OWNED_BESIDE_RUNS = 300
# Handlers for a second signal: terminate immediately.
_AT_ONCE: Mapping[signal.Signals, Handler] = {
    signal.SIGINT: signal.default_int_handler,
    signal.SIGTERM: signal.SIG_DFL,
}
# Python's interpreter shutdown takes a moment even if the grace is shorter.
_SHORTEST_GRACE_S = 0.5


async def serve(config: ServiceConfig, environment: Environment) -> None:
    """Serve the workspace until SIGINT or SIGTERM, then shut down within `shutdown_grace_s`.

    Raises:
        ConfigError: a token or a module is missing or invalid.
        StoreError: the conversation store cannot be used.
        ConnectionRefused: Slack refuses the connection.
    """
    free_mb: dict[str, int] = {}
    access = slack_access(config.slack, environment, lambda: lines(free_mb))
    gc.disable()  # objects created during start-up are long-lived; collecting them is wasted time
    instances = [
        Instance(name, Persona(instance.persona.name, instance.persona.emoji))
        for name, instance in config.instances.items()
    ]
    url = store_of(config, environment)
    grace_s = config.shutdown_grace_s
    async with (
        _until_signalled(max(grace_s, _SHORTEST_GRACE_S)) as ended,
        _working(config, environment, url, free_mb) as (sessions, runs, budget),
        connected(
            access,
            instances,
            sessions,
            runs,
            shutdown_grace_s=max(grace_s - _AFTER_CONNECTOR_S, grace_s / 2),
            policy=AccessRules(
                config.slack.users, config.slack.channels, config.slack.external, config.slack.guests == "allow"
            ),
            budget=budget,
            rate_scale=config.slack.rate_scale,
            limits=RunLimits(**config.limits.model_dump()),
            options=SlackOptions(config.slack.stop_reaction, config.slack.status_interval_s),
            tools_grace_s=config.shutdown_tools_s,
            listeners=config.slack.listeners,
        ),
    ):
        gc.freeze()  # exclude start-up objects from later collections, which pause every run
        gc.enable()
        log.info("service.ready", instances=list(config.instances), default_provider=environment.default_provider)
        await ended.wait()
        log.info("service.stopping")


@asynccontextmanager
async def _working(
    config: ServiceConfig, environment: Environment, url: str, free_mb: dict[str, int]
) -> AsyncIterator[tuple[InProcessSessionManager, StoredRuns, RateBudget | None]]:
    """Open the sessions, runs and rate budget on the store at a URL. Closing them takes bounded time."""
    retry, workspaces, owner = StoreRetryPolicy(), Workspaces(config.workspace), uuid4().hex
    async with (
        _stores(url) as (store, logs, budget),
        watching_disks(places(config.workspace, url), config.workspace.reserve_mb, free_mb),
        expiring(store, logs),
        StoredRuns(store, owner, config.lease_s, retry, _boottime_s, config.limits.runs + _OWNED_BESIDE_RUNS) as runs,
        InProcessSessionManager(
            config.instances,
            environment.default_provider,
            workspaces,
            retrying(logs, retry),
            config.idle_evict_s,
            secrets=secrets(environment, config),
            anthropic_api_key=environment.anthropic_key,
            notify=(notes := Notes(runs.admit, tuple(config.instances))).store,
        ) as sessions,
    ):
        with notes.offered():
            yield sessions, runs, budget


def _boottime_s() -> float:
    """Return monotonic seconds, including time the machine is suspended if the platform has CLOCK_BOOTTIME."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


@asynccontextmanager
async def _stores(url: str) -> AsyncIterator[tuple[RunStore, LogStore, SharedBudget | None]]:
    """Open the run store, the log store and the rate budget that replicas share (`None` for SQLite) at a URL.

    Close them concurrently, within `_CLOSED_WITHIN_S`.
    """
    async with AsyncExitStack() as opened:
        runs = await open_run_store(url)
        opened.push_async_callback(runs.aclose)
        logs = await open_log_store(url)
        opened.push_async_callback(logs.aclose)
        budget = await open_budget(url)
        opened.pop_all()
    try:
        yield runs, logs, budget
    finally:
        try:
            async with asyncio.timeout(_CLOSED_WITHIN_S):
                await asyncio.gather(*(store.aclose() for store in (runs, logs, budget) if store is not None))
        except TimeoutError:
            log.warning("store.not_closed")


@asynccontextmanager
async def _until_signalled(ends_within_s: float) -> AsyncIterator[asyncio.Event]:
    """Yield an event that SIGINT and SIGTERM set. If the body does not wait for it yet, cancel the body.

    A second signal terminates the process immediately. A process that is still alive `ends_within_s` after the first
    signal is killed.
    """
    ended, loop, body = _Ended(), asyncio.get_running_loop(), asyncio.current_task()

    def end() -> None:
        ended.set()
        if not ended.awaited and body is not None:
            body.cancel()

    def on_signal(_number: int, _frame: FrameType | None) -> None:
        _install(_AT_ONCE)
        last_resort = threading.Timer(ends_within_s, _kill)
        last_resort.daemon = True
        last_resort.start()
        loop.call_soon_threadsafe(end)

    # The event loop's signal handlers would not run while a tool blocks the loop.
    before = _install(dict.fromkeys(_AT_ONCE, on_signal))
    try:
        yield ended
    except asyncio.CancelledError:
        if not ended.is_set():
            raise
        log.info("service.stopped_at_start")
    finally:
        if not ended.is_set():
            _install(before)


def _install(handlers: Mapping[signal.Signals, Handler]) -> dict[signal.Signals, Handler]:
    """Install signal handlers and return the previous ones."""
    return {number: signal.signal(number, handler) for number, handler in handlers.items()}


def _kill() -> None:
    log.critical("service.killed")
    os._exit(1)


class _Ended(asyncio.Event):
    awaited = False

    async def wait(self) -> Literal[True]:
        self.awaited = True
        return await super().wait()
