"""LocalSlack: the workspaces and the HTTP server."""

from __future__ import annotations

import asyncio
import errno
import itertools
import shlex
import time
from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Self, TypeVar

import aiohttp
from aiohttp import web

from local_slack.clients import InstalledTeam
from local_slack.delivery.delivery import Delivery, RetrySchedule
from local_slack.delivery.events import EVENTS, Subscription
from local_slack.delivery.faults import DeliveryFaults, Faults
from local_slack.delivery.http_delivery import HttpDelivery, Signer
from local_slack.delivery.recorder import Recorder
from local_slack.delivery.socket_mode import SocketModeEndpoint
from local_slack.methods.app import EVERY_SCOPE, App, Command, Shortcut, commands_in, shortcuts_in
from local_slack.methods.rate_limits import Limit, MethodRateLimiter
from local_slack.methods.web_api import SLACK_LIMITS, WebApi
from local_slack.web.authorize import AuthorizePage
from local_slack.web.control import Control
from local_slack.web.interactivity import Interactivity
from local_slack.web.loopback import is_loopback, only_this_machine
from local_slack.web.page_server import PageServer
from local_slack.workspace.errors import LocalSlackError, NotLoopback, PortInUse
from local_slack.workspace.installations import Client, Installations
from local_slack.workspace.people import ZONES, Directory, organisation_named
from local_slack.workspace.people import teams as teams_named
from local_slack.workspace.workspace import Workspace

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
    from types import TracebackType
    from typing import Any

    from local_slack.json_limits import Json
    from local_slack.workspace.messages import Change, WorkspaceMessage
    from local_slack.workspace.people import Kind

T = TypeVar("T")

_LARGEST_REQUEST_BYTES = 4 * 1024 * 1024
_LONGEST_LINE = 200


class LocalSlack(InstalledTeam):
    """A Slack workspace on this machine; listens while the ``async with`` block runs.

    ``port=0`` selects a free port. ``people`` are names, or a mapping of names to display names; ``kinds`` by name
    make them guests or external people; ``zones`` are time zones by name, else UTC. The bot is a member of
    ``bot_channels``, by default of all channels; its app is installed in all ``teams``, subscribed to ``events``
    and has the ``scopes``. ``apps`` are other apps, which only post. With a ``request_url`` the app gets events
    over HTTP, signed with the ``signing_secret``; the challenge is sent before the first event. ``limits`` apply
    to the app only and are Slack's by default; None turns them off. ``commands`` such as ``/agent`` and ``shortcuts``
    are added to those of the ``manifest``. The page offers the ``tour``, from ``read_tour``. With the credentials of a
    ``client`` people install the app, at first it is in the ``installed`` teams, and ``rotation_s`` is the life of its
    tokens; all teams are of the ``organisation``. ``clock`` gives the time of messages, limits and tokens.
    Entering it raises PortInUse or NotLoopback.
    """

    def __init__(  # noqa: PLR0913 - all have defaults
        self,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        bot: str = "alpha",
        people: Iterable[str] | Mapping[str, str] = ("ana", "ben", "chloe"),
        kinds: Mapping[str, Kind] = MappingProxyType({}),
        apps: Sequence[str] = (),
        zones: Mapping[str, str] = ZONES,
        channels: Sequence[str] = ("general", "random"),
        bot_channels: Sequence[str] | None = None,
        teams: Sequence[str] = ("Playground",),
        events: Collection[str] = EVENTS,
        retries: RetrySchedule | None = None,
        refresh_grace_s: float = 10.0,
        request_url: str | None = None,
        signing_secret: str = "local-signing-secret",  # noqa: S107 - not a secret
        limits: Mapping[str, tuple[Limit, ...]] | None = SLACK_LIMITS,
        scopes: Collection[str] = EVERY_SCOPE,
        agent_view: bool = True,
        manifest: Mapping[str, Any] | None = None,
        commands: Iterable[str] = (),
        shortcuts: Iterable[Shortcut] = (),
        tour: Json | None = None,
        client: Client | None = None,
        installed: Collection[str] | None = None,
        organisation: str | None = None,
        rotation_s: float | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        people = people if isinstance(people, Mapping) else tuple(people)
        whole = organisation_named(organisation) if organisation else None
        found = [replace(team, is_in_organisation=whole is not None) for team in teams_named(teams)]
        directories = [Directory(bot, people, team, kinds, apps, zones) for team in found]
        workspaces = [Workspace(directory, channels, bot_channels, clock) for directory in directories]
        self._installations = Installations(workspaces, client, installed, whole, rotation_s, clock)
        super().__init__(workspaces[0], self._connection, self._installations)
        self.record = Recorder()
        self.faults, self.deliveries = Faults(), DeliveryFaults()
        self.rate_limits = MethodRateLimiter(limits, clock)
        self._delivery = Delivery(retries or RetrySchedule(), self._wake, self.deliveries, self.record)
        self.socket_mode = SocketModeEndpoint(
            workspaces, self._delivery, self._wake, self.record, refresh_grace_s=refresh_grace_s
        )
        self.signing_secret = signing_secret
        self._http: HttpDelivery | None = None
        self._first_request_url = request_url
        bot_user, url = directories[0].bot, lambda: self._http.url if self._http else None
        self._slack_app = App(
            bot_user,
            frozenset(events),
            frozenset(scopes),
            agent_view,
            manifest,
            url,
            (*commands_in(manifest or {}), *map(Command, commands)),
            (*shortcuts_in(manifest or {}), *shortcuts),
        )
        numbers = itertools.count(1)
        shared = self._delivery, self.record, events, numbers, self._installations
        self._subscriptions = [Subscription(workspace, *shared) for workspace in workspaces]
        of_team = {each.workspace.directory.team.id: each for each in self._subscriptions}
        self._installations.tell = lambda team, event, to: of_team[team].send(event, to)
        others = (InstalledTeam(each, self._connection, self._installations) for each in workspaces[1:])
        self.teams = (self, *others)
        self._interactivity = Interactivity(self._subscriptions, self._slack_app)
        self._page = PageServer(workspaces, self._slack_app, lambda: self.start_command, tour)
        self._web_api = WebApi(
            workspaces,
            self.faults,
            self.rate_limits,
            self._slack_app,
            self._socket_url,
            self.record.call,
            self._installations,
        )
        self._authorize_page = AuthorizePage(workspaces, self._installations, self._slack_app)
        self.control = Control(self.faults, self.deliveries, self.socket_mode, self.rate_limits, self.record)
        # `localhost` has two addresses; with port 0 each would get its own port.
        self._host = "127.0.0.1" if host == "localhost" else host
        self._port = port
        self._exit = AsyncExitStack()
        self._watchers: set[asyncio.Event] = set()
        self._session: aiohttp.ClientSession | None = None

    # Addresses and names

    @property
    def url(self) -> str:
        """Return the address of the page."""
        return f"http://{self._netloc}/"

    @property
    def api_url(self) -> str:
        """Return the ``base_url`` for slack_sdk."""
        return f"{self.url}api/"

    @property
    def app_token(self) -> str:
        return self.workspace.directory.bot.app_token

    @property
    def config_token(self) -> str:
        """Return the token for ``apps.manifest.export``."""
        return self._slack_app.config_token

    @property
    def variables(self) -> dict[str, str]:
        """Return the environment variables that point an app here."""
        client = self._installations.client
        bot = {"SLACK_BOT_TOKEN": self.bot_token}
        return {
            "SLACK_API_URL": self.api_url,
            "SLACK_APP_TOKEN": self.app_token,
            **(bot if client is None else {"SLACK_CLIENT_ID": client.id, "SLACK_CLIENT_SECRET": client.secret}),
            "SLACK_SIGNING_SECRET": self.signing_secret,
        }

    @property
    def start_command(self) -> str:
        """Return a shell command that connects a bot over Socket Mode; an app of your own can take its place in it."""
        needed = {name: value for name, value in self.variables.items() if name != "SLACK_SIGNING_SECRET"}
        variables = " ".join(f"{name}={shlex.quote(value)}" for name, value in needed.items())
        return f"{variables} amplifier-slack run"

    def team(self, name: str) -> InstalledTeam:
        """Find a workspace by its name or id; raises KeyError."""
        for team in self.teams:
            if name in (team.name, team.team_id):
                return team
        raise KeyError(f"no workspace is called {name!r}; there are {', '.join(team.name for team in self.teams)}")

    def _connection(self) -> tuple[str, aiohttp.ClientSession]:
        if self._session is None:
            raise RuntimeError("enter the LocalSlack first: `async with LocalSlack() as slack:`")
        return self.url, self._session

    # Transport to the app

    async def deliver_to(self, request_url: str | None, *, verify: bool = True) -> None:
        """Send events and clicks to this request URL from now on; None: over Socket Mode.

        Raises LocalSlackError and changes nothing unless the URL echoes the challenge. Without ``verify`` the
        challenge is sent before the first event.
        """
        http = None
        if request_url:
            http = HttpDelivery(request_url, self._delivery, Signer(self.signing_secret), self.record)
            try:
                if verify:
                    await http.verify()
            except LocalSlackError:
                await http.close()
                raise
        before, self._http = self._http, http
        self.socket_mode.set_over_http(http is not None)
        self._delivery.use(http)
        if before:
            await before.close()

    def notify_rate_limited(self) -> None:
        """Send ``app_rate_limited`` to the app: more events within the hour than Slack delivers."""
        self._subscriptions[0].notify_rate_limited()

    # Waiting

    async def until(self, predicate: Callable[[Workspace], T], timeout_s: float = 50) -> T:
        """Return the first truthy value of ``predicate``, which is called now and after every change.

        Changes are: a change of the workspace, an ack, a missing ack, an opened or closed connection of the app.

        Raises TimeoutError; its text shows the current content of all channels.
        """
        changed = asyncio.Event()
        self._watchers.add(changed)
        try:
            async with asyncio.timeout(timeout_s):
                while not (value := predicate(self.workspace)):
                    await changed.wait()
                    changed.clear()
                return value
        except TimeoutError as e:
            raise TimeoutError(f"not so within {timeout_s} s; the workspace:\n{dump(self.workspace)}") from e
        finally:
            self._watchers.discard(changed)

    def _wake(self, _change: Change | None = None) -> None:
        for watcher in self._watchers:
            watcher.set()

    # Opening and closing

    async def __aenter__(self) -> Self:
        if not is_loopback(self._host):
            raise NotLoopback(f"{self._host!r} is not a loopback address; use 127.0.0.1, ::1 or localhost")
        runner = web.AppRunner(self._app(), access_log=None, shutdown_timeout=1.0)
        async with AsyncExitStack() as stack:
            await runner.setup()
            stack.push_async_callback(runner.cleanup)
            await self._listen(runner)
            self._session = await stack.enter_async_context(aiohttp.ClientSession())
            stack.push_async_callback(self._page.close)
            stack.callback(self.socket_mode.close)
            stack.push_async_callback(self.deliver_to, None)
            for subscription, team in zip(self._subscriptions, self.teams, strict=True):
                stack.callback(subscription.end)
                stack.callback(team.workspace.listen(self._wake))
                stack.callback(team.workspace.lists.close)
            await self.deliver_to(self._first_request_url, verify=False)
            self._exit = stack.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._exit.aclose()

    async def _listen(self, runner: web.AppRunner) -> None:
        try:
            await web.TCPSite(runner, self._host, self._port).start()
        except OSError as e:
            if e.errno == errno.EADDRINUSE:
                raise PortInUse(self._host, self._port) from e
            raise LocalSlackError(f"cannot listen on {self._host} port {self._port}: {e.strerror or e}") from e
        self._port = runner.addresses[0][1]

    def _app(self) -> web.Application:
        app = web.Application(middlewares=[only_this_machine], client_max_size=_LARGEST_REQUEST_BYTES)
        for part in (self._page, self._web_api, self._interactivity, self.control, self._authorize_page):
            app.router.add_routes(part.routes())
        app.router.add_get("/link/", self.socket_mode.handle)
        return app

    def _socket_url(self) -> str:
        return f"ws://{self._netloc}/link/?{self.socket_mode.ticket()}"

    @property
    def _netloc(self) -> str:
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"{host}:{self._port}"


def dump(workspace: Workspace) -> str:
    """Return all channels with their messages, for failed tests; replies are indented under their root."""
    return "\n".join(_lines(workspace))


def _lines(workspace: Workspace) -> Iterator[str]:
    def name(user: str) -> str:
        member = workspace.directory.members.get(user)
        return member.name if member else user

    def line(message: WorkspaceMessage) -> str:
        text = message.text.replace("\n", "\\n")
        if len(text) > _LONGEST_LINE:
            text = f"{text[:_LONGEST_LINE]}… ({len(text)} characters)"
        edited = " (edited)" if message.edited else ""
        reactions = "".join(f"  :{r.name}: {','.join(map(name, r.users))}" for r in message.reactions)
        return f"[{message.ts}] {message.username or name(message.user)}: {text}{edited}{reactions}"

    for channel in workspace.channels:
        who = " and ".join(map(name, channel.members))
        yield f"{f'direct message of {who}' if channel.is_im else f'#{channel.name}'} ({channel.id})"
        messages = workspace.messages(channel.id)
        if not messages:
            yield "  (empty)"
        for root in messages:
            if not root.is_reply or workspace.message(channel.id, root.thread_ts or "") is None:
                yield f"  {line(root)}"
                yield from (f"    {line(reply)}" for reply in workspace.thread(channel.id, root.ts)[1:])
        yield from (f"  (only for one) {line(message)}" for message in workspace.whispers(channel.id))
