"""The composition root: here, and only here, Slack and the agents are joined."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import threading
import time
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Literal, Protocol
from uuid import uuid4

import structlog

from connector import AccessRules, Instance, Persona, RunLimits, SlackOptions, connected
from orchestrator_interactive.interactions.stores import open_store
from service.config.config import store_url
from service.config.secrets import secrets
from service.config.tokens import slack_access
from service.runs.expiry import tidying
from service.runs.runs import StoredRuns
from service.sessions.manager import InProcessSessionManager
from service.sessions.workspaces import Workspaces
from service.store import open_budget, open_run_store
from service.store.disk_space import lines, places, watching_disks
from service.store.retry import RetryingStore, StoreRetryPolicy

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping
    from types import FrameType

    from connector.protocols import RateBudget
    from orchestrator_interactive.interactions.stores.base import LogStore
    from service.config.config import Environment, ServiceConfig
    from service.store.base import RunStore

    Handler = Callable[[int, FrameType | None], object] | int | None

log = structlog.get_logger(__name__)

# Of the grace, what remains for sessions, leases and stores once the connector has ended, or half of a short one; of
# that, the closing of the stores.
_AFTER_CONNECTOR_S = 1.5
_CLOSED_WITHIN_S = 0.3
# A process that owns this many conversations more than it may have runs at work takes over no others.
_OWNED_BESIDE_RUNS = 300
# What a signal does that is not asked about any more.
_AT_ONCE: Mapping[signal.Signals, Handler] = {
    signal.SIGINT: signal.default_int_handler,
    signal.SIGTERM: signal.SIG_DFL,
}
# Python's own end takes a moment, however short the grace is.
_SHORTEST_GRACE_S = 0.5


class _Closable(Protocol):
    async def aclose(self) -> None: ...


async def serve(config: ServiceConfig, environment: Environment) -> None:
    """Serve the workspace until SIGINT or SIGTERM, and end within the grace after it.

    Raises:
        ConfigError: a token or a module is missing or wrong.
        StoreError: the store of the conversations cannot be used.
        ConnectionRefused: Slack does not let us in.
    """
    free_mb: dict[str, int] = {}
    access = slack_access(config.slack, environment, lambda: lines(free_mb))
    gc.disable()  # to set up is to make what stays: next to nothing of it is garbage
    provider = "provider-anthropic" if environment.anthropic_api_key else "provider-demo"
    instances = [
        Instance(name, Persona(instance.persona.name, instance.persona.emoji))
        for name, instance in config.instances.items()
    ]
    given = environment.amplifier_slack_store
    url = store_url("AMPLIFIER_SLACK_STORE", given) if given else config.store.get_secret_value()
    grace_s = config.shutdown_grace_s
    async with (
        _until_signalled(max(grace_s, _SHORTEST_GRACE_S)) as ended,
        _working(config, environment, url, provider, free_mb) as (sessions, runs),
        _sharing(url) as budget,
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
        ),
    ):
        gc.freeze()  # looking at it again and again would hold up every run
        gc.enable()
        log.info("service.ready", instances=list(config.instances), default_provider=provider)
        await ended.wait()
        log.info("service.stopping")


@asynccontextmanager
async def _working(
    config: ServiceConfig, environment: Environment, url: str, provider: str, free_mb: dict[str, int]
) -> AsyncIterator[tuple[InProcessSessionManager, StoredRuns]]:
    """Sessions and runs over the store of a URL. At the end nothing of it holds up the process for long."""
    patience, workspaces, owner = StoreRetryPolicy(), Workspaces(config.workspace), uuid4().hex
    async with (
        _stores(url) as (store, logs),
        watching_disks(places(config.workspace, url), config.workspace.reserve_mb, free_mb),
        tidying(store, logs),
        StoredRuns(store, owner, config.lease_s, patience, _passing_s, config.limits.runs + _OWNED_BESIDE_RUNS) as runs,
        InProcessSessionManager(
            config.instances,
            provider,
            workspaces,
            RetryingStore(logs, patience),
            config.idle_evict_s,
            secrets=secrets(environment, config),
            anthropic_api_key=environment.anthropic_key,
        ) as sessions,
    ):
        yield sessions, runs


@asynccontextmanager
async def _sharing(url: str) -> AsyncIterator[RateBudget | None]:
    """What the replicas over the store of a URL share of Slack's limits; `None`: there are none."""
    budget = await open_budget(url)
    if budget is None:
        yield None
        return
    try:
        yield budget
    finally:
        await _close(budget)


def _passing_s() -> float:
    """Seconds that pass by, also while the machine sleeps where that can be told."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


@asynccontextmanager
async def _stores(url: str) -> AsyncIterator[tuple[RunStore, LogStore]]:
    """The stores of a URL. At the end they are closed side by side, for one that is away holds up neither for long."""
    async with AsyncExitStack() as opened:
        runs = await open_run_store(url)
        opened.push_async_callback(runs.aclose)
        logs = await open_store(url)
        opened.pop_all()
    try:
        yield runs, logs
    finally:
        await _close(runs, logs)


async def _close(*stores: _Closable) -> None:
    try:
        async with asyncio.timeout(_CLOSED_WITHIN_S):
            await asyncio.gather(*(store.aclose() for store in stores))
    except TimeoutError:
        log.warning("store.not_closed")


@asynccontextmanager
async def _until_signalled(ends_within_s: float) -> AsyncIterator[asyncio.Event]:
    """An event that SIGINT and SIGTERM set. While the body does not wait for it yet, they end it there.

    Asked a second time, the process ends at once; and whatever hangs, so many seconds after the first time.
    """
    ended, loop, body = _Ended(), asyncio.get_running_loop(), asyncio.current_task()

    def end() -> None:
        ended.set()
        if not ended.awaited and body is not None:
            body.cancel()

    def on_signal(_number: int, _frame: FrameType | None) -> None:
        _listen(_AT_ONCE)
        last_resort = threading.Timer(ends_within_s, _cut)
        last_resort.daemon = True
        last_resort.start()
        loop.call_soon_threadsafe(end)

    # Not the loop's own handlers: those wait for a tool that blocks the loop.
    before = _listen(dict.fromkeys(_AT_ONCE, on_signal))
    try:
        yield ended
    except asyncio.CancelledError:
        if not ended.is_set():
            raise
        log.info("service.stopped_at_start")
    finally:
        if not ended.is_set():
            _listen(before)


def _listen(handlers: Mapping[signal.Signals, Handler]) -> dict[signal.Signals, Handler]:
    """Have these called on signals; returns those from before."""
    return {number: signal.signal(number, handler) for number, handler in handlers.items()}


def _cut() -> None:
    log.critical("service.cut")
    os._exit(1)


class _Ended(asyncio.Event):
    awaited = False

    async def wait(self) -> Literal[True]:
        self.awaited = True
        return await super().wait()
