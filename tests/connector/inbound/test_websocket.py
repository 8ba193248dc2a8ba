"""Socket Mode with another side that is not as it should be."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest
from aiohttp import WSMsgType, web
from structlog.testing import capture_logs

from connector import ConnectionRefused
from connector.inbound.backoff import Backoff
from connector.inbound.reception import Reply
from connector.inbound.socket_mode import SocketMode
from connector.inbound.websocket import NotOpened, SocketTiming

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

QUICK = Backoff(0.01, 0.02)
PACE = SocketTiming(connections=1, linger_s=0.05, close_within_s=0.1, drain_within_s=0.05, retry=QUICK, refused=QUICK)
HELLO = json.dumps({"type": "hello", "num_connections": 1})


class Side:
    """The other side: it says what it is told to, in each connection anew, and notes what it hears."""

    def __init__(self, *frames: str) -> None:
        self.frames = frames
        self.url = ""
        self.heard: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self.connections = 0

    async def handle(self, request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        self.connections += 1
        for frame in self.frames:
            await socket.send_str(frame)
        async for message in socket:
            if message.type is WSMsgType.TEXT:
                self.heard.put_nowait(json.loads(message.data))
        return socket

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[aiohttp.ClientSession]:
        app = web.Application()
        app.router.add_get("/link", self.handle)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        try:
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            self.url = f"ws://127.0.0.1:{runner.addresses[0][1]}/link"
            async with aiohttp.ClientSession() as http:
                yield http
        finally:
            await runner.cleanup()

    async def address(self) -> str:
        return self.url


def envelope(number: int, payload: Any) -> str:
    return json.dumps({"envelope_id": str(number), "type": "events_api", "payload": payload})


async def echo(body: dict[str, Any]) -> Reply:
    return Reply(200, body.get("reply"))


async def test_frames_that_make_no_sense_harm_no_other():
    nonsense = ["no JSON", "[]", "17", '{"type": "unknown"}', '{"envelope_id": 7}', "\x00"]
    side = Side(*nonsense, HELLO, *nonsense, envelope(1, None), envelope(2, [1]), envelope(3, {}))
    async with side.listening() as http, SocketMode(http, side.address, echo, asyncio.Semaphore(1), timing=PACE):
        heard = [await side.heard.get() for _ in range(3)]
    assert heard == [{"envelope_id": "1"}, {"envelope_id": "2"}, {"envelope_id": "3"}]
    assert side.connections == 1


@pytest.mark.parametrize("levels", [150, 960, 100_000])
async def test_a_frame_that_is_nested_deeply_harms_no_other(levels):
    deep = f'{{"envelope_id": "0", "payload": {{"reply": {"[" * levels + "]" * levels}}}}}'
    side = Side(deep, HELLO, deep, envelope(1, {}))
    async with side.listening() as http, SocketMode(http, side.address, echo, asyncio.Semaphore(1), timing=PACE):
        assert await side.heard.get() == {"envelope_id": "1"}
    assert side.connections == 1


async def test_what_slack_is_to_be_told_goes_with_the_acknowledgement():
    side = Side(HELLO, envelope(1, {"reply": {"text": "so"}}))
    async with side.listening() as http, SocketMode(http, side.address, echo, asyncio.Semaphore(1), timing=PACE):
        assert await side.heard.get() == {"envelope_id": "1", "payload": {"text": "so"}}


async def test_what_is_no_hello_is_no_connection():
    side = Side()
    pace = replace(PACE, hello_within_s=0.05, first_hello_within_s=0.2)
    async with side.listening() as http:
        with pytest.raises(ConnectionRefused, match="its Socket Mode connection cannot be opened"):
            async with SocketMode(http, side.address, echo, asyncio.Semaphore(1), timing=pace):
                pass
    assert side.connections > 1, "it is tried again"


@pytest.mark.parametrize(
    ("reason", "sentence"),
    [("link_disabled", "Switch it on"), ("too_many_websockets", "as many connections as Slack allows")],
)
async def test_who_is_refused_from_the_start_reads_why(reason, sentence):
    side = Side(json.dumps({"type": "disconnect", "reason": reason}))
    async with side.listening() as http:
        with pytest.raises(ConnectionRefused, match=sentence):
            async with SocketMode(
                http, side.address, echo, asyncio.Semaphore(1), timing=replace(PACE, first_hello_within_s=0.1)
            ):
                pass


@pytest.mark.parametrize("error", [NotOpened("no_answer"), ZeroDivisionError(), OSError("no network"), ValueError("?")])
async def test_an_address_that_cannot_be_had_is_asked_for_again(error):
    side, errors = Side(HELLO, envelope(1, {})), [error, error]

    async def address() -> str:
        if errors:
            raise errors.pop()
        return side.url

    async with side.listening() as http, SocketMode(http, address, echo, asyncio.Semaphore(1), timing=PACE):
        assert await side.heard.get() == {"envelope_id": "1"}


@pytest.mark.parametrize("address", ["{side}/gone?ticket={ticket}", "http:{ticket}", "wss://[?ticket={ticket}"])
async def test_why_there_is_no_connection_tells_no_ticket(address):
    side, ticket = Side(HELLO), "0123456789abcdef"

    async def given() -> str:
        return address.format(side=side.url, ticket=ticket)

    pace = replace(PACE, first_hello_within_s=0.3)
    with capture_logs() as logs:
        async with side.listening() as http:
            with pytest.raises(ConnectionRefused) as refused:
                async with SocketMode(http, given, echo, asyncio.Semaphore(1), timing=pace):
                    pass
    assert "socket.reconnects" in [each["event"] for each in logs]
    assert ticket not in f"{refused.value} {logs}"


async def test_how_long_slack_asks_to_wait_is_waited():
    side, asked_at = Side(HELLO), []

    async def address() -> str:
        asked_at.append(asyncio.get_running_loop().time())
        if len(asked_at) == 1:
            raise NotOpened("ratelimited", 0.1)
        return side.url

    async with side.listening() as http, SocketMode(http, address, echo, asyncio.Semaphore(1), timing=PACE):
        pass
    assert asked_at[1] - asked_at[0] >= 0.1


async def test_a_session_whose_calls_must_be_quick_does_not_cut_a_connection():
    side = Side(HELLO)
    async with side.listening():
        quick = aiohttp.ClientTimeout(total=0.1)
        async with (
            aiohttp.ClientSession(timeout=quick) as http,
            SocketMode(
                http, side.address, echo, asyncio.Semaphore(1), timing=replace(PACE, suspend_check_s=0.02)
            ) as socket_mode,
        ):
            await asyncio.sleep(0.3)  # what would cut it is a timer
            assert (socket_mode.connections, side.connections) == (1, 1)
