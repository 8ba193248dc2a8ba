"""A server of Socket Mode that does not behave as Slack does."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import aiohttp
import pytest
from aiohttp import WSMsgType, web
from structlog.testing import capture_logs

from connector import ConnectionRefused
from connector.inbound.dispatcher import Reply
from connector.inbound.socket_mode import NotOpened, SocketMode, SocketTiming
from connector.slack_api.errors import Backoff

QUICK = Backoff(0.01, 0.02)
TIMING = SocketTiming(connections=1, linger_s=0.05, close_within_s=0.1, drain_within_s=0.05, retry=QUICK, refused=QUICK)
HELLO = json.dumps({"type": "hello", "num_connections": 1})


class Server:
    """Sends the same frames over each connection, and queues the frames that it receives."""

    def __init__(self, *frames: str) -> None:
        self.frames = frames
        self.url = ""
        self.received: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self.connections = 0

    async def handle(self, request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        self.connections += 1
        for frame in self.frames:
            await socket.send_str(frame)
        async for message in socket:
            if message.type is WSMsgType.TEXT:
                self.received.put_nowait(json.loads(message.data))
        return socket

    @asynccontextmanager
    async def connected(self, address=None, timing=TIMING, timeout_s: float | None = 300):
        """Run the server, and connect to it or to another address."""

        async def receive(body: dict[str, Any]) -> Reply:
            return Reply(200, body.get("reply"))

        async def own_address() -> str:
            return self.url

        app = web.Application()
        app.router.add_get("/link", self.handle)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        try:
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            self.url = f"ws://127.0.0.1:{runner.addresses[0][1]}/link"
            async with (
                aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=timeout_s)) as http,
                SocketMode(http, address or own_address, receive, asyncio.Semaphore(1), timing=timing) as socket_mode,
            ):
                yield socket_mode
        finally:
            await runner.cleanup()


def envelope(number: int, payload: Any) -> str:
    return json.dumps({"envelope_id": str(number), "type": "events_api", "payload": payload})


async def test_malformed_frames_affect_no_other_frame():
    malformed = ["no JSON", "[]", "17", '{"type": "unknown"}', '{"envelope_id": 7}', "\x00"]
    server = Server(*malformed, HELLO, *malformed, envelope(1, None), envelope(2, [1]), envelope(3, {}))
    async with server.connected():
        received = [await server.received.get() for _ in range(3)]
    assert received == [{"envelope_id": "1"}, {"envelope_id": "2"}, {"envelope_id": "3"}]
    assert server.connections == 1


@pytest.mark.parametrize("levels", [150, 960, 100_000])
async def test_deeply_nested_frames_affect_no_other_frame(levels):
    deep = f'{{"envelope_id": "0", "payload": {{"reply": {"[" * levels + "]" * levels}}}}}'
    server = Server(deep, HELLO, deep, envelope(1, {}))
    async with server.connected():
        assert await server.received.get() == {"envelope_id": "1"}
    assert server.connections == 1


async def test_the_payload_of_a_reply_is_sent_with_the_acknowledgement():
    server = Server(HELLO, envelope(1, {"reply": {"text": "so"}}))
    async with server.connected():
        assert await server.received.get() == {"envelope_id": "1", "payload": {"text": "so"}}


async def test_a_connection_without_a_hello_is_tried_again_and_refused():
    server = Server()
    with pytest.raises(ConnectionRefused, match="its Socket Mode connection cannot be opened"):
        async with server.connected(timing=replace(TIMING, hello_within_s=0.05, first_hello_within_s=0.2)):
            pass
    assert server.connections > 1


@pytest.mark.parametrize(
    ("reason", "sentence"),
    [("link_disabled", "Switch it on"), ("too_many_websockets", "as many connections as Slack allows")],
)
async def test_a_refusal_at_the_first_connection_names_the_reason(reason, sentence):
    server = Server(json.dumps({"type": "disconnect", "reason": reason}))
    with pytest.raises(ConnectionRefused, match=sentence):
        async with server.connected(timing=replace(TIMING, first_hello_within_s=0.1)):
            pass


@pytest.mark.parametrize("error", [NotOpened("no_answer"), ZeroDivisionError(), OSError("no network"), ValueError("?")])
async def test_an_address_that_is_not_available_is_requested_again(error):
    server, errors = Server(HELLO, envelope(1, {})), [error, error]

    async def address() -> str:
        if errors:
            raise errors.pop()
        return server.url

    async with server.connected(address):
        assert await server.received.get() == {"envelope_id": "1"}


@pytest.mark.parametrize("address", ["{url}/gone?ticket={ticket}", "http:{ticket}", "wss://[?ticket={ticket}"])
async def test_no_error_and_no_log_contains_the_ticket_of_an_address(address):
    server, ticket = Server(HELLO), "0123456789abcdef"

    async def with_ticket() -> str:
        return address.format(url=server.url, ticket=ticket)

    with capture_logs() as logs, pytest.raises(ConnectionRefused) as refused:
        async with server.connected(with_ticket, replace(TIMING, first_hello_within_s=0.3)):
            pass
    assert "socket.reconnecting" in [each["event"] for each in logs]
    assert ticket not in f"{refused.value} {logs}"


async def test_a_rate_limit_delays_the_next_request_of_an_address():
    server, requested_at_s = Server(HELLO), []

    async def address() -> str:
        requested_at_s.append(asyncio.get_running_loop().time())
        if len(requested_at_s) == 1:
            raise NotOpened("ratelimited", 0.1)
        return server.url

    async with server.connected(address):
        pass
    assert requested_at_s[1] - requested_at_s[0] >= 0.1


async def test_the_timeout_of_the_session_does_not_close_a_connection():
    server = Server(HELLO)
    async with server.connected(timing=replace(TIMING, suspend_check_s=0.02), timeout_s=0.1) as socket_mode:
        await asyncio.sleep(0.3)  # the timeout is a timer
        assert (socket_mode.connections, server.connections) == (1, 1)
