"""The accounts of people at servers with OAuth: stored tokens, their renewal, and the login."""

from __future__ import annotations

import asyncio
import time
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

import httpx2
import structlog
from mcp.client.auth import OAuthClientProvider, OAuthFlowError
from mcp.shared.auth import (
    AuthorizationCodeResult,
    OAuthClientInformationFull,
    OAuthClientMetadata,
    OAuthMetadata,
    OAuthToken,
)
from pydantic import ValidationError

from orchestrator_interactive.modules.tool_mcp.answers import UNCOMPRESSED, LimitedStream
from orchestrator_interactive.modules.tool_mcp.options import OAuthOptions, is_safe
from orchestrator_interactive.modules.tool_mcp.results import one_line
from orchestrator_interactive.modules.tool_web.addresses import refused_kind
from orchestrator_interactive.modules.tool_web.download import resolved

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable

    from orchestrator_interactive.kernel.coordinator import ModuleCoordinator
    from orchestrator_interactive.modules.tool_mcp.options import ServerOptions

log = structlog.get_logger(__name__)

_POLL_S = 1.0
_REQUEST_TIMEOUT_S = 15.0  # until a connection, or a piece of an answer
_EXCHANGE_TIMEOUT_S = 45.0  # until the end of an answer
_ANSWER_BYTES = 1024 * 1024
_MARGIN_S = 30.0
_UNAUTHORIZED = 401
_CLIENT_NAME = "amplifier-slack"


class LoginRefused(Exception):  # noqa: N818 - an answer
    """The person is not connected; the message is a sentence for the model."""


@dataclass(slots=True)
class _Stored:
    """The stored data of an account; implements the SDK's `TokenStorage`."""

    tokens: OAuthToken | None = None
    client: OAuthClientInformationFull | None = None
    metadata: OAuthMetadata | None = None
    expires_s: float | None = None

    async def get_tokens(self) -> OAuthToken | None:
        return self.tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        self.tokens = tokens
        self.expires_s = None if tokens.expires_in is None else time.time() + tokens.expires_in

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return self.client

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        self.client = client_info

    @property
    def is_valid(self) -> bool:
        is_current = self.expires_s is None or time.time() < self.expires_s - _MARGIN_S
        return self.tokens is not None and is_current

    def to_dict(self) -> dict[str, Any]:
        return {
            "tokens": self.tokens and self.tokens.model_dump(mode="json"),
            "client": self.client and self.client.model_dump(mode="json", exclude_none=True),
            "metadata": self.metadata and self.metadata.model_dump(mode="json", exclude_none=True),
            "expires_s": self.expires_s,
        }

    @classmethod
    def of(cls, stored: dict[str, Any] | None) -> _Stored:
        found = stored or {}
        try:
            return cls(
                OAuthToken.model_validate(found["tokens"]) if found.get("tokens") else None,
                OAuthClientInformationFull.model_validate(found["client"]) if found.get("client") else None,
                OAuthMetadata.model_validate(found["metadata"]) if found.get("metadata") else None,
                found.get("expires_s"),
            )
        except ValidationError:  # written by another version
            return cls()


class _RenewedElsewhere(Exception):  # noqa: N818 - it is no error
    """Another process has renewed the tokens in the meantime."""

    def __init__(self, stored: _Stored) -> None:
        self.stored = stored


class BearerAuth(httpx2.Auth):
    """Adds the token of an account to requests, and notes that the server refuses it."""

    def __init__(self, account: Account) -> None:
        self._account = account

    async def async_auth_flow(self, request: httpx2.Request) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        """Authenticate a request."""
        if self._account.token:
            request.headers["Authorization"] = f"Bearer {self._account.token}"
        response = yield request
        if response.status_code == _UNAUTHORIZED:
            self._account.refusal = response.headers.get("WWW-Authenticate", "")


@dataclass(eq=False)
class Account:
    """The account of one person at one server, of all sessions of this process.

    Args:
        token: the access token of the latest `ensure`.
        refusal: the header by which the server refused the token; `None`: it did not.
    """

    server: str
    options: ServerOptions
    person: str
    token: str = ""
    refusal: str | None = None
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def ensure(self, coordinator: ModuleCoordinator, login: Callable[[str], Awaitable[str]]) -> None:
        """Get a valid token: the stored one, a renewed one, or by a login.

        `login` shows the person a link, and waits until it is cancelled, or returns why there is no login.

        Raises:
            LoginRefused: there is none.
        """
        load, save, begin, result = (
            coordinator.get_capability(f"credentials.{name}") for name in ("load", "save", "begin", "result")
        )
        if load is None or save is None or begin is None or result is None:
            raise LoginRefused(f"No one can connect an account of '{self.server}' here: the service has no public URL.")
        async with self._lock:  # renewals replace the token; a second login would confuse people
            where = {"server": self._name, "person": self.person}
            known = (await load(**where))["data"]
            stored = _Stored.of(known)
            was_refused = self.refusal is not None and stored.tokens is not None
            is_known = stored.tokens is not None and stored.tokens.access_token == self.token
            challenge, self.refusal = self.refusal or "", None
            if not stored.is_valid or (was_refused and is_known):
                flow = _Flow(self, stored, challenge, partial(load, **where), begin, result, login)
                try:
                    await flow.run(is_refused=was_refused and is_known)
                except _RenewedElsewhere as e:
                    stored = e.stored
                except (OAuthFlowError, httpx2.HTTPError, httpx2.StreamError, ValidationError) as e:
                    log.warning("mcp.login_failed", server=self.server, error=str(e)[:500])
                    why = one_line(str(e), 200)
                    raise LoginRefused(f"The account at '{self.server}' could not be connected: {why}") from e
                else:
                    # A renewal replaces the renewed tokens only, so that it does not undo a disconnection.
                    replaced = {} if flow.has_link else {"known": known}
                    await save(**where, data=stored.to_dict(), **replaced)
            assert stored.tokens is not None  # noqa: S101 - `run` raises otherwise
            self.token = stored.tokens.access_token

    @property
    def _name(self) -> str:
        return account_name(self.server, self.options)


def account_name(server: str, options: ServerOptions) -> str:
    """Return the name under which accounts are stored: if the address changes, the tokens must not go there."""
    return f"{server} {options.url}"


async def _limit(response: httpx2.Response) -> None:
    response.stream = LimitedStream(response, _ANSWER_BYTES)


@asynccontextmanager
async def _in_time() -> AsyncIterator[None]:
    """Limit the time of an exchange, also with a server that sends its answer slowly."""
    try:
        async with asyncio.timeout(_EXCHANGE_TIMEOUT_S):
            yield
    except TimeoutError as e:
        raise OAuthFlowError(f"the server did not answer within {_EXCHANGE_TIMEOUT_S:g} seconds") from e


class _Flow:
    """One renewal or login, by the SDK's flow; its requests are sent here, without the one to the server itself."""

    def __init__(  # noqa: PLR0913, PLR0917 - the parts of a login
        self,
        account: Account,
        stored: _Stored,
        challenge: str,
        load: Callable[..., Awaitable[Any]],
        begin: Callable[..., Awaitable[Any]],
        result: Callable[..., Awaitable[Any]],
        login: Callable[[str], Awaitable[str]],
    ) -> None:
        self._account = account
        self._stored = stored
        self._known_token = stored.tokens and stored.tokens.access_token
        self._challenge = challenge
        self._load = load
        self._begin = begin
        self._result = result
        self._login = login
        self._state = ""
        self._link = ""

    @property
    def has_link(self) -> bool:
        """Whether a person was to log in."""
        return bool(self._link)

    async def run(self, *, is_refused: bool) -> None:
        """Fill in the tokens.

        Raises:
            LoginRefused: the person did not log in.
            _RenewedElsewhere: no login is needed.
            OAuthFlowError, HTTPError, StreamError, ValidationError: the flow failed.
        """
        place = await self._begin(server=self._account.server, person=self._account.person)
        if not place["redirect_url"]:
            raise LoginRefused(
                f"No one can connect an account of '{self._account.server}' here: the service has no public URL. "
                "An operator sets `connections.public_url`."
            )
        provider = self._provider(place["redirect_url"])
        if is_refused and not (self._stored.tokens and self._stored.tokens.refresh_token):
            self._stored.tokens = None
        url = self._account.options.url
        probe = httpx2.Request("POST", url, headers={"MCP-Protocol-Version": "2025-11-25"})
        flow = provider.async_auth_flow(probe)
        async with httpx2.AsyncClient(
            headers=UNCOMPRESSED, timeout=_REQUEST_TIMEOUT_S, event_hooks={"response": [_limit]}
        ) as http:
            if not self._challenge:
                async with _in_time():
                    self._challenge = await self._challenge_of(http, url)
            request, is_challenged = await anext(flow), False
            try:
                while True:
                    if request is probe and (is_challenged or provider.context.is_token_valid()):
                        break
                    if request is probe:
                        is_challenged = True
                        header = {"WWW-Authenticate": self._challenge} if self._challenge else {}
                        response = httpx2.Response(_UNAUTHORIZED, headers=header, request=probe)
                    else:
                        async with _in_time():
                            request.headers.update(UNCOMPRESSED)
                            response = await self._send(http, request)
                    request = await flow.asend(response)
            finally:
                await flow.aclose()
        self._stored.metadata = provider.context.oauth_metadata
        if self._stored.tokens is None:
            raise OAuthFlowError("there is no token")

    async def _send(self, http: httpx2.AsyncClient, request: httpx2.Request) -> httpx2.Response:
        """Send a request of the flow; to another host than the server's, only to its public addresses.

        Raises:
            OAuthFlowError: the address must not be used.
            HTTPError, StreamError: there is no response, or it is too large.
        """
        self._check(str(request.url))
        if request.url.host == urlsplit(self._account.options.url).hostname:
            return await http.send(request)
        host = request.url.raw_host.decode("ascii")
        extensions = {**request.extensions, "sni_hostname": host}
        failed: httpx2.HTTPError = httpx2.ConnectError(f"{host} has no address")
        for address in await self._addresses(host, request.url.port or 443):
            url = request.url.copy_with(host=address)  # the header `Host` is set already
            pinned = httpx2.Request(
                request.method, url, headers=request.headers, stream=request.stream, extensions=extensions
            )
            try:
                response = await http.send(pinned)
            except (httpx2.ConnectError, httpx2.ConnectTimeout) as e:
                failed = e
            else:
                response.request = request
                return response
        raise failed

    async def _addresses(self, host: str, port: int) -> list[str]:
        """Return the addresses of a host that the server names, if all of them may be connected to."""
        try:
            async with asyncio.timeout(_REQUEST_TIMEOUT_S):
                found = await resolved(host, port)
        except (OSError, UnicodeError) as e:
            raise OAuthFlowError(f"the server names a host that is not known: {one_line(host, 200)}") from e
        for address in found:
            if kind := refused_kind(address, allow_private=self._account.options.allow_private):
                log.warning("mcp.address_refused", server=self._account.server, host=host, address=address, kind=kind)
                raise OAuthFlowError(f"the server names a host that is not public ({kind}): {one_line(host, 200)}")
        return found

    @staticmethod
    async def _challenge_of(http: httpx2.AsyncClient, url: str) -> str:
        """Return the header of the server's answer to a request without a token; blank: it has none."""
        ping = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
        accept = {"Accept": "application/json, text/event-stream"}
        async with http.stream("POST", url, json=ping, headers=accept) as response:
            return response.headers.get("WWW-Authenticate", "") if response.status_code == _UNAUTHORIZED else ""

    def _provider(self, redirect_url: str) -> OAuthClientProvider:
        auth, stored = self._account.options.auth, self._stored
        metadata = OAuthClientMetadata.model_validate(
            {
                "client_name": _CLIENT_NAME,
                "redirect_uris": [redirect_url],
                "grant_types": ["authorization_code", "refresh_token"],
                "response_types": ["code"],
                "token_endpoint_auth_method": "none",
            }
        )
        if isinstance(auth, OAuthOptions):
            how = "client_secret_post" if auth.client_secret else "none"
            stored.client = OAuthClientInformationFull.model_validate(
                {
                    **metadata.model_dump(mode="json", exclude_none=True),
                    "client_id": auth.client_id,
                    "client_secret": auth.client_secret or None,
                    "token_endpoint_auth_method": how,
                }
            )
        elif stored.client is not None and redirect_url not in map(str, stored.client.redirect_uris or ()):
            stored.client = None  # the service has moved
        provider = OAuthClientProvider(self._account.options.url, metadata, stored, self._show, self._wait)
        if stored.tokens is not None:
            provider.context.oauth_metadata = stored.metadata
            provider.context.token_expiry_time = 1.0  # renew it
        return provider

    def _check(self, url: str) -> None:
        """Refuse a URL that the server names, unless it is safe or at the server itself."""
        ours, theirs = urlsplit(self._account.options.url), urlsplit(url)
        is_local = theirs.scheme == "http"
        if not is_safe(url) or (is_local and ours.hostname != theirs.hostname):
            raise OAuthFlowError(f"the server names an address that is not safe: {one_line(url, 200)}")

    async def _show(self, url: str) -> None:
        self._check(url)
        if self._known_token:  # a refresh token can be used once: another process may have used it
            found = _Stored.of((await self._load())["data"])
            if found.is_valid and found.tokens and found.tokens.access_token != self._known_token:
                raise _RenewedElsewhere(found)
        [self._state] = parse_qs(urlsplit(url).query)["state"]
        found = await self._begin(server=self._account.server, person=self._account.person, url=url, state=self._state)
        self._link = found["link"]

    async def _wait(self) -> AuthorizationCodeResult:
        """Show the link, and wait for the login, or until the person declines."""
        asking = asyncio.ensure_future(self._login(self._link))
        try:
            while not asking.done():
                found = await self._result(state=self._state)
                if found.get("error"):
                    raise OAuthFlowError(f"the server refused the login: {one_line(found['error'], 200)}")
                if found.get("code"):
                    return AuthorizationCodeResult(code=found["code"], state=self._state, iss=found.get("iss"))
                await asyncio.wait({asking}, timeout=_POLL_S)
            raise LoginRefused(await asking)
        finally:
            asking.cancel()
