"""A local Slack, its bot, and people and connections in it."""

from __future__ import annotations

import asyncio
import logging
import re
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import pytest
from chromium import connected_to
from slack_bolt.adapter.socket_mode.aiohttp import AsyncSocketModeHandler
from slack_bolt.async_app import AsyncApp
from slack_sdk.web.async_client import AsyncWebClient

from local_slack import LocalSlack


class FakeClock:
    def __init__(self):
        self.now = 1_700_000_000.0

    def __call__(self):
        return self.now

    def advance(self, seconds):
        self.now += seconds


@dataclass
class Bot:
    """A Bolt app over Socket Mode that records all events, its own too."""

    app: AsyncApp
    client: AsyncWebClient
    events: list[dict[str, Any]] = field(default_factory=list)
    received: asyncio.Condition = field(default_factory=asyncio.Condition)

    async def event(self, wanted):
        """Wait for the first event that fulfils the condition."""
        async with asyncio.timeout(5), self.received:
            await self.received.wait_for(lambda: any(map(wanted, self.events)))
            return next(filter(wanted, self.events))

    async def events_until(self, ts):
        """Return the events before the message with this ts."""
        last = await self.event(lambda e: e.get("ts") == ts and e["type"] == "message")
        return self.events[: self.events.index(last)]


@asynccontextmanager
async def connected_bot(slack, ping_interval_s=10):
    client = AsyncWebClient(token=slack.bot_token, base_url=slack.api_url)
    app = AsyncApp(client=client, logger=logging.getLogger("bolt"), ignoring_self_events_enabled=False)
    handler = AsyncSocketModeHandler(app, slack.app_token, ping_interval=ping_interval_s)
    bot = Bot(app, client)

    @app.event(re.compile(".*"))
    async def record(event):
        async with bot.received:
            bot.events.append(event)
            bot.received.notify_all()

    await handler.connect_async()
    try:
        yield bot
    finally:
        await handler.close_async()


class RawSocket:
    """A Socket Mode connection without an SDK, for single frames and acknowledgements."""

    def __init__(self, socket):
        self.socket = socket

    async def frame(self, timeout_s=5):
        return await self.socket.receive_json(timeout=timeout_s)

    async def ack(self, frame):
        await self.socket.send_json({"envelope_id": frame["envelope_id"]})

    async def acked_event(self):
        frame = await self.frame()
        await self.ack(frame)
        return frame["payload"]["event"]


class RawSockets:
    def __init__(self, slack, session):
        self._slack = slack
        self._opened = []
        self.session = session

    async def url(self):
        headers = {"Authorization": f"Bearer {self._slack.app_token}"}
        async with self.session.post(self._slack.api_url + "apps.connections.open", headers=headers) as answer:
            return str((await answer.json())["url"])

    async def connect(self, **options):
        """Open a connection whose hello is not read yet."""
        return await self.session.ws_connect(await self.url(), **options)

    async def open(self):
        """Open a connection and read its hello."""
        raw = RawSocket(await self.connect())
        self._opened.append(raw)  # aiohttp closes a socket without a reference
        assert (await raw.frame())["type"] == "hello"
        return raw


@pytest.fixture
def clock():
    return FakeClock()


@pytest.fixture
async def slack(request):
    """A local Slack with the options of the test's `slack` marker; with the fake clock if the test uses `clock`."""
    options = {key: value for marker in request.node.iter_markers("slack") for key, value in marker.kwargs.items()}
    if "clock" in request.fixturenames:
        options["clock"] = request.getfixturevalue("clock")
    async with LocalSlack(**options) as slack:
        yield slack


@pytest.fixture
def ana(slack):
    return slack.as_person("ana")


@pytest.fixture
async def session():
    async with aiohttp.ClientSession() as session:
        yield session


@pytest.fixture
def client(slack, session):
    """The Web API client of the bot."""
    return AsyncWebClient(token=slack.bot_token, base_url=slack.api_url, session=session, retry_handlers=[])


@pytest.fixture
def raw_sockets(session):
    return lambda slack: RawSockets(slack, session)


@pytest.fixture
def sockets(slack, session):
    return RawSockets(slack, session)


@pytest.fixture
async def socket(sockets):
    return await sockets.open()


@pytest.fixture
async def connect():
    """Connect bots until the end of the test."""
    async with AsyncExitStack() as stack:

        async def enter(slack, ping_interval_s=10):
            return await stack.enter_async_context(connected_bot(slack, ping_interval_s))

        yield enter


@pytest.fixture
async def bot(slack):
    async with connected_bot(slack) as bot:
        yield bot


@pytest.fixture
async def page(chromium_address):
    """A browser window; no script may fail or violate the page's content security policy."""
    errors = []
    async with connected_to(chromium_address) as browser:
        page = await browser.new_page(viewport={"width": 1280, "height": 800})
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.on("console", lambda line: errors.append(line.text) if line.type == "error" else None)
        yield page
    assert not errors
