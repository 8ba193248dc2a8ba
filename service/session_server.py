"""The composition root of `amplifier-slack sessions serve`: runs agents for the services that connect."""

from __future__ import annotations

import asyncio
from contextlib import aclosing, asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any

import structlog

from orchestrator_interactive.storage.errors import StoreError, StoreReplaced
from orchestrator_interactive.storage.retry import StoreRetryPolicy, retrying
from service.administration.reload import reloading
from service.config.config import store_of
from service.config.credentials import secrets
from service.logging import configure_logging
from service.observe import observing
from service.sessions.manager import InProcessSessionManager
from service.sessions.people import AlwaysRules
from service.sessions.preflight import preflight
from service.sessions.remote.listening import listening
from service.sessions.remote.server import RemoteHost
from service.sessions.workspaces import Workspaces
from service.signals import on_hangup, until_signalled
from service.store import inspect_run_store, open_log_store
from service.store.maintenance import places, watching_disks

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from service.administration.reload import ConfigChange, ConfigFile
    from service.config.config import Environment, ServiceConfig
    from service.observe import Observation
    from service.store.base import RunStore

log = structlog.get_logger(__name__)

# Seconds of the shutdown grace that are reserved after the runs have ended, at most half of it.
_AFTER_RUNS_S = 2.0
_LOOK_EVERY_S = 1.0


async def serve_sessions(config: ServiceConfig, environment: Environment, file: ConfigFile) -> None:
    """Run agents for services until SIGINT or SIGTERM, then suspend the runs within `shutdown_grace_s`.

    SIGHUP reloads the file.

    Raises:
        ConfigError: a module, an address or a certificate cannot be used.
        StoreError: the conversation store cannot be used, or its file was removed or replaced.
    """
    await preflight(config, environment)
    free_mb: dict[str, int] = {}
    observe = config.observe.with_listen(environment.amplifier_slack_observe)
    hidden = dict.fromkeys(secrets(environment, config))
    names, grace_s = list(config.instances), config.shutdown_grace_s
    host = RemoteHost()
    async with (
        until_signalled(grace_s) as ended,
        on_hangup() as reload_asked,
        observing(observe, names, config.workspace.reserve_mb, free_mb, hidden) as observation,
        _sessions(config, environment, free_mb, observation, host) as (sessions, store),
        listening(config.sessions, sessions, host, max(grace_s - _AFTER_RUNS_S, grace_s / 2)),
    ):

        def apply(change: ConfigChange) -> None:
            hidden.update(dict.fromkeys(secrets(environment, change.config)))
            configure_logging(change.config.log, tuple(hidden))
            sessions.configure(change.config.instances, tuple(hidden))

        async with reloading(file, config, environment, reload_asked, apply=apply, record=_unaudited):
            log.info("sessions.ready", instances=names, default_provider=environment.default_provider)
            await _until_ended(ended, store)
        log.info("sessions.stopping")


@asynccontextmanager
async def _sessions(
    config: ServiceConfig,
    environment: Environment,
    free_mb: dict[str, int],
    observation: Observation,
    host: RemoteHost,
) -> AsyncIterator[tuple[InProcessSessionManager, RunStore]]:
    """Open the sessions on the store of the service, whose leases this process does not touch."""
    url, retry = store_of(config, environment), StoreRetryPolicy()
    async with (
        aclosing(await inspect_run_store(url)) as store,
        aclosing(await open_log_store(url)) as logs,
        watching_disks(places(config.workspace, url), config.workspace.reserve_mb, free_mb),
        InProcessSessionManager(
            config.instances,
            environment.default_provider,
            Workspaces(config.workspace),
            retrying(logs, retry),
            config.idle_evict_s,
            secrets=secrets(environment, config),
            provider_keys=environment.provider_keys,
            host=host,
            observe=observation.sessions,
            rules=AlwaysRules(retrying(store, retry)),
        ) as sessions,
    ):
        observation.health.store, observation.health.retry = store, retry
        yield sessions, store


async def _until_ended(ended: asyncio.Event, store: RunStore) -> None:
    """Wait for the end of the process.

    Raises:
        StoreReplaced: the open store was removed or replaced.
    """
    while True:
        with suppress(TimeoutError):
            async with asyncio.timeout(_LOOK_EVERY_S):
                await ended.wait()
                return
        try:
            async with asyncio.timeout(_LOOK_EVERY_S):
                await store.thread_of("health:check:0")
        except StoreReplaced as gone:
            log.critical("store.replaced", problem=str(gone))
            raise
        except (StoreError, TimeoutError):  # those who use it report it
            continue


def _unaudited(*_event: Any, **_fields: Any) -> None:
    """Record nothing: the audit log is that of the service."""
