"""Connections to servers: each is owned by one task, and restarted when it is needed after its end."""

from __future__ import annotations

import asyncio
import os
import re
import sys
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from contextvars import Context
from typing import TYPE_CHECKING, Any, TypeVar

import httpx2
import structlog
from mcp.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError
from mcp_types import CONNECTION_CLOSED, Implementation

from orchestrator_interactive.kernel.error_boundary import error_text
from orchestrator_interactive.modules.tool_mcp.answers import UNCOMPRESSED, LimitedStream
from orchestrator_interactive.modules.tool_mcp.elicitation import Elicitations
from orchestrator_interactive.modules.tool_mcp.listing import RepairedMessages

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from mcp.client.session import ElicitationFnT

    from orchestrator_interactive.modules.tool_mcp.login import Account
    from orchestrator_interactive.modules.tool_mcp.options import ServerOptions

log = structlog.get_logger(__name__)

T = TypeVar("T")

_MOST_PAUSE_S = 60.0
_END_WITHIN_S = 1.0
# The SDK ends a server that ignores the end of its input after 2 s, and kills it after 2 s more.
_CLOSE_WITHIN_S = 6.0
# How the SDKs say that a server has forgotten the session, and so refuses a request.
_NO_SESSION = re.compile(r"Session (terminated|not found)$|Bad Request: No valid session ID")
_ERROR_CHARS = 500
_STDERR_BYTES = 2_000
# Of a JSON body, or of one event of a stream.
_MESSAGE_BYTES = 16 * 1024 * 1024
# A tool's own time limit ends a call.
NO_LIMIT_S = 30 * 24 * 3600.0
_CLIENT = Implementation(name="amplifier-slack", version="1")
_INHERITED = ("LANG", "LC_ALL", "TZ")
# The SDK starts a server without a function to run in the child. This program lets the kernel end the server when the
# service dies, also by SIGKILL, and becomes the server.
_LAUNCHER = (
    "import ctypes,os,signal,sys\n"
    "ctypes.CDLL(None).prctl(1,signal.SIGKILL)\n"  # PR_SET_PDEATHSIG
    "if os.getppid()!=int(sys.argv[1]):sys.exit(1)\n"
    "try:os.execvp(sys.argv[2],sys.argv[2:])\n"
    "except OSError as e:sys.exit(f'{sys.argv[2]} cannot be started: {e.strerror}')\n"
)


class ServerUnavailable(Exception):  # noqa: N818 - a state of the server
    """There is no connection, and the server did not get the call; the message is a sentence."""


class ConnectionLost(Exception):  # noqa: N818 - an event
    """The connection ended while a call was running."""


class NotDelivered(ConnectionLost):
    """The connection ended, and the server certainly did not act on the call."""


class Connection:
    """A connection to a server.

    The cancel scopes of the SDK have to be left by the task that entered them, so one task opens the client and closes
    it. It ends by an event; cancelling it could leave the server's process behind.

    Args:
        values: headers or variables in addition to those of the options.
        auth: authenticates HTTP requests.
        on_elicit: answers the server's questions to people.
    """

    def __init__(
        self,
        name: str,
        options: ServerOptions,
        values: dict[str, str],
        on_elicit: ElicitationFnT,
        auth: httpx2.Auth | None = None,
    ) -> None:
        self._name = name
        self._options = options
        self._values = values
        self._auth = auth
        self._on_elicit = on_elicit
        self._ended = asyncio.Event()
        self._opened: asyncio.Future[Client] = asyncio.get_running_loop().create_future()
        self._stderr = b""
        self._running = 0
        self._has_not_reached = self._is_silent = False
        # Not the context of the call that happens to open it.
        self._task = asyncio.create_task(self._own(), name=f"mcp-{name}", context=Context())

    @property
    def is_over(self) -> bool:
        return self._ended.is_set()

    async def client(self) -> Client:
        """Return the client, once it is connected.

        Raises:
            ServerUnavailable: it cannot be connected.
        """
        return await asyncio.shield(self._opened)

    async def call(self, work: Callable[[Client], Awaitable[T]]) -> T:
        """Make requests. An error that the server answers is raised as `MCPError`.

        Raises:
            ServerUnavailable: as in `client`.
            ConnectionLost: the connection has ended in the meantime.
        """
        client = await self.client()
        self._running += 1
        is_alone = self._running == 1
        try:
            return await work(client)
        except MCPError as e:
            if self._options.url and _NO_SESSION.match(e.message):
                self._ended.set()
                raise NotDelivered from e
            if e.code == CONNECTION_CLOSED or (self.is_over and self._task.done()):
                self._ended.set()
                await asyncio.wait({self._task}, timeout=_END_WITHIN_S)
                raise (NotDelivered if is_alone and self._has_not_reached else ConnectionLost) from e
            raise
        finally:
            self._running -= 1
            self._end_if_idle()

    async def aclose(self) -> None:
        """End the connection, and wait until the server's process has ended, if that is soon."""
        self._ended.set()
        await asyncio.wait({self._task}, timeout=_CLOSE_WITHIN_S)

    async def _own(self) -> None:
        try:
            async with AsyncExitStack() as stack:
                client = Client(
                    self._transport(self._stdio() if self._options.command else self._http(stack)),
                    read_timeout_seconds=self._options.connect_timeout_s,
                    client_info=_CLIENT,
                    mode=self._options.protocol,
                    elicitation_callback=self._on_elicit,
                    cache=None,
                )
                opened = await stack.enter_async_context(client)
                # The server sends both a schema and results: a pattern in it could be matched without end.
                opened.session.validate_tool_result = _unvalidated  # type: ignore[method-assign]
                self._opened.set_result(opened)
                log.info("mcp.connected", server=self._name, protocol=client.protocol_version)
                await self._ended.wait()
        except Exception as e:  # noqa: BLE001 - the SDK raises the errors of its transports
            self._has_not_reached = isinstance(_first(e), httpx2.ConnectError)
            if self._opened.done():
                log.warning("mcp.connection_lost", server=self._name, error=_reason(e))
            else:
                self._opened.set_exception(ServerUnavailable(self._sentence(e)))
                self._opened.exception()  # it may be that no call waits for it
        finally:
            self._ended.set()
            if not self._opened.done():
                self._opened.cancel()

    @asynccontextmanager
    async def _transport(self, transport: Any) -> AsyncIterator[Any]:
        async with transport as (received, sent):
            yield RepairedMessages(self._name, received), sent

    @asynccontextmanager
    async def _stdio(self) -> AsyncIterator[Any]:
        """Start the server. The end of its standard error tells that it has ended."""
        options = self._options
        inherited = {name: os.environ[name] for name in _INHERITED if name in os.environ}
        command, arguments = options.command, list(options.args)
        if sys.platform == "linux":
            arguments = ["-I", "-S", "-c", _LAUNCHER, str(os.getpid()), command, *arguments]
            command = sys.executable
        environment = {**inherited, **options.env, **self._values}
        parameters = StdioServerParameters(
            command=command, args=arguments, env=environment, cwd=options.cwd, encoding_error_handler="replace"
        )
        reader, writer = os.pipe()
        loop = asyncio.get_running_loop()
        os.set_blocking(reader, False)
        with open(reader, "rb", buffering=0) as errors, open(writer, "w") as errlog:  # noqa: ASYNC230, PTH123 - pipes
            loop.add_reader(reader, self._read_errors, errors)
            try:
                async with stdio_client(parameters, errlog) as streams:
                    errlog.close()
                    yield streams
            finally:
                loop.remove_reader(reader)

    def _read_errors(self, errors: Any) -> None:
        with suppress(OSError):
            if found := errors.read(_STDERR_BYTES):
                self._stderr = (self._stderr + found)[-_STDERR_BYTES:]
                return
        asyncio.get_running_loop().remove_reader(errors)
        self._is_silent = True
        self._end_if_idle()

    def _end_if_idle(self) -> None:
        """End a connection whose process has ended; calls may still read its last answers."""
        if self._is_silent and self._opened.done() and not self._running:
            self._ended.set()

    def _http(self, stack: AsyncExitStack) -> Any:
        options = self._options
        timeout = httpx2.Timeout(options.connect_timeout_s, read=NO_LIMIT_S)
        headers = {**options.headers, **self._values, **UNCOMPRESSED}
        hooks = {"response": [_limit]}
        http = httpx2.AsyncClient(headers=headers, timeout=timeout, auth=self._auth, event_hooks=hooks)
        stack.push_async_callback(http.aclose)
        return streamable_http_client(options.url, http_client=http, max_sse_event_size=_MESSAGE_BYTES)

    def _sentence(self, error: Exception) -> str:
        said = self._stderr.decode(errors="replace").strip().splitlines()[-1:]
        why = " ".join(filter(None, (_reason(error), *said)))[:_ERROR_CHARS]
        return f"The MCP server '{self._name}' cannot be used now: {why}"


async def _unvalidated(name: str, result: Any) -> None:
    """Take a result as it is: it is shown to the model as text."""
    del name, result


async def _limit(response: httpx2.Response) -> None:
    """Limit the body of a response, except the number of events in a stream, which the SDK reads one at a time."""
    kind = response.headers.get("Content-Type", "").lower()
    is_stream = kind.startswith("text/event-stream") and response.request.method != "DELETE"
    response.stream = LimitedStream(response, sys.maxsize if is_stream else _MESSAGE_BYTES)


def _first(error: BaseException) -> BaseException:
    """Return the first error of a group."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def _reason(error: BaseException) -> str:
    error = _first(error)
    return f"{type(error).__name__}: {error_text(error)}"[:_ERROR_CHARS]


# Connects to a server, whose questions the argument answers.
Connect = Callable[["ElicitationFnT"], Connection]


class Server:
    """A server as its users see it: connected when it is needed, and again after its end, with growing pauses."""

    def __init__(self, connect: Connect, account: Account | None = None) -> None:
        self.users = 0
        self.account = account
        self.elicitations = Elicitations()
        self._connect = connect
        self._connection: Connection | None = None
        self._closing: set[asyncio.Task[None]] = set()
        self._failures = 0
        self._retry_s = 0.0
        self._why = ""

    async def call(self, work: Callable[[Client], Awaitable[T]]) -> T:
        """Make requests over the connection; see `Connection.call`. An undelivered request is sent again once."""
        try:
            return await self._called(work)
        except NotDelivered:
            return await self._called(work)

    async def _called(self, work: Callable[[Client], Awaitable[T]]) -> T:
        connection = self._current()
        try:
            result = await connection.call(work)
        except (ServerUnavailable, ConnectionLost) as e:
            if connection is self._connection:  # the first call that sees it
                self._fail(str(e))
            raise
        except MCPError:
            self._failures = 0
            raise
        self._failures = 0
        return result

    def _current(self) -> Connection:
        if self._connection is not None and self._connection.is_over:
            self._drop()
        if self._connection is None:
            left_s = self._retry_s - asyncio.get_running_loop().time()
            if left_s > 0:
                raise ServerUnavailable(f"{self._why} It is tried again in {left_s:.0f} s.")
            self._connection = self._connect(self.elicitations.answer)
        return self._connection

    def _fail(self, why: str) -> None:
        self._failures += 1
        pause_s = 0.0 if self._failures < 2 else min(2.0 ** (self._failures - 2), _MOST_PAUSE_S)
        self._retry_s, self._why = asyncio.get_running_loop().time() + pause_s, why or "The MCP server ended again."
        self._drop()

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            task = asyncio.create_task(connection.aclose(), context=Context())
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)

    async def aclose(self) -> None:
        self._drop()
        if self._closing:
            await asyncio.wait(self._closing)


# The servers of this process that have users. Connections belong to an event loop.
_servers: dict[tuple[int, str], Server] = {}


class Servers:
    """The servers that one session uses; it shares those with the same key with other sessions."""

    def __init__(self) -> None:
        self._used: dict[tuple[int, str], Server] = {}

    def use(self, key: str, new: Callable[[], Server]) -> Server:
        """Return the server with this key, until `aclose`; `new` is called if no session uses it yet."""
        place = id(asyncio.get_running_loop()), key
        if place not in self._used:
            server = self._used[place] = _servers.get(place) or new()
            _servers[place] = server
            server.users += 1
        return self._used[place]

    async def aclose(self) -> None:
        """Give up the servers; those without another user end."""
        used, self._used = self._used, {}
        left = []
        for place, server in used.items():
            server.users -= 1
            if not server.users:
                left.append(_servers.pop(place))
        await asyncio.gather(*(server.aclose() for server in left))
