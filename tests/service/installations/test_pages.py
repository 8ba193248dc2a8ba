"""The pages on which people install the app: their link to Slack, and their answers when an installation fails."""

from __future__ import annotations

import asyncio
import base64
import re
from contextlib import AsyncExitStack, aclosing
from html import unescape
from urllib.parse import parse_qs, urlsplit

import aiohttp
import pytest
from installing import allow, come_back, install
from slack_sdk.web.async_client import AsyncWebClient

from local_slack import BlockUntil, DropBeforeCall, LocalSlack
from local_slack import Client as SlackApp
from orchestrator_interactive.storage.retry import StoreRetryPolicy, retrying
from service.config.connections import ConnectionsConfig
from service.config.credentials import Client
from service.config.installations import InstallationsConfig
from service.connections.server import ConnectionServer
from service.connections.stored import StoredConnections
from service.installations.pages import InstallationPages
from service.installations.stored import StoredInstallations, StoredStates
from service.store import open_run_store
from service.vault import Vault

KEYS = {"k1": base64.b64encode(bytes(32)).decode()}
SLOTS = 20


@pytest.fixture
async def slack():
    async with LocalSlack(client=SlackApp("1.2", "s3cret"), installed=()) as slack:
        yield slack


@pytest.fixture
def public_url(free_port):
    return f"http://127.0.0.1:{free_port}"


@pytest.fixture
async def installations(slack, sqlite_url, public_url):
    """The installations of a service whose pages are open."""
    async with AsyncExitStack() as stack:
        store = await stack.enter_async_context(aclosing(await open_run_store(sqlite_url)))
        web = AsyncWebClient(base_url=slack.api_url, session=await stack.enter_async_context(aiohttp.ClientSession()))
        config = ConnectionsConfig(listen=public_url.removeprefix("http://"), public_url=public_url, keys=KEYS)
        of_all, client = (retrying(store, StoreRetryPolicy()), Vault(KEYS)), Client("1.2", "s3cret")
        installations = StoredInstallations(*of_all, client, web)
        parts = client, public_url, web, installations, StoredStates(*of_all)
        pages = InstallationPages(InstallationsConfig(allow="any"), lambda: ["Alpha"], *parts)
        connections = StoredConnections(*of_all, public_url)
        await stack.enter_async_context(ConnectionServer(config, connections, lambda _: None, pages))
        yield installations


@pytest.mark.parametrize(
    ("given", "team"),
    [("T012AB3CD", ["T012AB3CD"]), ("T1%26scope%3D%26user_scope%3Didentify", None), ("T1%27%3E%3Cb%3E", None)],
)
async def test_a_link_chooses_the_workspace_and_nothing_else(installations, public_url, given, team):
    async with aiohttp.request("GET", f"{public_url}/slack/install?team={given}") as response:
        [link] = re.findall(r"href='([^']+)'>Add to Slack", await response.text())
    asked = parse_qs(urlsplit(unescape(link)).query)
    assert (asked.get("team"), asked.get("user_scope")) == (team, None)
    assert "chat:write" in asked["scope"][0].split(",")


async def tokens_of(installations):
    return [await installations.token(each.id) for each in await installations.all()]


async def test_an_answer_without_a_token_of_the_bot_changes_nothing(installations, slack, public_url):
    await install(public_url, slack.team_id)
    tokens = await tokens_of(installations)
    status, page = await install(public_url, slack.team_id, scope="", user_scope="identify")
    assert (status, "Slack gave no token for the bot" in page) == (403, True)
    assert await tokens_of(installations) == tokens == [slack.bot_token]


async def test_a_connection_that_slack_drops_is_answered_with_a_way_on(installations, slack, public_url):
    slack.faults.next("oauth.v2.access", DropBeforeCall(), times=2)
    status, page = await install(public_url, slack.team_id)
    assert (status, "Slack or the store did not answer" in page, "/slack/install" in page) == (503, True, True)
    status, _ = await install(public_url, slack.team_id)
    assert (status, slack.is_installed) == (200, True)


async def test_few_returns_wait_for_slack_at_once_and_each_is_answered_in_time(installations, slack, public_url):
    returns = [await allow(public_url, slack.team_id) for _ in range(SLOTS + 1)]
    slack.faults.next("oauth.v2.access", BlockUntil(go := asyncio.Event()), times=len(returns))
    async with asyncio.timeout(50):
        answers = await asyncio.gather(*(come_back(*each) for each in returns))
    assert {status for status, _ in answers} == {503}
    assert slack.faults.pending("oauth.v2.access") == 1
    go.set()
