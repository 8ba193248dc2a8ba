"""The workspaces of one service: the parts of each, and those in which the app is installed."""

from __future__ import annotations

import asyncio
import math
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

import structlog

from connector.inbound.access_policy import AccessRules, LatestEntries
from connector.inbound.dispatcher import DONE, NOT_NOW, Reply, team_of
from connector.protocols import SlackOptions
from connector.setup import GRANTED, INSTALLATION_EVENTS, UNINSTALLED, WITHDRAWN, ConnectionRefused
from connector.slack_api.errors import Backoff, error_boundary

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
    from contextlib import AbstractAsyncContextManager
    from types import TracebackType

    from connector.conversations.worker_pool import WorkerPool
    from connector.inbound.admission import Admitter
    from connector.inbound.dispatcher import Dispatcher
    from connector.inbound.unattended import Unattended
    from connector.protocols import ChannelRules, Instance
    from connector.routing import Router
    from connector.runs.background_tasks import BackgroundTasks
    from connector.setup import Installation, Installations
    from connector.slack_api.errors import SlackCallFailed
    from connector.slack_api.rate_limiter import RateLimiter

    OpenWorkspace = Callable[[Installation, str], AbstractAsyncContextManager["Workspace"]]
    TeamsOf = Callable[[Installation], Awaitable[Sequence[str]]]

log = structlog.get_logger(__name__)

# Longest time until an installation that another process has stored is seen.
_LOOK_EVERY_S = 15.0
# How long an unknown workspace is not looked for again.
_UNKNOWN_S = 5.0
_MOST_UNKNOWN = 1_000
# How often the workspaces of an organisation are listed, and how long an event waits for the list.
_LIST_EVERY_S, _LIST_WITHIN_S = 300.0, 2.0
_RETRY = Backoff(1.0, 60.0, jitter=0.5)
# A workspace that was open for a shorter time has failed again.
_STABLE_S = 60.0
# Workspaces that are being opened at once: each needs a connection to Slack.
_OPENED_AT_ONCE = 50
# After so long with such an error, an installation has ended without an event. A token that has expired may still be
# renewed, and `invalid_auth` may be due to the address of this machine.
_ENDED_ERRORS = {"account_inactive", "token_revoked"}
_ENDED_AFTER_S = 86_400.0
_EVENTS = {each.name for each in INSTALLATION_EVENTS}


@dataclass(frozen=True, slots=True)
class WorkspaceSettings:
    """The settings of one workspace, which a reload may change.

    `channels` are the rules of channels by their ids. `policy` decides which users may use the bot, and where.
    """

    instances: Sequence[Instance]
    channels: Mapping[str, ChannelRules] = field(default_factory=dict)
    policy: AccessRules = field(default_factory=AccessRules)
    options: SlackOptions = field(default_factory=SlackOptions)
    # Lower-case names of instances that only other workspaces have.
    elsewhere: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Workspace:
    """The parts that serve one workspace, for reloads, health checks and metrics."""

    dispatcher: Dispatcher
    rate_limiter: RateLimiter
    worker_pool: WorkerPool
    router: Router
    admitter: Admitter
    background: BackgroundTasks
    unattended: Unattended
    # Waits until Slack revokes the access.
    closed: Callable[[], Coroutine[Any, Any, SlackCallFailed]]

    def configure(self, settings: WorkspaceSettings) -> None:
        """Replace settings; an active run keeps its instance."""
        self.router.configure(settings.instances, settings.channels, settings.options.bots, settings.elsewhere)
        self.admitter.policy.rules = settings.policy
        self.background.options = settings.options


@dataclass(slots=True)
class _Life:
    """The time in which a workspace is served. `over` ends it."""

    installation: Installation
    over: asyncio.Event = field(default_factory=asyncio.Event)
    task: asyncio.Task[None] | None = None


class InstalledWorkspaces:
    """Serves every workspace in which the app is installed while the context is open. What fails in one stays there.

    A workspace whose token Slack refuses is opened again later, until its installation ends.

    Args:
        open_workspace: serves one workspace while its context is open.
        teams_of: asks Slack for the workspaces of an organisation in which the app is installed.
    """

    def __init__(self, installations: Installations, open_workspace: OpenWorkspace, teams_of: TeamsOf) -> None:
        self.open: dict[str, Workspace] = {}
        self._installations = installations
        self._open_workspace = open_workspace
        self._teams_of = teams_of
        self._lives: dict[str, _Life] = {}
        # The known workspaces of each organisation, the time when Slack listed them, and the lists at work.
        self._granted: dict[str, set[str]] = {}
        self._listed_s: dict[str, float] = {}
        self._listing: dict[str, asyncio.Task[None]] = {}
        # The time since which Slack has refused the token of an installation.
        self._refused_s: dict[str, float] = {}
        self._unknown: LatestEntries[float] = LatestEntries(_MOST_UNKNOWN)
        self._looking = asyncio.Lock()
        self._opening = asyncio.Semaphore(_OPENED_AT_ONCE)
        self._has_changed = asyncio.Event()
        self._watching: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        """Begin to open the workspaces; Slack delivers events again that arrive too early.

        Raises:
            StoreError: the installations cannot be read.
        """
        await self._look()
        self._watching = asyncio.create_task(self._watch())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        tasks = [*self._listing.values(), *(() if self._watching is None else (self._watching,))]
        for task in tasks:
            task.cancel()
        for team, life in list(self._lives.items()):
            self._end(team, life)
            tasks += () if life.task is None else (life.task,)
        if tasks:
            await asyncio.wait(tasks)

    def suspend(self) -> None:
        """Claim no more conversations, and suspend the active runs."""
        for workspace in self.open.values():
            workspace.worker_pool.suspend()

    async def receive(self, body: dict[str, Any]) -> Reply:
        """Handle a payload in the workspace that it is for; one for an unknown workspace is ignored."""
        event = body.get("event")
        if isinstance(event, dict) and event.get("type") in _EVENTS:
            with error_boundary("installation.not_changed", slack_event=event["type"]):
                await self._change(event, body)
                return DONE
            return NOT_NOW
        team = team_of(body)
        if team not in self._lives:
            with error_boundary("installations.not_read"):
                await self._look_for(team, _enterprise_of(body))
        if team in self.open:
            return await self.open[team].dispatcher.receive(body)
        if team in self._lives:
            return NOT_NOW
        log.info("slack.other_team", team=team, type=body.get("type"))
        return DONE

    async def _change(self, event: dict[str, Any], body: dict[str, Any]) -> None:
        """Follow an event about installations.

        Raises:
            StoreError: it cannot be stored.
        """
        kind, enterprise = event["type"], _enterprise_of(body)
        if kind in (GRANTED, WITHDRAWN):
            if kind == WITHDRAWN and enterprise in self._granted:
                self._granted[enterprise] -= set(event.get("team_ids") or ())
            self._listed_s.pop(enterprise, None)
        elif kind == UNINSTALLED or (event.get("tokens") or {}).get("bot"):
            ended = enterprise or team_of(body)
            log.info("installation.ended", installation=ended, slack_event=kind)
            await self._installations.end(ended)
        await self._look()

    async def _look_for(self, team: str, enterprise: str) -> None:
        """Look for the installation of an unknown workspace, which may be new."""
        now_s = asyncio.get_running_loop().time()
        if now_s - self._unknown.get(team, -_UNKNOWN_S) >= _UNKNOWN_S:
            self._unknown[team] = now_s
            self._listed_s.pop(enterprise, None)
            await self._look()
        if (listing := self._listing.get(enterprise)) is not None:
            await asyncio.wait((listing,), timeout=_LIST_WITHIN_S)
            await self._look()

    async def _watch(self) -> None:
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(_LOOK_EVERY_S):
                    await self._has_changed.wait()
            self._has_changed.clear()
            with error_boundary("installations.not_read"):
                await self._look()

    async def _look(self) -> None:
        """Begin to serve the workspaces of new installations, and stop to serve those of ended ones.

        Raises:
            StoreError: the installations cannot be read.
        """
        async with self._looking:
            present = await self._installations.all()
            wanted = {each.team: each for each in present if each.team}
            organisations = [each for each in present if not each.team]
            for gone in self._granted.keys() - {each.id for each in organisations}:
                del self._granted[gone]
                self._listed_s.pop(gone, None)
            for each in organisations:
                self._list(each)
                # The installation in a workspace counts before that in its organisation.
                wanted |= {team: each for team in self._granted.get(each.id, ()) if team not in wanted}
            for team, life in list(self._lives.items()):
                if wanted.get(team) != life.installation:
                    self._end(team, life)
            for team, installation in wanted.items():
                if team not in self._lives:
                    life = self._lives[team] = _Life(installation)
                    life.task = asyncio.create_task(self._live(team, life))

    def _list(self, organisation: Installation) -> None:
        """Ask Slack for the workspaces of an organisation, unless they are known or being asked for."""
        name, now_s = organisation.id, asyncio.get_running_loop().time()
        if name in self._listing or now_s - self._listed_s.get(name, -_LIST_EVERY_S) < _LIST_EVERY_S:
            return
        self._listed_s[name] = now_s

        async def listed() -> None:
            try:
                with error_boundary("installation.not_listed", installation=name):
                    try:
                        self._granted[name] = set(await self._teams_of(organisation))
                    except ConnectionRefused as e:
                        log.error("installation.not_listed", installation=name, problem=str(e))  # noqa: TRY400 - as below
                        await self._end_if_over(organisation, e.error)
                    else:
                        self._refused_s.pop(name, None)
                        self._has_changed.set()
                        return
                if name in self._listed_s:  # else an event has come: again at once
                    self._listed_s[name] -= _LIST_EVERY_S - _LOOK_EVERY_S
            finally:
                del self._listing[name]

        self._listing[name] = asyncio.create_task(listed())

    async def _end_if_over(self, installation: Installation, error: str) -> None:
        """End an installation whose token Slack has refused for a day."""
        if error not in _ENDED_ERRORS:
            return
        name, now_s = installation.id, asyncio.get_running_loop().time()
        if now_s - self._refused_s.setdefault(name, now_s) >= _ENDED_AFTER_S:
            del self._refused_s[name]
            log.info("installation.ended", installation=name, error=error)
            with error_boundary("installation.not_ended", installation=name):
                await self._installations.end(name)
                self._has_changed.set()

    def _end(self, team: str, life: _Life) -> None:
        """End a life; one that is not open yet may wait for Slack, so it is cancelled."""
        life.over.set()
        if team not in self.open and life.task is not None:
            life.task.cancel()

    async def _live(self, team: str, life: _Life) -> None:
        """Serve a workspace until its life is over."""
        failures, now_s = 0, asyncio.get_running_loop().time
        try:
            while not life.over.is_set():
                opened_s = math.inf
                try:
                    async with AsyncExitStack() as stack:
                        async with self._opening:
                            workspace = await stack.enter_async_context(self._open_workspace(life.installation, team))
                        self.open[team], opened_s = workspace, now_s()
                        self._refused_s.pop(life.installation.id, None)
                        await _first_of(life.over.wait(), workspace.closed())
                except ConnectionRefused as e:
                    log.error("workspace.refused", team=team, problem=str(e))  # noqa: TRY400 - the message gives the reason
                    await self._end_if_over(life.installation, e.error)
                except Exception:  # a Slack handler's border: the other workspaces continue
                    log.exception("workspace.failed", team=team)
                finally:
                    self.open.pop(team, None)
                failures = 1 if now_s() - opened_s >= _STABLE_S else failures + 1
                with suppress(TimeoutError):
                    async with asyncio.timeout(_RETRY.delay_s(failures)):
                        await life.over.wait()
        finally:
            self._lives.pop(team, None)
            self._has_changed.set()  # there may be a new installation


async def _first_of(*works: Coroutine[Any, Any, object]) -> None:
    """Wait until the first one has ended, and cancel the others."""
    tasks = [asyncio.create_task(work) for work in works]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()


def _enterprise_of(body: dict[str, Any]) -> str:
    """Return the organisation in which the app of a payload is installed; blank: it is installed in a workspace."""
    for each in (*(body.get("authorizations") or ()), body):
        if isinstance(each, dict) and each.get("is_enterprise_install") is True:
            return str(each.get("enterprise_id") or (each.get("enterprise") or {}).get("id") or "")
    return ""
