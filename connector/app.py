"""The connection to Slack: a transport for events, the Web API for calls, and the parts of each workspace."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import aiohttp
import structlog
from slack_sdk.web.async_client import AsyncWebClient

from connector.conversations.worker_pool import WorkerPool
from connector.inbound.admission import Admitter
from connector.inbound.dispatcher import Dispatcher
from connector.inbound.http_server import HttpServer
from connector.inbound.intake import Intake
from connector.inbound.socket_mode import SocketMode, address_source
from connector.inbound.unattended import Unattended
from connector.observer import Observer
from connector.routing import Router
from connector.runs.background_tasks import CALLS_LATE_S, BackgroundTasks
from connector.runs.home import HomeSources, HomeTabs
from connector.runs.run_slots import RunSlots
from connector.runs.workspace import WorkspaceContext
from connector.setup import (
    ConnectionRefused,
    HttpTransport,
    NotInstalled,
    SocketTransport,
    first_address,
    preflight,
)
from connector.slack_api.channels import ChannelTopics
from connector.slack_api.client import SlackClient
from connector.slack_api.errors import SlackCallFailed, error_boundary
from connector.slack_api.rate_limiter import CallSlot, RateLimiter
from connector.slack_api.received import LIMITED, ReceivedHistory
from connector.workspaces import InstalledWorkspaces, Workspace, WorkspaceSettings

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
    from contextlib import AbstractAsyncContextManager

    from connector.inbound.access_policy import AccessPolicy
    from connector.inbound.dispatcher import AddListeners, Receive
    from connector.protocols import (
        ConversationHistory,
        Memory,
        PersonalRecords,
        RateBudget,
        Recipes,
        RunService,
        SessionManager,
        Workers,
    )
    from connector.runs.run_slots import RunLimits
    from connector.schedules import Schedules
    from connector.setup import Identity, Installation, Installations, SlackCredentials
    from connector.slack_api.received import ReceivedMessages

    OpenClient = Callable[[str | None], AsyncWebClient]
    OpenTransport = Callable[[Receive], AbstractAsyncContextManager[SocketMode | HttpServer]]
    Joined = Callable[[Unattended], AbstractAsyncContextManager[None]]
    # The open workspaces by their ids, the receiver of payloads, and what suspends the runs.
    _Served = tuple[Mapping[str, Workspace], Receive, Callable[[], None]]

log = structlog.get_logger(__name__)

# Slack events processed concurrently. Further ones wait in the transport.
_MAX_CONCURRENT_EVENTS = 100
# How often a bot's token is read again: another process may have renewed it.
_TOKEN_EVERY_S = 60.0


@dataclass(frozen=True, slots=True)
class Connection:
    """The connection to Slack, for reloads, health checks and metrics; `workspaces` are the open ones by their ids."""

    transport: SocketMode | HttpServer
    slots: RunSlots
    workspaces: Mapping[str, Workspace]
    settings_of: Callable[[str], WorkspaceSettings]

    def configure(self, limits: RunLimits) -> None:
        """Replace the limits, and the settings of each workspace by those that `settings_of` now returns."""
        self.slots.configure(limits)
        for team, workspace in self.workspaces.items():
            workspace.configure(self.settings_of(team))


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectorParts:
    """The dependencies and the settings of the connector; a part that is `None` offers nothing.

    Args:
        settings_of: returns the settings of a workspace by its id.
        installations: the workspaces to serve; `None`: only that of the bot's token.
        budget: the rate-limit budget shared with other processes.
        rate_scale: a factor on Slack's rate limits.
        calls_late_s: how long the calls of a killed process may still reach Slack.
        limits: bounds concurrent runs.
        tools_grace_s: how long of `shutdown_grace_s` running tools may continue; `None`: all but the last two seconds.
        listeners: add further Bolt listeners.
        observer: gets reports of runs, stops and calls.
        history: branches the logs of conversations for commands.
        records: are kept of each person; without them, there is no Home tab.
        workers: the workers of threads.
        recipes: the recipes that people can run in threads.
        schedules: the schedules that people make.
        memory: notes that are kept for each channel.
        received: keeps the messages of channels, for an app whose reading of channels Slack limits.
        joined: a context of it is open while its workspace is.
    """

    sessions: SessionManager
    runs: RunService
    settings_of: Callable[[str], WorkspaceSettings]
    installations: Installations | None = None
    shutdown_grace_s: float = 10.0
    budget: RateBudget | None = None
    rate_scale: float = 1.0
    calls_late_s: float = CALLS_LATE_S
    limits: RunLimits | None = None
    tools_grace_s: float | None = None
    listeners: Sequence[AddListeners] = ()
    observer: Observer | None = None
    history: ConversationHistory | None = None
    records: PersonalRecords | None = None
    workers: Workers | None = None
    recipes: Recipes | None = None
    schedules: Schedules | None = None
    memory: Memory | None = None
    received: ReceivedMessages | None = None
    joined: Joined = lambda _: nullcontext()


@dataclass(frozen=True, slots=True)
class _Shared:
    """The parts of a connection that all its workspaces share."""

    parts: ConnectorParts
    access: SlackCredentials
    http: aiohttp.ClientSession
    slots: RunSlots

    def open_client(self, token: str | None) -> AsyncWebClient:
        # The SDK's own retries would send a post twice after a dropped connection.
        return AsyncWebClient(token, self.access.api_url, session=self.http, retry_handlers=[])


@asynccontextmanager
async def connected(access: SlackCredentials, parts: ConnectorParts) -> AsyncIterator[Connection]:
    """Answer people in one workspace, or in those of the installations, while the context is open.

    On exit, accept no more events and hand active runs over within `shutdown_grace_s`.

    Raises:
        ConnectionRefused: at entry, if a token is wrong, Slack is unreachable, or a function of `listeners` fails;
            later, if Slack rejects the app's credentials.
    """
    # A timeout keeps one unanswered call from blocking the others for minutes. The rate limiter bounds concurrency, not
    # the connection pool: a call that waits for a connection would leave long after its lease was confirmed.
    timeout, connector = aiohttp.ClientTimeout(total=CALLS_LATE_S), aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(timeout=timeout, connector=connector) as http, RateLimiter("") as scheduler:
        shared = _Shared(parts, access, http, RunSlots(parts.limits))
        served = _one(shared) if parts.installations is None else _installed(shared, parts.installations)
        async with served as (workspaces, receive, suspend):
            open_transport = await _transport(access, http, shared.open_client, scheduler)
            async with open_transport(receive) as transport:
                log.info("slack.connected", teams=sorted(workspaces))
                try:
                    yield Connection(transport, shared.slots, workspaces, parts.settings_of)
                finally:
                    suspend()


@asynccontextmanager
async def _one(shared: _Shared) -> AsyncIterator[_Served]:
    """Serve the workspace of the bot's token.

    Raises:
        ConnectionRefused: as `connected`.
    """
    client = shared.open_client(shared.access.bot_token)
    identity = await _identity(shared, client)
    async with _workspace(shared, client, identity) as workspace, _open(workspace.closed):
        yield {identity.team: workspace}, workspace.dispatcher.receive, workspace.worker_pool.suspend


@asynccontextmanager
async def _installed(shared: _Shared, installations: Installations) -> AsyncIterator[_Served]:
    """Serve the workspaces of the installations."""

    async def token(installation: Installation) -> str:
        try:
            return await installations.token(installation.id)
        except NotInstalled as e:
            raise ConnectionRefused("The app is no longer installed there.") from e

    async def teams_of(installation: Installation) -> list[str]:
        found: list[str] = []
        async with RateLimiter(installation.id) as scheduler:
            client, arguments = SlackClient(shared.open_client(await token(installation)), scheduler), {"limit": "200"}
            try:
                while True:
                    page = await client.call("auth.teams.list", arguments, CallSlot())
                    found += (str(each["id"]) for each in page["teams"])
                    arguments["cursor"] = (page.get("response_metadata") or {}).get("next_cursor") or ""
                    if not arguments["cursor"]:
                        return found
            except SlackCallFailed as e:
                problem = f"Slack does not list the workspaces of the organisation {installation.id} ({e})."
                raise ConnectionRefused(problem, e.error) from e

    @asynccontextmanager
    async def open_workspace(installation: Installation, team: str) -> AsyncIterator[Workspace]:
        client = shared.open_client(await token(installation))
        identity = replace(await _identity(shared, client, installation.id), team=team)
        async with _workspace(shared, client, identity) as workspace:
            keeping = asyncio.create_task(keep_token(installation, client, workspace))
            try:
                yield workspace
            finally:
                keeping.cancel()
                await asyncio.wait((keeping,))

    async def keep_token(installation: Installation, client: AsyncWebClient, workspace: Workspace) -> None:
        while True:
            await asyncio.sleep(_TOKEN_EVERY_S)
            with error_boundary("installation.token_not_read", installation=installation.id), suppress(NotInstalled):
                client.token = await installations.token(installation.id)
                workspace.dispatcher.use_token(client.token)

    async with InstalledWorkspaces(installations, open_workspace, teams_of) as workspaces:
        yield workspaces.open, workspaces.receive, workspaces.suspend


async def _identity(shared: _Shared, client: AsyncWebClient, installation_id: str = "") -> Identity:
    """Check the token of a client, and return who the bot is; see `preflight`.

    Raises:
        ConnectionRefused: Slack does not accept the token, or cannot be reached.
    """
    async with RateLimiter("") as scheduler:
        return await preflight(shared.access.api_url, SlackClient(client, scheduler), installation_id)


@asynccontextmanager
async def _workspace(shared: _Shared, web_client: AsyncWebClient, identity: Identity) -> AsyncIterator[Workspace]:
    """Serve one workspace while the context is open.

    Raises:
        ConnectionRefused: a function of the listeners fails; on exit: Slack has rejected the bot's token.
    """
    parts, team = shared.parts, identity.team
    settings, runs, observer = parts.settings_of(team), parts.runs, parts.observer or Observer()
    special = {} if parts.received is None else LIMITED
    async with RateLimiter(team, parts.budget, parts.rate_scale, special) as scheduler:
        client = SlackClient(web_client, scheduler, observer)
        received = None
        if parts.received is not None:
            client.history = received = ReceivedHistory(client, parts.received, team, identity.user)
        router = Router(
            settings.instances,
            runs,
            team,
            identity.user,
            settings.channels,
            ChannelTopics(client),
            settings.options.bots,
            identity.bot_id,
            settings.elsewhere,
        )
        async with BackgroundTasks(client, parts.calls_late_s, options=settings.options) as background:
            admitter = Admitter(
                background,
                router,
                runs,
                identity.user,
                settings.policy,
                enterprise=identity.enterprise,
                observer=observer,
                workers=parts.workers,
            )
            home = None
            if parts.records is not None:
                sources = HomeSources(runs, router, parts.records, parts.history, identity.url, parts.schedules)
                home = HomeTabs(background, sources)
            context = WorkspaceContext(
                runs,
                parts.sessions,
                background,
                router,
                admitter.catch_up,
                admitter.stop_in_dm,
                admitter.admit_asked,
                shared.slots,
                observer,
                parts.history,
                parts.records,
                home,
                parts.workers,
                parts.recipes,
                parts.schedules,
                parts.memory,
            )
            unattended = Unattended(runs, router, admitter.policy, background)
            async with (
                parts.joined(unattended),
                WorkerPool(context, runs, parts.shutdown_grace_s, parts.tools_grace_s) as worker_pool,
            ):
                intake = Intake(context, runs, worker_pool, admitter, identity.user)
                keep = None if received is None else partial(_keep, received, admitter.policy)
                dispatcher = Dispatcher(shared.open_client(None), web_client.token or "", identity, intake, keep)
                await dispatcher.add_listeners(parts.listeners)
                log.info("workspace.open", team=team, bot_user=identity.user)
                serving = scheduler, worker_pool, router, admitter, background, unattended
                yield Workspace(dispatcher, *serving, client.closed)


async def _keep(received: ReceivedHistory, policy: AccessPolicy, event: dict[str, Any]) -> None:
    """Store the message of an event, in channels in which the bot answers.

    Raises:
        StoreError: it cannot be stored.
    """
    channels = policy.rules.channels
    if channels is None or event.get("channel") in channels:
        with suppress(ValueError):  # a malformed event, which is reported where it is handled
            await received.receive(event)


async def _transport(
    access: SlackCredentials, http: aiohttp.ClientSession, open_client: OpenClient, scheduler: RateLimiter
) -> OpenTransport:
    """Return a function that opens the transport. Socket Mode requests its first address here, which tests the token.

    Raises:
        ConnectionRefused: the app's token is wrong, or Slack is unreachable.
    """
    slots = asyncio.Semaphore(_MAX_CONCURRENT_EVENTS)
    match access.transport:
        case HttpTransport() as transport:
            return lambda receive: HttpServer(transport, receive, slots)
        case SocketTransport(app_token):
            app_client = open_client(app_token)
            client = SlackClient(app_client, scheduler)
            address = address_source(client, await first_address(access.api_url, client))
            return lambda receive: SocketMode(http, address, receive, slots, proxy=app_client.proxy)


@asynccontextmanager
async def _open(closed: Callable[[], Coroutine[Any, Any, SlackCallFailed]]) -> AsyncIterator[None]:
    """Run the body until Slack rejects the app's credentials.

    Raises:
        ConnectionRefused: Slack has rejected them.
    """
    body = asyncio.current_task()
    refused: list[SlackCallFailed] = []

    async def watch() -> None:
        refused.append(await closed())
        if body is not None:
            body.cancel()

    watching = asyncio.create_task(watch())
    try:
        yield
    except asyncio.CancelledError:
        if not refused or body is None or body.uncancel():
            raise
    finally:
        watching.cancel()
    if refused:
        log.critical("slack.access_revoked", error=str(refused[0]))
        raise ConnectionRefused(
            f"Slack no longer accepts calls of this app ({refused[0]}). Check the app's tokens and scopes, then "
            "restart the service: interrupted runs resume."
        )
