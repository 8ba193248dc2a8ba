from __future__ import annotations

import asyncio
import logging
import re
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest
from playwright.async_api import async_playwright
from slack_bolt.adapter.socket_mode.aiohttp import AsyncSocketModeHandler
from slack_bolt.async_app import AsyncApp
from slack_sdk.web.async_client import AsyncWebClient

from local_slack import LocalSlack

if TYPE_CHECKING:
    pass

Json = dict[str, Any]


@dataclass
class Bot:
    """A real Bolt app over a real socket that writes down all events it gets, its own too."""

    app: AsyncApp
    handler: AsyncSocketModeHandler
    client: AsyncWebClient
    events: list[Json] = field(default_factory=list)
    heard: asyncio.Condition = field(default_factory=asyncio.Condition)

    async def event(self, wanted):
        """Return the first event like this, waiting for it if need be."""
        async with asyncio.timeout(5), self.heard:
            await self.heard.wait_for(lambda: any(map(wanted, self.events)))
            return next(filter(wanted, self.events))

    async def events_until(self, ts):
        """Return what came up to the message with this ts, without it."""
        last = await self.event(lambda e: e.get("ts") == ts and e["type"] == "message")
        return self.events[: self.events.index(last)]


@asynccontextmanager
async def connected_bot(slack, ping_interval_s=10):
    client = AsyncWebClient(token=slack.bot_token, base_url=slack.api_url)
    logger = logging.getLogger("bolt")
    app = AsyncApp(client=client, logger=logger, ignoring_self_events_enabled=False)
    handler = AsyncSocketModeHandler(app, slack.app_token, ping_interval=ping_interval_s)
    bot = Bot(app, handler, client)

    @app.event(re.compile(".*"))
    async def write_down(event):
        async with bot.heard:
            bot.events.append(event)
            bot.heard.notify_all()

    await handler.connect_async()
    try:
        yield bot
    finally:
        await handler.close_async()


class RawSocket:
    """One Socket Mode connection without an SDK, to see every frame and to ack by hand."""

    def __init__(self, socket):
        self.socket = socket

    async def frame(self, timeout_s=5):
        frame: Json = await self.socket.receive_json(timeout=timeout_s)
        return frame

    async def ack(self, frame):
        await self.socket.send_json({"envelope_id": frame["envelope_id"]})

    async def acked_event(self):
        frame = await self.frame()
        await self.ack(frame)
        event: Json = frame["payload"]["event"]
        return event


class RawSockets:
    def __init__(self, slack, session):
        self._slack = slack
        self._opened: list[RawSocket] = []
        self.session = session

    async def url(self):
        headers = {"Authorization": f"Bearer {self._slack.app_token}"}
        async with self.session.post(self._slack.api_url + "apps.connections.open", headers=headers) as answer:
            return str((await answer.json())["url"])

    async def open(self):
        """Open a connection and read its hello."""
        raw = RawSocket(await self.session.ws_connect(await self.url()))
        # aiohttp closes a socket that nobody holds.
        self._opened.append(raw)
        assert (await raw.frame())["type"] == "hello"
        return raw


@pytest.fixture
async def slack():
    async with LocalSlack() as workspace:
        yield workspace


@pytest.fixture
async def session():
    async with aiohttp.ClientSession() as http:
        yield http


@pytest.fixture
def raw_sockets(session):
    return lambda slack: RawSockets(slack, session)


@pytest.fixture
def client(slack, session):
    """Speak as the bot."""
    return AsyncWebClient(token=slack.bot_token, base_url=slack.api_url, session=session, retry_handlers=[])


@pytest.fixture
async def connect():
    """Connect bots that are closed at the end of the test."""
    async with AsyncExitStack() as stack:

        async def enter(slack, ping_interval_s=10):
            return await stack.enter_async_context(connected_bot(slack, ping_interval_s))

        yield enter


@pytest.fixture
async def bot(slack):
    async with connected_bot(slack) as listening:
        yield listening


@pytest.fixture
async def page(chromium_address):
    """A window in which no script fails and the page's own policy forbids nothing that it does."""
    complaints: list[str] = []
    async with async_playwright() as playwright:
        browser = await playwright.chromium.connect_over_cdp(chromium_address)
        page = await browser.new_page(viewport={"width": 1280, "height": 800})
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("console", lambda said: complaints.append(said.text) if said.type == "error" else None)
        yield page
        await browser.close()
    assert not complaints
