"""The local Slack as a whole: one workspace, one HTTP server, one object to hold both."""

from __future__ import annotations

import asyncio
import errno
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Self, TypeVar

import aiohttp
from aiohttp import web

from .delivery import Delivery, RetrySchedule
from .dump import dump
from .errors import LocalSlackError, NotLoopback, PortInUse
from .faults import Faults
from .loopback import is_loopback, only_this_machine
from .page_server import PageServer
from .people import Directory
from .person_client import PersonClient
from .socket_mode import SocketMode
from .subscription import EVENTS, Subscription
from .web_api import WebApi
from .workspace import Workspace

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence
    from types import TracebackType

    from .changes import Change
    from .messages import Channel
    from .people import Person

T = TypeVar("T")

_LARGEST_REQUEST_BYTES = 4 * 1024 * 1024


class LocalSlack:
    """A Slack workspace on this machine; listens while the ``async with`` block runs.

    ``port=0`` takes a free port. The bot is a member of ``bot_channels``, of all channels by default; its app
    is subscribed to ``events``. Raises PortInUse and NotLoopback when entered.
    """

    def __init__(  # noqa: PLR0913 - every one has a default that fits
        self,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        bot: str = "alpha",
        people: Iterable[str] = ("ana", "ben", "chloe"),
        channels: Sequence[str] = ("general", "random"),
        bot_channels: Sequence[str] | None = None,
        events: Collection[str] = EVENTS,
        retries: RetrySchedule | None = None,
        refresh_grace_s: float = 10.0,
    ) -> None:
        directory = Directory(bot, people)
        self.workspace = Workspace(directory, channels, bot_channels)
        self.faults = Faults()
        delivery = Delivery(retries or RetrySchedule(), self._wake)
        self.socket_mode = SocketMode(self.workspace, delivery, self._wake, refresh_grace_s=refresh_grace_s)
        self._subscription = Subscription(self.workspace, delivery, events)
        self._page = PageServer(self.workspace)
        self._web_api = WebApi(self.workspace, self.faults, self._socket_url)
        # Bound to both of its addresses, `localhost` and port 0 would give two different ports.
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
    def bot_token(self) -> str:
        return self.workspace.directory.bot.token

    @property
    def bot_user_id(self) -> str:
        return self.workspace.directory.bot.id

    @property
    def team_id(self) -> str:
        return self.workspace.directory.team.id

    def person(self, name: str) -> Person:
        return self.workspace.directory.person(name)

    def channel(self, name: str) -> Channel:
        return self.workspace.channel(name)

    def as_person(self, name: str) -> PersonClient:
        """Return a client that acts as this person over HTTP."""
        if self._session is None:
            raise RuntimeError("enter the LocalSlack first: `async with LocalSlack() as slack:`")
        return PersonClient(self.person(name), self.workspace.directory, self.api_url, self._session)

    # Waiting

    async def until(self, predicate: Callable[[Workspace], T], timeout_s: float = 10) -> T:
        """Return the first truthy value of ``predicate``, looked at now and after every change.

        A change is one of the workspace, an ack, or a connection of the app that comes or goes.

        Raises TimeoutError, whose text shows all channels as they stand.
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
            stack.callback(self._subscription.end)
            stack.callback(self.workspace.listen(self._wake))
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
        app.router.add_routes(self._page.routes())
        app.router.add_get("/api/{method}", self._web_api.handle)
        app.router.add_post("/api/{method}", self._web_api.handle)
        app.router.add_get("/link/", self.socket_mode.handle)
        return app

    def _socket_url(self) -> str:
        return f"ws://{self._netloc}/link/?{self.socket_mode.ticket()}"

    @property
    def _netloc(self) -> str:
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"{host}:{self._port}"
