"""The composition root: connects Slack to the agents."""

from __future__ import annotations

import asyncio
import gc
import socket
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from importlib.metadata import version
from typing import TYPE_CHECKING
from uuid import uuid4

import aiohttp
import structlog
from slack_sdk.web.async_client import AsyncWebClient

from connector import (
    AccessRules,
    BotRules,
    ChannelRules,
    FileLimits,
    Instance,
    Persona,
    RunLimits,
    SlackOptions,
)
from connector.app import ConnectorParts, connected
from connector.observer import Observer
from connector.workspaces import WorkspaceSettings
from orchestrator_interactive.storage.retry import StoreRetryPolicy, retrying
from service.administration.audit import AuditObserver, audit_log
from service.administration.reload import file_digest, reloading
from service.administration.retention import Retention
from service.config.config import store_of
from service.config.config_errors import ConfigError
from service.config.credentials import api_url, client_of, secrets, slack_access
from service.config.sessions import require_grpc
from service.config.slack import command_of, pairs_of
from service.connections.server import serving_connections
from service.connections.stored import StoredConnections
from service.garbage import collecting_garbage
from service.heartbeats import ThreadedHeartbeats
from service.logging import configure_logging
from service.notes import Notes
from service.observe import observing
from service.received import MOST_DAYS, StoredMessages
from service.runs import StoredRuns
from service.schedules.scheduler import firing_schedules
from service.schedules.stored import StoredSchedules
from service.sessions.budgets import StoredBudgets
from service.sessions.host import MODEL, NOTIFY, LocalHost
from service.sessions.manager import InProcessSessionManager
from service.sessions.memory import ChannelMemory
from service.sessions.people import AlwaysRules
from service.sessions.personal import StoredPersonalRecords
from service.sessions.preflight import preflight
from service.sessions.recipes import ThreadRecipes
from service.sessions.slack_tools import SlackTools
from service.sessions.workers import StoredWorkers
from service.sessions.workspaces import Workspaces
from service.signals import on_hangup, until_signalled
from service.store import inspect_run_store, open_budget, open_log_store, open_run_store
from service.store.base import boottime_s, thread_of
from service.store.maintenance import expiring, lines, places, watching_disks
from service.triggers import serving_triggers
from service.vault import Vault, vault_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Mapping
    from typing import Any

    from connector import SlackCredentials
    from connector.app import Connection
    from connector.inbound.unattended import Unattended
    from connector.protocols import RateBudget
    from orchestrator_interactive.interactions.records import Key
    from orchestrator_interactive.interactions.stores import LogStore
    from service.administration.reload import ConfigChange, ConfigFile
    from service.config.config import Environment, ServiceConfig
    from service.installations.pages import InstallationPages
    from service.installations.stored import StoredInstallations
    from service.observe import Observation
    from service.sessions.host import HostFunction
    from service.sessions.remote.client import GrpcSessionManager
    from service.store.base import RunStore, SharedBudget

    Sessions = InProcessSessionManager | GrpcSessionManager

log = structlog.get_logger(__name__)

# Seconds of the shutdown grace that are reserved after the runs have ended, at most half of it: the time limits for
# Slack calls in the background, sessions, leases and stores add up to 1.5 s. The second is the limit for the stores.
_AFTER_RUNS_S = 2.0
_CLOSED_WITHIN_S = 0.3
# Time limit of a request to Slack that installs the app or renews a token.
_SLACK_WITHIN_S = 10.0
# A process stops taking over conversations when it owns this many more than its limit of concurrent runs.
_OWNED_BESIDE_RUNS = 300
# Most characters of the machine's name in the name of a process.
_MACHINE_CHARS = 40


async def serve(config: ServiceConfig, environment: Environment, file: ConfigFile) -> None:
    """Serve Slack until SIGINT or SIGTERM, then shut down within `shutdown_grace_s`. SIGHUP reloads the file.

    Raises:
        ConfigError: a token or a module is missing or invalid.
        StoreError: the conversation store cannot be used.
        ConnectionRefused: Slack refuses the connection.
    """
    free_mb: dict[str, int] = {}
    observe = config.observe.with_listen(environment.amplifier_slack_observe)
    access = await _checked(config, environment, free_mb)
    gc.disable()  # objects created during start-up are long-lived; collecting them is wasted time
    current = [config]  # a reload replaces it
    names = list(config.instances)  # a reload changes them
    url = store_of(config, environment)
    grace_s = config.shutdown_grace_s

    def settings_of(team: str) -> WorkspaceSettings:
        return _settings(current[0], team)

    def slack_of(team: str | None) -> Unattended | None:
        workspaces = connection.workspaces
        found = workspaces.get(team) if team is not None else next(iter(workspaces.values()), None)
        return None if found is None else found.unattended

    async with (
        until_signalled(grace_s) as ended,
        on_hangup() as reload_asked,
        observing(
            observe,
            names,
            config.workspace.reserve_mb,
            free_mb,
            hidden := dict.fromkeys(secrets(environment, config)),
        ) as observation,
        _audited(config, file, observation) as (record, observer),
        _working(config, environment, url, free_mb, observation, observer, record, names) as parts,
        connected(
            access,
            ConnectorParts(
                sessions=parts.sessions,
                runs=parts.runs,
                settings_of=settings_of,
                installations=parts.installations,
                shutdown_grace_s=max(grace_s - _AFTER_RUNS_S, grace_s / 2),
                budget=parts.budget,
                rate_scale=config.slack.rate_scale,
                limits=_limits(config),
                tools_grace_s=config.shutdown_tools_s,
                listeners=config.slack.listeners,
                observer=observer,
                history=parts.sessions.history,
                records=parts.records,
                workers=parts.workers,
                recipes=(recipes := ThreadRecipes(config.instances, parts.workers)),
                schedules=parts.schedules,
                memory=parts.memory,
                received=parts.received,
                joined=parts.of_workspace,
            ),
        ) as connection,
        serving_triggers(config.triggers, slack_of, parts.budget),
        serving_connections(config.connections, parts.connections, slack_of, parts.pages),
    ):
        live = _LiveParts(environment, parts.sessions, names, parts.retention, connection, recipes, hidden, current)
        observation.health.connection = connection
        async with (
            collecting_garbage(),
            reloading(file, config, environment, reload_asked, apply=live.apply, record=record),
        ):
            log.info("service.ready", instances=names, default_provider=environment.default_provider)
            await ended.wait()
        observation.health.is_stopping = True
        log.info("service.stopping")


@dataclass(frozen=True, slots=True)
class _LiveParts:
    """The parts of a running service that a reload changes.

    `hidden` are all secrets so far; `current` has the configuration.
    """

    environment: Environment
    sessions: Sessions
    names: list[str]
    retention: Retention
    connection: Connection
    recipes: ThreadRecipes
    hidden: dict[str, None]
    current: list[ServiceConfig]

    def apply(self, change: ConfigChange) -> None:
        self.hidden.update(dict.fromkeys(secrets(self.environment, change.config)))
        configure_logging(change.config.log, tuple(self.hidden))
        self.sessions.configure(change.config.instances, tuple(self.hidden))
        self.recipes.instances = change.config.instances
        self.names[:] = change.config.instances
        self.retention.config = change.config.retention
        self.current[0] = change.config
        self.connection.configure(_limits(change.config))


def _limits(config: ServiceConfig) -> RunLimits:
    limits = RunLimits(**config.limits.model_dump())
    if config.installations.is_on and limits.runs_per_workspace is None:  # so that no workspace takes all
        limits = replace(limits, runs_per_workspace=max(1, limits.runs // 2))
    return limits


def _settings(config: ServiceConfig, team: str) -> WorkspaceSettings:
    """Return the settings of a workspace."""
    rules, slack = config.installations.settings.get(team), config.slack
    names: Iterable[str] = config.instances
    if rules is not None:
        slack, names = rules.over(slack), rules.instances or names
    return WorkspaceSettings(
        [
            Instance(
                name,
                Persona(instance.persona.name, instance.persona.emoji),
                instance.participation,
                pairs_of(instance.suggested_prompts),
                instance.description,
                tuple(each.module.removeprefix("tool-") for each in instance.tools),
                instance.models,
            )
            for name, instance in ((name, config.instances[name]) for name in names)
        ],
        {
            channel: ChannelRules(rules.instance, rules.participation, rules.filter)
            for channel, rules in config.channels.items()
        },
        AccessRules(slack.users, slack.channels, slack.external, slack.guests == "allow"),
        SlackOptions(
            slack.stop_reaction,
            slack.status_interval_s,
            dm_threads=slack.dm == "threads",
            suggested_prompts=pairs_of(slack.suggested_prompts),
            bots=BotRules(slack.bots, slack.bot_exchanges),
            command=command_of(config.slack, next(iter(config.instances))),
            feedback=slack.feedback,
            stream=slack.answers == "stream",
            canvas=slack.long_answers == "canvas",
            cards=slack.status == "cards",
            files=FileLimits(slack.max_file_mb * 1_000_000, slack.file_timeout_s),
        ),
        frozenset(map(str.lower, config.instances.keys() - set(names))),
    )


async def _checked(config: ServiceConfig, environment: Environment, free_mb: dict[str, int]) -> SlackCredentials:
    """Check the modules and the tokens; the error names everything that is missing."""
    try:
        access = slack_access(
            config.slack, environment, lambda: lines(free_mb), has_installations=config.installations.is_on
        )
    except ConfigError as e:
        await preflight(config, environment, str(e).splitlines())
        raise
    await preflight(config, environment)
    return access


@asynccontextmanager
async def _audited(
    config: ServiceConfig, file: ConfigFile, observation: Observation
) -> AsyncIterator[tuple[Callable[..., None], Observer | None]]:
    """Open the audit log, if there is one; yield its `record`, and the observer of the connector, which calls it."""
    async with audit_log(config.audit) as record:
        record("service.started", version=version("amplifier-slack"), digest=file_digest(file.path))
        observer = observation.service
        yield record, observer if config.audit is None else AuditObserver(record, observer or Observer())


@dataclass(frozen=True, slots=True)
class _Parts:
    """The parts of a service on its store: the agents' sessions, and everything that they and the connector share."""

    sessions: Sessions
    runs: StoredRuns
    budget: RateBudget | None
    retention: Retention
    records: StoredPersonalRecords
    workers: StoredWorkers
    schedules: StoredSchedules
    memory: ChannelMemory
    connections: StoredConnections
    slack_tools: SlackTools
    installations: StoredInstallations | None
    pages: InstallationPages | None
    received: StoredMessages | None

    @asynccontextmanager
    async def of_workspace(self, slack: Unattended) -> AsyncIterator[None]:
        """Fire the schedules of an open workspace, and let `tool-slack` use it."""
        with self.slack_tools.connected(slack):
            async with firing_schedules(self.schedules, slack):
                yield


@asynccontextmanager
async def _working(  # noqa: PLR0913, PLR0917 - the parts of a service
    config: ServiceConfig,
    environment: Environment,
    url: str,
    free_mb: dict[str, int],
    observation: Observation,
    observer: Observer | None,
    record: Callable[..., None],
    names: list[str],
) -> AsyncIterator[_Parts]:
    """Open the sessions, runs and rate budget on the store at a URL. Closing them takes bounded time.

    `names` are those of the instances; they may change.
    """
    retry, workspaces, owner = StoreRetryPolicy(), Workspaces(config.workspace), _owner()
    vault = vault_of(config.connections.keys)
    is_kept = config.slack.history == "events" or (config.slack.history == "auto" and config.installations.is_on)
    most_owned = config.limits.runs + _OWNED_BESIDE_RUNS
    async with (
        _stores(url) as (store, logs, budget),
        watching_disks(places(config.workspace, url), config.workspace.reserve_mb, free_mb),
        expiring(
            store,
            logs,
            retention := Retention(config.retention, store, logs, workspaces, record),
            messages := StoredMessages(store, retry, lambda channel: retention.days_of(channel) or MOST_DAYS),
        ),
        StoredRuns(
            *(store, owner, config.lease_s, retry, boottime_s, most_owned, observer),
            ThreadedHeartbeats(lambda: inspect_run_store(url), owner, boottime_s) if budget is not None else None,
        ) as runs,
        _sessions(
            config,
            environment,
            workspaces,
            retrying(logs, retry),
            LocalHost(
                {
                    MODEL: _model_of(runs),
                    NOTIFY: (notes := Notes(runs.admit, names)).of_session,
                    **(workers := StoredWorkers(documents := retrying(store, retry), runs)).functions,
                    **(schedules := StoredSchedules(documents)).functions,
                    **(slack_tools := SlackTools()).functions,
                    **(memory := ChannelMemory(documents)).functions,
                    **StoredBudgets(documents, runs.admit).functions,
                    **(connections := StoredConnections(documents, vault, config.connections.public_url)).functions,
                }
            ),
            observation,
            rules := AlwaysRules(documents),
        ) as sessions,
    ):
        observation.health.store, observation.health.retry = store, retry
        with notes.offered():
            records = StoredPersonalRecords(documents, rules, record)
            more = sessions, runs, budget, retention, records, workers, schedules, memory, connections, slack_tools
            async with _installing(config, environment, documents, vault, names) as (installations, pages):
                yield _Parts(*more, installations, pages, messages if is_kept else None)


@asynccontextmanager
async def _installing(
    config: ServiceConfig, environment: Environment, store: RunStore, vault: Vault | None, names: list[str]
) -> AsyncIterator[tuple[StoredInstallations | None, InstallationPages | None]]:
    """Create the store of installations and their pages; `None` for one workspace, whose token is in the environment.

    Raises:
        ConfigError: the credentials of the app are missing.
    """
    if not config.installations.is_on or vault is None:
        yield None, None
        return
    from service.installations.pages import InstallationPages  # noqa: PLC0415 - most services have one workspace
    from service.installations.stored import StoredInstallations, StoredStates  # noqa: PLC0415

    client = client_of(environment)
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=_SLACK_WITHIN_S)) as http:
        web = AsyncWebClient(base_url=api_url(environment), session=http)
        installations = StoredInstallations(store, vault, client, web)
        states, public_url = StoredStates(store, vault), config.connections.public_url
        pages = InstallationPages(
            config.installations,
            lambda: [config.instances[name].persona.name for name in names if name in config.instances],
            client,
            public_url,
            web,
            installations,
            states,
        )
        try:
            yield installations, pages
        finally:
            await installations.drained()


def _model_of(runs: StoredRuns) -> HostFunction:
    """Return the function by which a session learns which model people have chosen in its thread."""

    async def model(key: Key, _: Mapping[str, Any]) -> dict[str, str]:
        return {"model": (await runs.thread_of(thread_of(key.conversation_id))).model}

    return model


def _sessions(  # noqa: PLR0913, PLR0917 - the parts of a service
    config: ServiceConfig,
    environment: Environment,
    workspaces: Workspaces,
    logs: LogStore,
    host: LocalHost,
    observation: Observation,
    rules: AlwaysRules,
) -> Sessions:
    """Create the sessions, in this process or in another one.

    Raises:
        ConfigError: gRPC is not installed, or a certificate cannot be used.
    """
    if config.sessions.is_remote:
        require_grpc()
        from service.sessions.remote.client import connected_sessions  # noqa: PLC0415 - most services do not need gRPC

        remote = connected_sessions(config.sessions, config.instances, logs, host)
        observation.health.are_agents_there = lambda: remote.is_attached
        return remote
    return InProcessSessionManager(
        config.instances,
        environment.default_provider,
        workspaces,
        logs,
        config.idle_evict_s,
        secrets=secrets(environment, config),
        provider_keys=environment.provider_keys,
        host=host,
        observe=observation.sessions,
        rules=rules,
    )


def _owner() -> str:
    """Return a name for this process in the store: unique, and with the machine's name for operators."""
    machine = "".join(char for char in socket.gethostname() if char.isalnum() or char in "-.")[:_MACHINE_CHARS]
    return f"{machine}-{uuid4().hex}"


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
