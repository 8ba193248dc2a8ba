"""The connection to one Slack workspace: a transport for events, the Web API for calls."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

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
from connector.protocols import SlackOptions
from connector.routing import Router
from connector.runs.background_tasks import CALLS_LATE_S, BackgroundTasks
from connector.runs.home import HomeSources, HomeTabs
from connector.runs.run_slots import RunSlots
from connector.runs.workspace import WorkspaceContext
from connector.setup import ConnectionRefused, HttpTransport, SocketTransport, first_address, preflight
from connector.slack_api.channels import ChannelTopics
from connector.slack_api.client import SlackClient
from connector.slack_api.rate_limiter import RateLimiter

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping, Sequence
    from contextlib import AbstractAsyncContextManager

    from connector.inbound.access_policy import AccessRules
    from connector.inbound.dispatcher import AddListeners, Receive
    from connector.protocols import (
        ChannelRules,
        ConversationHistory,
        Instance,
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
    from connector.setup import SlackCredentials
    from connector.slack_api.errors import SlackCallFailed

    OpenClient = Callable[[str | None], AsyncWebClient]
    OpenTransport = Callable[[Receive], AbstractAsyncContextManager[SocketMode | HttpServer]]

log = structlog.get_logger(__name__)

# Slack events processed concurrently. Further ones wait in the transport.
_MAX_CONCURRENT_EVENTS = 100


@dataclass(frozen=True, slots=True)
class Connection:
    """The connection to a workspace, for reloads, health checks and metrics."""

    transport: SocketMode | HttpServer
    rate_limiter: RateLimiter
    slots: RunSlots
    worker_pool: WorkerPool
    router: Router
    admitter: Admitter
    background: BackgroundTasks
    unattended: Unattended

    def configure(
        self,
        instances: Sequence[Instance],
        channels: Mapping[str, ChannelRules],
        policy: AccessRules,
        limits: RunLimits,
        options: SlackOptions,
    ) -> None:
        """Replace settings; see `connected`. An active run keeps its instance."""
        self.router.configure(instances, channels, options.bots)
        self.admitter.policy.rules = policy
        self.slots.configure(limits)
        self.background.options = options


@asynccontextmanager
async def connected(  # noqa: PLR0913 - the composition root of the connector
    access: SlackCredentials,
    instances: Sequence[Instance],
    sessions: SessionManager,
    runs: RunService,
    *,
    shutdown_grace_s: float = 10.0,
    policy: AccessRules | None = None,
    budget: RateBudget | None = None,
    rate_scale: float = 1.0,
    calls_late_s: float = CALLS_LATE_S,
    limits: RunLimits | None = None,
    options: SlackOptions = SlackOptions(),  # noqa: B008 - it is frozen
    channels: Mapping[str, ChannelRules] | None = None,
    tools_grace_s: float | None = None,
    listeners: Sequence[AddListeners] = (),
    observer: Observer | None = None,
    history: ConversationHistory | None = None,
    records: PersonalRecords | None = None,
    workers: Workers | None = None,
    recipes: Recipes | None = None,
    schedules: Schedules | None = None,
    memory: Memory | None = None,
) -> AsyncIterator[Connection]:
    """Answer people in the workspace while the context is open.

    On exit, accept no more events and hand active runs over within `shutdown_grace_s`. `policy` decides which users may
    use the bot, and where. `budget` is the rate-limit budget shared with other processes; `rate_scale` is a factor on
    Slack's rate limits. `calls_late_s` is how long the calls of a killed process may still reach Slack. `limits` bounds
    concurrent runs. `channels` are the rules of channels by their ids. Running tools may continue for `tools_grace_s`
    of `shutdown_grace_s`; by default all but the last two seconds. `listeners` add further Bolt listeners. `observer`
    gets reports of runs, stops and calls. `history` branches the logs of conversations for commands.
    `records` are kept of each person; without them there is no Home tab. `workers` are the workers of threads,
    `recipes` those that people can run there, `schedules` those that they make, `memory` what
    is remembered for each channel.

    Raises:
        ConnectionRefused: at entry, if a token is wrong, Slack is unreachable, or a function of `listeners` fails;
            later, if Slack rejects the app's credentials.
    """
    # A timeout keeps one unanswered call from blocking the others for minutes. The rate limiter bounds concurrency, not
    # the connection pool: a call that waits for a connection would leave long after its lease was confirmed.
    timeout, connector = aiohttp.ClientTimeout(total=CALLS_LATE_S), aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(timeout=timeout, connector=connector) as http:
        # The SDK's own retries would send a post twice after a dropped connection.
        open_client = partial(AsyncWebClient, base_url=access.api_url, session=http, retry_handlers=[])
        web_client = open_client(access.bot_token)
        async with RateLimiter("") as scheduler:
            identity = await preflight(access.api_url, SlackClient(web_client, scheduler))
        async with RateLimiter(identity.team, budget, rate_scale) as scheduler:
            client, open_transport = (
                SlackClient(web_client, scheduler, observer),
                await _transport(access, http, open_client, scheduler),
            )
            topics, own = ChannelTopics(client), identity.bot_id
            router = Router(instances, runs, identity.team, identity.user, channels, topics, options.bots, own)
            async with _open(client), BackgroundTasks(client, calls_late_s, options=options) as background:
                admitter = Admitter(
                    background,
                    router,
                    runs,
                    identity.user,
                    policy,
                    enterprise=identity.enterprise,
                    observer=observer,
                    workers=workers,
                )
                slots, home = RunSlots(limits), None
                if records is not None:
                    home = HomeTabs(background, HomeSources(runs, router, records, history, identity.url, schedules))
                context = WorkspaceContext(
                    runs,
                    sessions,
                    background,
                    router,
                    admitter.catch_up,
                    admitter.stop_in_dm,
                    admitter.admit_asked,
                    slots,
                    observer or Observer(),
                    history,
                    records,
                    home,
                    workers,
                    recipes,
                    schedules,
                    memory,
                )
                async with WorkerPool(context, runs, shutdown_grace_s, tools_grace_s) as worker_pool:
                    intake = Intake(context, runs, worker_pool, admitter, identity.user)
                    dispatcher = Dispatcher(open_client(None), access.bot_token, identity, intake)
                    await dispatcher.add_listeners(listeners)
                    async with open_transport(dispatcher.receive) as transport:
                        log.info("slack.connected", team=identity.team, bot_user=identity.user)
                        try:
                            unattended = Unattended(runs, router, admitter.policy, background)
                            parts = slots, worker_pool, router, admitter, background, unattended
                            yield Connection(transport, scheduler, *parts)
                        finally:
                            worker_pool.suspend()


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
async def _open(client: SlackClient) -> AsyncIterator[None]:
    """Run the body until Slack rejects the app's credentials.

    Raises:
        ConnectionRefused: Slack has rejected them.
    """
    body = asyncio.current_task()
    refused: list[SlackCallFailed] = []

    async def watch() -> None:
        refused.append(await client.closed())
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
