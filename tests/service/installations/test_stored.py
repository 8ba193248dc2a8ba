"""Tokens of installations: encrypted, renewed in time by one replica, and gone with their installation."""

from __future__ import annotations

import asyncio
import base64
from contextlib import aclosing

import pytest
from installing import calls, code_of
from slack_sdk.errors import SlackApiError
from slack_sdk.oauth.installation_store import Installation as SlackInstallation
from slack_sdk.web.async_client import AsyncWebClient

from connector.setup import Installation, NotInstalled
from local_slack import BlockUntil, ErrorResponse, LocalSlack, ServerError
from local_slack import Client as SlackApp
from orchestrator_interactive.storage.retry import StoreRetryPolicy, retrying
from service.config.credentials import Client
from service.installations.stored import StoredInstallations, StoredStates
from service.store import open_run_store
from service.vault import Vault

OLD, NEW = (base64.b64encode(bytes([number]) * 32).decode() for number in (1, 2))
RETURN = "http://127.0.0.1/r"
LIFE_S = 43_200.0


class Clock:
    now_s = 1_795_000_000.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
async def slack(clock):
    async with LocalSlack(client=SlackApp("1.2", "s3cret"), installed=(), rotation_s=LIFE_S, clock=clock) as slack:
        yield slack


@pytest.fixture
async def store(url):
    async with aclosing(await open_run_store(url)) as store:
        yield store


@pytest.fixture
async def replica(slack, store, clock):
    """Create the installations of one more replica."""

    def replica(keys=None, *, renews=True, store=store):
        client = Client("1.2", "s3cret") if renews else None
        web = AsyncWebClient(base_url=slack.api_url)
        vault = Vault(keys or {"k1": OLD})
        return StoredInstallations(retrying(store, StoreRetryPolicy()), vault, client, web, clock)

    return replica


@pytest.fixture
def install(slack, clock):
    """Install the app in the first workspace, as the page of a replica does."""

    async def install(stored):
        web, code = AsyncWebClient(base_url=slack.api_url), await code_of(slack, slack.team_id, RETURN)
        answer = await web.oauth_v2_access(client_id="1.2", client_secret="s3cret", code=code, redirect_uri=RETURN)
        await stored.async_save(
            SlackInstallation(
                user_id=slack.person("ana").id,
                team_id=slack.team_id,
                team_name="Playground",
                bot_token=answer["access_token"],
                bot_refresh_token=answer["refresh_token"],
                bot_token_expires_at=int(clock.now_s) + answer["expires_in"],
            )
        )

    return install


@pytest.fixture
async def stored(replica, install):
    """A replica with an installation in the first workspace."""
    await install(stored := replica())
    return stored


class SlowToDelete:
    """A store in which something happens just before a document is deleted."""

    def __init__(self, store, before):
        self._store = store
        self._before = before

    def __getattr__(self, name):
        return getattr(self._store, name)

    async def delete_document(self, *arguments):
        await self._before()
        return await self._store.delete_document(*arguments)


async def is_valid(slack, token) -> bool:
    return (await AsyncWebClient(token, base_url=slack.api_url).auth_test())["team_id"] == slack.team_id


async def test_one_of_many_replicas_renews_a_token_two_hours_before_its_end(stored, replica, slack, clock):
    others = [replica() for _ in range(5)]
    first = await stored.token(slack.team_id)
    clock.now_s += LIFE_S - 7_300
    assert {await each.token(slack.team_id) for each in (stored, *others)} == {first}
    clock.now_s += 200
    found = await asyncio.gather(*(each.token(slack.team_id) for each in (stored, *others) for _ in range(3)))
    assert len(calls(slack, "oauth.v2.access")) == 2
    for token in set(found):
        assert await is_valid(slack, token)
    clock.now_s += 11
    [renewed] = {await each.token(slack.team_id) for each in (stored, *others)}
    assert renewed != first
    clock.now_s += 7_300  # the first one has expired
    assert await is_valid(slack, await stored.token(slack.team_id))


async def test_a_renewal_is_stored_although_its_caller_is_cancelled_and_others_write(stored, replica, slack, clock):
    first = await stored.token(slack.team_id)
    clock.now_s += LIFE_S - 7_000
    slack.faults.next("oauth.v2.access", BlockUntil(go := asyncio.Event()))
    asking = asyncio.create_task(stored.token(slack.team_id))
    while slack.faults.pending("oauth.v2.access"):  # noqa: ASYNC110 - until the call has arrived
        await asyncio.sleep(0)
    asking.cancel()
    other = replica({"k2": NEW, "k1": OLD})  # it does not encrypt the old token anew over the claim
    assert await other.token(slack.team_id) == first
    go.set()
    await stored.drained()
    clock.now_s += 11
    renewed = await other.token(slack.team_id)
    assert renewed != first
    assert await is_valid(slack, renewed)


@pytest.mark.parametrize("fault", [ErrorResponse("internal_error"), ServerError(503)])
async def test_a_renewal_that_slack_refuses_is_repeated_after_a_minute(stored, slack, clock, fault):
    first = await stored.token(slack.team_id)
    clock.now_s += LIFE_S - 7_000
    slack.faults.next("oauth.v2.access", fault)
    assert await stored.token(slack.team_id) == first
    clock.now_s += 11
    assert await stored.token(slack.team_id) == first
    clock.now_s += 61
    assert await stored.token(slack.team_id) != first


async def test_no_token_is_readable_in_the_store_and_a_new_key_takes_over(stored, replica, store, slack, clock):
    token = await stored.token(slack.team_id)
    document = (await store.documents("installations"))[slack.team_id]
    assert token not in str(document)
    assert document["sealed"].startswith("k1.")
    assert await replica({"k2": NEW, "k1": OLD}).token(slack.team_id) == token
    document = (await store.documents("installations"))[slack.team_id]
    assert document["sealed"].startswith("k2.")
    assert await replica({"k2": NEW}).token(slack.team_id) == token
    with pytest.raises(NotInstalled):
        await replica().token(slack.team_id)  # the key is missing
    moved = {**document, "team": "T9OTHER"}
    await store.put_document("installations", "T9OTHER", moved)
    with pytest.raises(NotInstalled):
        await replica({"k2": NEW}).token("T9OTHER")


async def test_an_end_removes_an_installation_whose_token_slack_refuses(stored, slack, clock):
    assert list(await stored.all()) == [Installation(slack.team_id)]
    await stored.end(slack.team_id)
    assert list(await stored.all()) == [Installation(slack.team_id)]
    [listed] = await stored.listed()
    assert (listed.name, listed.by) == ("Playground", slack.person("ana").id)
    slack.faults.next("auth.test", ServerError(503))
    with pytest.raises(SlackApiError):
        await stored.end(slack.team_id)
    slack.uninstall()
    await stored.end(slack.team_id)
    assert list(await stored.all()) == []
    with pytest.raises(NotInstalled):
        await stored.token(slack.team_id)
    await stored.end(slack.team_id)


async def test_an_installation_that_is_made_again_during_the_end_of_the_earlier_one_stays(  # noqa: PLR0917 - fixtures
    stored, replica, install, store, slack, clock
):
    slack.uninstall()
    other = replica(store=SlowToDelete(store, lambda: install(stored)))
    await other.end(slack.team_id)
    assert list(await other.all()) == [Installation(slack.team_id)]
    assert await is_valid(slack, await other.token(slack.team_id))


async def test_a_command_renews_no_token(stored, replica, slack, clock):
    first = await stored.token(slack.team_id)
    clock.now_s += LIFE_S - 60
    assert await replica(renews=False).token(slack.team_id) == first


async def test_a_state_is_valid_once_and_for_ten_minutes_at_every_replica(store, clock):
    class AtOnce:
        """Two uses that are stored once both are about to be."""

        documents = store.documents
        both = asyncio.Barrier(2)

        async def replace_document(self, *arguments):
            await self.both.wait()
            return await store.replace_document(*arguments)

    first, second, there = (StoredStates(each, Vault({"k1": OLD}), clock) for each in (AtOnce(), AtOnce(), store))
    state, late = await there.async_issue(), await there.async_issue()
    assert sorted(await asyncio.gather(first.async_consume(state), second.async_consume(state))) == [False, True]
    assert not await there.async_consume(state)
    assert not await there.async_consume("guess")
    clock.now_s += 601
    assert not await there.async_consume(late)
