"""Accounts of people at an MCP server: the login by a private link, and whose account a call uses."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import re
import ssl
import subprocess
from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass
from functools import partial
from typing import Any

import aiohttp
import pytest
from mcp_oauth_server import OAuthServer
from ports import free_port
from pydantic import ValidationError

from connector.protocols import InboxEntry, PersonAnswer
from orchestrator_interactive.interactions.records import Key
from orchestrator_interactive.kernel import AmplifierSession
from orchestrator_interactive.kernel.tool_support import CallContext, current_call
from orchestrator_interactive.modules import tool_mcp
from orchestrator_interactive.modules.tool_mcp import session as mcp_session
from orchestrator_interactive.storage.retry import StoreRetryPolicy, retrying
from service.administration.people import erase, messages_of
from service.config.connections import ConnectionsConfig
from service.connections.server import ConnectionServer
from service.connections.stored import StoredConnections
from service.sessions.people import SessionPeople
from service.store import open_log_store, open_run_store
from service.vault import Sealed, Vault

TEAM = "T1"
KEY = Key(f"{TEAM}:C1:1700000000.000100", "alpha")
WITHIN_S = 20.0


def new_key() -> str:
    return base64.b64encode(os.urandom(32)).decode()


class Asked:
    """People who are asked; they answer when the test lets them."""

    owner = "UADA"

    def __init__(self) -> None:
        self.requests: list[Any] = []
        self.came = asyncio.Event()
        self.answer: asyncio.Future[PersonAnswer] = asyncio.get_running_loop().create_future()
        self.begun: set[str] = set()

    async def ask(self, request: Any) -> PersonAnswer:
        self.requests.append(request)
        self.came.set()
        return await asyncio.shield(self.answer)

    @property
    def unbegun(self) -> frozenset[str]:
        return frozenset(each.id for each in self.requests) - self.begun

    async def start(self, request_id: str, digest: str, *, repeatable: bool = False) -> str | None:
        assert digest in {each.digest for each in self.requests if each.id == request_id}
        self.begun.add(request_id)
        return None


class House:
    """A service with a store, the pages of logins, and sessions with one MCP server."""

    def __init__(self, stack: AsyncExitStack, server: OAuthServer, store: Any, keys: dict[str, str]) -> None:
        self._stack = stack
        self.server = server
        self.store = store
        self.now_s = 1_000_000.0
        port = free_port()
        self.url = f"http://127.0.0.1:{port}"
        self.config = ConnectionsConfig(listen=f"127.0.0.1:{port}", public_url=self.url, keys=keys)
        self.connections = self.with_keys(keys)

    def with_keys(self, keys: dict[str, str]) -> StoredConnections:
        return StoredConnections(retrying(self.store, StoreRetryPolicy()), Vault(keys), self.url, lambda: self.now_s)

    async def session(self, **options: Any) -> Session:
        config = {"url": f"{self.server.base}/mcp", "auth": "oauth", "connect_timeout_s": 5, **options}
        session = Session(self, Asked())
        close = await tool_mcp.mount(session.coordinator, {"servers": {"work": config}, "login_timeout_s": 60})
        self._stack.push_async_callback(close)
        return session


class Session:
    def __init__(self, house: House, people: Asked) -> None:
        self.people = people
        self.coordinator = AmplifierSession({"session": {"orchestrator": "o", "context": "c"}}).coordinator
        SessionPeople(KEY, lambda: people, rules=None, without_secrets=str).register(self.coordinator)
        for name, call in house.connections.functions.items():

            async def called(call: Any = call, **arguments: Any) -> Any:
                return await call(KEY, json.loads(json.dumps(arguments)))  # it may be in another process

            self.coordinator.register_capability(name, called)

    @property
    def tools(self) -> list[str]:
        return sorted(self.coordinator.get("tools"))

    async def call(self, name: str, *authors: str) -> str:
        async def found() -> frozenset[str]:
            return frozenset(authors)

        self.context = CallContext("c1", name, {}, lambda: None, found)
        token = current_call.set(self.context)
        try:
            async with asyncio.timeout(WITHIN_S):
                return str((await self.coordinator.get("tools")[name].execute({})).get_serialized_output())
        finally:
            current_call.reset(token)

    async def waiting(self, name: str, *authors: str) -> asyncio.Task[str]:
        """Start a call, and wait until its person is asked to connect an account."""
        call = asyncio.create_task(self.call(name, *authors))
        came = asyncio.create_task(self.people.came.wait())
        await asyncio.wait({call, came}, return_when="FIRST_COMPLETED")
        came.cancel()
        return call

    @property
    def link(self) -> str:
        [found] = re.findall(r"\((http[^)]+)\)", self.people.requests[-1].details)
        return str(found)


@dataclass(frozen=True)
class Slack:
    """An open workspace, for the pages of logins."""

    team: str

    async def name_of(self, user: str) -> str:
        return {"UADA": "Ada <b>", "UBOB": "Bob"}[user]


async def page_of(browser: aiohttp.ClientSession, link: str) -> tuple[int, str]:
    async with browser.get(link) as response:
        return response.status, await response.text()


async def log_in(link: str, browser: aiohttp.ClientSession | None = None) -> str:
    """Open the link, continue to the server, and come back, like a person."""
    async with browser or aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as own:
        status, page = await page_of(own, link)
        assert status == 200, page
        [href] = re.findall(r"<a href='([^']+)'", page)
        return (await page_of(own, href.replace("&amp;", "&")))[1]


@pytest.fixture
async def stack():
    async with AsyncExitStack() as stack:
        yield stack


@pytest.fixture(autouse=True)
def _forget_listings():
    yield
    mcp_session._known_listings.clear()


@pytest.fixture
async def house(stack, tmp_path):
    server = await stack.enter_async_context(OAuthServer())
    store = await stack.enter_async_context(aclosing(await open_run_store(f"sqlite:{tmp_path}/runs.db")))
    house = House(stack, server, store, {"k1": new_key()})
    await stack.enter_async_context(ConnectionServer(house.config, house.connections, {TEAM: Slack(TEAM)}.get))
    return house


async def connected(house: House, person: str = "UADA", account: str = "ada@example.test") -> Session:
    """A session whose person has connected an account, and which knows the tools."""
    house.server.account = account
    session = await house.session()
    call = await session.waiting("work__connect", person)
    await log_in(session.link)
    assert "is connected" in await call
    return session


def before_renewal(session: Session, action: Any) -> None:
    """Take an action when the session has read the account, before it renews the token."""
    begin = session.coordinator.get_capability("credentials.begin")

    async def begun(**arguments: Any) -> Any:
        await action()
        return await begin(**arguments)

    session.coordinator.register_capability("credentials.begin", begun)


async def test_a_call_waits_for_the_login_of_its_person_and_continues(house):
    session = await house.session()
    assert session.tools == ["work__connect"]
    call = await session.waiting("work__connect", "UADA")
    [request] = session.people.requests
    assert (request.person, request.id) == ("UADA", "c1:account")
    assert session.context.is_awaiting  # a suspended run leaves it to its next owner
    assert session.coordinator.get_capability("approvals.is_waiting")("c1")  # who makes it again
    assert "Thank you" in await log_in(session.link)
    assert "Its 1 tools can be used" in await call
    assert not session.coordinator.get_capability("approvals.is_waiting")("c1")
    assert session.tools == ["work__whoami"]
    assert (await session.call("work__whoami", "UADA")).endswith("You are ada@example.test")
    assert (await house.session()).tools == ["work__whoami"]  # a later session knows them
    assert house.server.logins == 1


async def test_tools_that_a_server_adds_are_there_in_the_session_after_the_next_call(house):
    session = await connected(house)
    house.server.tools = [*house.server.tools, {**house.server.tools[0], "name": "new"}]
    second = await house.session()
    assert second.tools == ["work__whoami"]
    await second.call("work__whoami", "UADA")
    assert (await house.session()).tools == ["work__new", "work__whoami"]
    assert session.tools == ["work__whoami"]


async def test_each_person_s_calls_use_their_own_account_and_no_one_else_s(house):
    session = await connected(house)
    house.server.account = "bob@example.test"
    session.people.came.clear()
    steered = await session.waiting("work__whoami", "UBOB")  # Bob's message led to this call, in Ada's run
    assert session.people.requests[-1].person == "UBOB"
    await log_in(session.link)
    assert (await steered).endswith("You are bob@example.test")
    assert (await session.call("work__whoami", "UADA")).endswith("You are ada@example.test")
    assert house.server.calls == ["bob@example.test", "ada@example.test"]


@pytest.mark.parametrize(
    "authors", [("UADA", "UBOB"), ("",), (), ("UADA", "")], ids=["two people", "unknown", "none", "one and unknown"]
)
async def test_a_call_that_several_people_led_to_uses_no_account(house, authors):
    session = await connected(house)
    asked = len(session.people.requests)
    said = await session.call("work__whoami", *authors)
    assert said.startswith("Not started: 'work' needs the account of the person who asked")
    assert len(session.people.requests) == asked
    assert house.server.calls == []


@pytest.mark.parametrize("author", ["trigger", "UADA' OR 1", "*", "../UADA"])
async def test_an_author_who_is_no_person_is_not_asked(house, author):
    session = await house.session()
    assert "No one can be asked" in await session.call("work__connect", author)
    assert session.people.requests == []


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (PersonAnswer("click", (1,), ("UADA",)), "declined"),
        (PersonAnswer("deadline", (1,)), "in time"),
        (PersonAnswer("void", text="The run has ended."), "The run has ended."),
    ],
    ids=["declined", "deadline", "void"],
)
async def test_without_a_login_the_call_ends_with_a_sentence(house, answer, said):
    session = await house.session()
    call = await session.waiting("work__connect", "UADA")
    session.people.answer.set_result(answer)
    result = await call
    assert result.startswith("Not started:")
    assert said in result


async def test_a_login_that_the_person_refuses_at_the_server_ends_the_call(house):
    session = await house.session()
    call = await session.waiting("work__connect", "UADA")
    house.server.account = ""
    assert "did not give access" in await log_in(session.link)
    assert "access_denied" in await call


@pytest.fixture
async def tls_port(house, tmp_path, monkeypatch):
    """The port at which the server is `https://localhost`, too, with a certificate that is trusted."""
    key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", "key", "-out", "cert")
    command = ("openssl", "req", "-x509", *key, "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost")
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)  # noqa: ASYNC221, S603
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(tmp_path / "cert", tmp_path / "key")
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "cert"))
    return await house.server.listen(tls)


@pytest.mark.parametrize("named", ["issuer", "registration_endpoint", "token_endpoint"])
async def test_a_server_cannot_name_a_private_host_for_the_login(house, tls_port, named):
    private = f"https://localhost:{tls_port}"
    if named == "issuer":
        house.server.issuer = private
    else:
        house.server.overrides[named] = (
            f"{private}/{named.removesuffix('_endpoint').replace('registration', 'register')}"
        )
    session = await house.session()
    call = await session.waiting("work__connect", "UADA")
    if named == "token_endpoint":
        await log_in(session.link)
    assert "could not be connected: the server names a host that is not public (loopback): localhost" in await call
    assert house.server.hosts <= {house.server.base.removeprefix("http://")}
    assert house.server.logins == 0


@pytest.mark.parametrize("host", ["169.254.169.254", "[fd00:ec2::254]", "no-such-host.invalid"])
async def test_a_server_cannot_name_a_metadata_service_or_an_unknown_host(house, host):
    house.server.overrides["registration_endpoint"] = f"https://{host}/register"
    session = await house.session(allow_private=True)
    assert "could not be connected: the server names a host" in await session.call("work__connect", "UADA")


async def test_a_private_host_is_used_if_the_configuration_allows_it(house, tls_port):
    for name, path in (("registration_endpoint", "register"), ("token_endpoint", "token")):
        house.server.overrides[name] = f"https://localhost:{tls_port}/{path}"
    session = await house.session(allow_private=True)
    call = await session.waiting("work__connect", "UADA")
    await log_in(session.link)
    assert "is connected" in await call
    assert f"localhost:{tls_port}" in house.server.hosts


async def test_a_token_is_renewed_without_a_question(house):
    house.server._lifetime_s = 1  # it is over at once, with the margin
    session = await connected(house)
    asked = len(session.people.requests)
    for _ in range(2):
        assert (await session.call("work__whoami", "UADA")).endswith("You are ada@example.test")
    assert house.server.renewals >= 2
    assert len(session.people.requests) == asked


async def test_a_token_that_another_process_renews_at_the_same_moment_is_used(house):
    house.server._lifetime_s = 1
    session = await connected(house)
    house.server._lifetime_s = 3600
    other = await house.session(connect_timeout_s=6)  # its account is another object
    before_renewal(other, lambda: session.call("work__whoami", "UADA"))
    assert (await other.call("work__whoami", "UADA")).endswith("You are ada@example.test")
    assert other.people.requests == []
    assert (house.server.renewals, house.server.logins) == (1, 1)


async def test_a_renewed_token_is_kept_if_a_process_with_a_newer_key_uses_the_account_meanwhile(house):
    house.server._lifetime_s = 1
    session = await connected(house)
    newer = house.with_keys({"k2": new_key(), "k1": house.config.keys["k1"].get_secret_value()})
    load = {"server": f"work {house.server.base}/mcp", "person": "UADA"}
    before_renewal(session, lambda: newer.functions["credentials.load"](KEY, load))
    house.server._lifetime_s = 3600
    assert (await session.call("work__whoami", "UADA")).endswith("You are ada@example.test")
    house.connections = newer
    assert (await (await house.session()).call("work__whoami", "UADA")).endswith("You are ada@example.test")
    assert (house.server.renewals, house.server.logins) == (1, 1)


async def test_a_renewal_does_not_undo_a_disconnection(house):
    house.server._lifetime_s = 1
    session = await connected(house)
    before_renewal(session, lambda: house.connections.disconnect(TEAM, "UADA"))
    await session.call("work__whoami", "UADA")
    assert house.server.renewals == 1
    assert await house.connections.of_person(TEAM, "UADA") == {}


async def test_a_token_that_the_server_refuses_is_replaced(house):
    session = await connected(house)
    house.server.tokens.clear()
    assert (await session.call("work__whoami", "UADA")).endswith("You are ada@example.test")
    assert house.server.renewals == 1
    house.server.tokens.clear()
    house.server._refresh.clear()
    session.people.came.clear()
    call = await session.waiting("work__whoami", "UADA")
    await log_in(session.link)
    assert (await call).endswith("You are ada@example.test")
    assert house.server.calls == ["ada@example.test"] * 2  # a refused call was not made twice


async def test_after_a_disconnection_the_account_is_not_used(house):
    session = await connected(house)
    assert list(await house.connections.of_person(TEAM, "UADA")) == ["work"]
    assert await house.connections.disconnect(TEAM, "UADA") == 1
    session.people.came.clear()
    call = await session.waiting("work__whoami", "UADA")
    session.people.answer.set_result(PersonAnswer("click", (1,), ("UADA",)))
    assert "declined" in await call
    assert house.server.calls == []


async def test_no_token_is_readable_in_the_store(house, tmp_path):
    await connected(house)
    stored = b"".join(each.read_bytes() for each in tmp_path.iterdir() if each.is_file())
    assert b"accounts:" in stored
    assert not any(token.encode() in stored for token in house.server.tokens)


async def test_a_new_key_decrypts_what_an_old_one_encrypted_and_a_missing_one_does_not(house):
    await connected(house)
    old = house.config.keys["k1"].get_secret_value()
    load = {"server": f"work {house.server.base}/mcp", "person": "UADA"}
    new, foreign = new_key(), house.with_keys({"k2": new_key()})
    for keys in ({"k1": old, "k2": new}, {"k2": new, "k1": old}, {"k2": new}):  # the use encrypts it anew
        assert (await house.with_keys(keys).functions["credentials.load"](KEY, load))["data"]["tokens"]
    house.connections = house.with_keys({"k2": new})
    assert (await foreign.functions["credentials.load"](KEY, load))["data"] is None
    assert (await house.connections.functions["credentials.load"](KEY, {**load, "person": "UBOB"}))["data"] is None
    assert (await house.connections.functions["credentials.load"](Key("T2:C:1", "a"), load))["data"] is None
    moved = {**load, "server": "work https://elsewhere.test/mcp"}  # the address has changed
    assert (await house.connections.functions["credentials.load"](KEY, moved))["data"] is None


@pytest.mark.parametrize(
    "change", [lambda t: t[:-4] + "AAAA", lambda t: "k9" + t[2:], lambda t: "", lambda t: "k1.%%%", lambda t: "k1."]
)
def test_a_value_that_was_changed_is_not_decrypted(change):
    vault = Vault({"k1": new_key()})
    sealed = vault.seal({"a": 1}, "here")
    assert vault.open(sealed, "here") == {"a": 1}
    for text, place in ((change(sealed), "here"), (sealed, "there")):
        with pytest.raises(Sealed):
            vault.open(text, place)


async def test_the_page_names_the_person_and_what_they_connect(house):
    session = await house.session()
    call = await session.waiting("work__connect", "UADA")
    async with aiohttp.ClientSession() as browser:
        _, page = await page_of(browser, session.link)
    assert "Are you Ada &lt;b&gt;?" in page
    assert "UADA" in page
    assert "127.0.0.1" in page
    call.cancel()


async def test_a_link_works_in_one_browser_and_once(house):
    session = await house.session()
    call = await session.waiting("work__connect", "UADA")
    jar = partial(aiohttp.CookieJar, unsafe=True)
    async with aiohttp.ClientSession(cookie_jar=jar()) as first, aiohttp.ClientSession(cookie_jar=jar()) as second:
        _, page = await page_of(first, session.link)
        [href] = re.findall(r"<a href='([^']+)'", page)
        assert (await page_of(second, session.link))[0] == 410
        # Someone to whom the address of the server was sent, rather than the link, has not read the page.
        assert (await page_of(second, href.replace("&amp;", "&")))[0] in (400, 410)
        async with first.get(href.replace("&amp;", "&"), allow_redirects=False) as response:
            back = response.headers["Location"]
        assert (await page_of(first, back))[0] == 200
        assert (await page_of(first, back))[0] == 410
    assert "is connected" in await call


@pytest.mark.parametrize(
    "path",
    [
        "/connect/T1/guess",
        "/connect/T2/guess",
        "/connect/t1/..%2f..",
        "/connect/T1/" + "a" * 5_000,
        "/oauth/mcp/callback",
        "/oauth/mcp/callback?state=guess&code=x",
        "/oauth/mcp/callback?state=" + "a" * 5_000,
        "/oauth/mcp/callback?state=<script>alert(1)</script>&code=x&error=<script>",
    ],
    ids=["guess", "other-team", "path", "long", "nothing", "guessed-state", "long-state", "script"],
)
async def test_a_page_that_is_not_there_tells_nothing(house, path):
    async with aiohttp.ClientSession(cookies={"connect": "x"}) as browser:
        status, page = await page_of(browser, house.url + path)
    assert status in (400, 404, 410)
    assert "<script>" not in page


async def test_a_link_expires(house):
    session = await house.session()
    call = await session.waiting("work__connect", "UADA")
    house.now_s += 601
    async with aiohttp.ClientSession() as browser:
        assert (await page_of(browser, session.link))[0] == 410
    assert "expired" in await call


@pytest.mark.parametrize(
    "metadata",
    [
        {"authorization_endpoint": "http://evil.test/authorize"},
        {"token_endpoint": "http://169.254.169.254/token", "registration_endpoint": "http://169.254.169.254/register"},
        {"issuer": "https://evil.test"},
    ],
    ids=["plain-http", "metadata-service", "other-issuer"],
)
async def test_a_server_cannot_send_people_or_tokens_to_unsafe_places(house, metadata):
    house.server.overrides = metadata
    session = await house.session()
    said = await session.call("work__connect", "UADA")
    assert said.startswith("Not started:")
    assert session.people.requests == []


@pytest.mark.parametrize(
    "metadata",
    [{"authorization_endpoint": "javascript:alert(1)"}, {"registration_endpoint": "file:///etc/passwd"}],
    ids=["script", "file"],
)
async def test_metadata_that_are_not_valid_are_not_used(house, metadata):
    house.server.overrides = metadata
    session = await house.session()
    call = await session.waiting("work__connect", "UADA")
    async with aiohttp.ClientSession() as browser:
        _, page = await page_of(browser, session.link)
    [href] = re.findall(r"<a href='([^']+)'", page)
    assert href.startswith(f"{house.server.base}/authorize?")  # the place of a server without metadata
    call.cancel()


async def test_an_answer_that_is_too_large_ends_the_login(house):
    house.server.overrides = {"service_documentation": f"https://docs.test/{'x' * 2_000_000}"}
    session = await house.session()
    said = await session.call("work__connect", "UADA")
    assert "could not be connected: the answer of the server has more than 1,048,576 bytes" in said


async def test_a_server_cannot_ask_for_tokens_of_another_resource(house):
    house.server.resource = "https://bank.test/"
    session = await house.session()
    assert "does not match" in await session.call("work__connect", "UADA")
    assert session.people.requests == []


async def test_an_export_lists_the_accounts_without_tokens_and_an_erasure_deletes_them(house, tmp_path):
    await connected(house)
    await house.store.admit(KEY.conversation_id, InboxEntry("T1:C1:1", "message", {}), "alpha")
    async with aclosing(await open_log_store(f"sqlite:{tmp_path}/logs.db")) as logs:
        [exported] = [each async for each in messages_of("UADA", logs, house.store)]
        assert (exported["state"], exported["text"]) == ("connected", "An account of work is connected.")
        assert not any(token in json.dumps(exported) for token in house.server.tokens)
        await erase("UADA", logs, house.store)
        assert await house.connections.of_person(TEAM, "UADA") == {}
        assert [each async for each in messages_of("UADA", logs, house.store)] == []


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"listen": "127.0.0.1:1"}, "needed together"),
        ({"keys": {"k": "c2hvcnQ="}}, "32 bytes"),
        ({"keys": {"k": "%%%"}}, "32 bytes"),
        ({"keys": {"k.1": "x"}}, "pattern"),
        ({"public_url": "http://agents.test"}, "https"),
        ({"public_url": "https://agents.test/?a"}, "https"),
        ({"public_url": "javascript:x"}, "https"),
        ({"listen": "nowhere"}, "listen"),
    ],
)
def test_a_wrong_section_is_refused(given, problem):
    with pytest.raises(ValidationError, match=problem):
        ConnectionsConfig.model_validate(given)


async def test_static_credentials_belong_to_their_person(house):
    house.server.tokens = {"a": "ada@example.test", "b": "bob@example.test"}
    people = {"UADA": {"Authorization": "Bearer a"}, "UBOB": {"Authorization": "Bearer b"}}
    session = await house.session(auth="none", people=people)
    assert "is connected" in await session.call("work__connect", "UADA")
    assert (await session.call("work__whoami", "UBOB")).endswith("You are bob@example.test")
    assert (await session.call("work__whoami", "UADA")).endswith("You are ada@example.test")
    assert "no credentials of UEVE" in await session.call("work__whoami", "UEVE")
    assert "several people" in await session.call("work__whoami", "UADA", "UBOB")
