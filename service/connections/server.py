"""The pages of a login: who connects what, and the place to which the browser returns."""

from __future__ import annotations

import asyncio
import html
import re
import secrets
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import structlog
from aiohttp import web

from connector.inbound.bounded_server import BoundedServer
from orchestrator_interactive.storage.errors import StoreError
from service.config.slack import address_of
from service.connections.stored import CALLBACK, LOGIN_S

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from service.config.connections import ConnectionsConfig
    from service.connections.stored import StoredConnections

log = structlog.get_logger(__name__)

_AT_A_TIME = 20
_ANSWER_WITHIN_S = 5.0
_COOKIE = "connect"
_TEAM = re.compile(r"[A-Z0-9]{1,40}")
_MOST_CHARS = 4_000
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
}
_OVER = "This link is over: it was used, it has expired, or it was opened in another browser. Ask the agent again."


class ConnectionServer(BoundedServer):
    """Serves `GET /connect/TEAM/LINK` and `GET /oauth/mcp/callback`.

    Args:
        name_of: returns the name of a person.
    """

    def __init__(
        self,
        config: ConnectionsConfig,
        connections: StoredConnections,
        team: str,
        name_of: Callable[[str], Awaitable[str]],
    ) -> None:
        super().__init__(*address_of(config.listen or ""), asyncio.Semaphore(_AT_A_TIME))
        self._stored = connections
        self._team = team
        self._name_of = name_of
        self._is_secure = config.public_url.startswith("https:")

    def add_routes(self, router: web.UrlDispatcher) -> None:
        """Add the paths of the pages."""
        router.add_get("/connect/{team}/{link}", self._on_link)
        router.add_get(CALLBACK, self._on_callback)

    async def _on_link(self, request: web.Request) -> web.Response:
        team, link = request.match_info["team"], request.match_info["link"]
        if team != self._team or not _TEAM.fullmatch(team) or len(link) > _MOST_CHARS:
            return _page(404, _OVER)
        browser = request.cookies.get(_COOKIE) or secrets.token_urlsafe()
        return await self._answered(lambda: self._shown(team, link, browser))

    async def _shown(self, team: str, link: str, browser: str) -> web.Response:
        login = await self._stored.login_of_link(team, link)
        if login is None or not await self._stored.open_link(login, browser):
            return _page(410, _OVER)
        name = await self._name_of(login.person)
        host = urlsplit(login.url).hostname or "another site"
        text = (
            f"<p>The agent in Slack asks to use the account of <b>{html.escape(name)}</b> ({html.escape(login.person)})"
            f" at <b>{html.escape(login.server)}</b>, on their behalf only.</p>"
            f"<p><b>Are you {html.escape(name)}?</b> If not, close this page: the agent would use your account for "
            f"them.</p><p><a href='{html.escape(login.url)}'>I am {html.escape(name)}: continue to "
            f"{html.escape(host)}</a></p>"
        )
        response = _page(200, text, is_html=True)
        response.set_cookie(
            _COOKIE, browser, max_age=int(LOGIN_S), httponly=True, samesite="Lax", secure=self._is_secure
        )
        return response

    async def _on_callback(self, request: web.Request) -> web.Response:
        query, browser = request.query, request.cookies.get(_COOKIE, "")
        state, code, error = query.get("state", ""), query.get("code", ""), query.get("error", "")
        if not state or not browser or max(map(len, (state, code, error))) > _MOST_CHARS:
            return _page(400, _OVER)
        result = {"error": error[:200] or "there is no code"} if error or not code else {"code": code}
        if iss := query.get("iss"):
            result["iss"] = iss[:_MOST_CHARS]
        return await self._answered(lambda: self._finished(state, browser, result))

    async def _finished(self, state: str, browser: str, result: dict[str, str]) -> web.Response:
        login = await self._stored.finish(self._team, state, browser, result)
        if login is None:
            return _page(410, _OVER)
        log.info("connection.returned", server=login.server, person=login.person, success="code" in result)
        if "code" not in result:
            return _page(200, f"{login.server} did not give access. The agent reports it in Slack.")
        return _page(200, f"Thank you. Go back to Slack: the agent continues with {login.server}.")

    async def _answered(self, work: Callable[[], Awaitable[web.Response]]) -> web.Response:
        try:
            async with asyncio.timeout(_ANSWER_WITHIN_S):
                return await self.handled(work)
        except (TimeoutError, StoreError):
            return _page(503, "That did not work just now. Load this page again.")


def _page(status: int, text: str, *, is_html: bool = False) -> web.Response:
    body = text if is_html else f"<p>{html.escape(text)}</p>"
    style = "body{font:18px/1.5 system-ui,sans-serif;max-width:34em;margin:4em auto;padding:0 1em}"
    page = f"<!doctype html><meta charset=utf-8><title>Connect</title><style>{style}</style>{body}"
    return web.Response(status=status, text=page, content_type="text/html", headers=_HEADERS)


@asynccontextmanager
async def serving_connections(
    config: ConnectionsConfig,
    connections: StoredConnections,
    team: str,
    name_of: Callable[[str], Awaitable[str]],
) -> AsyncIterator[None]:
    """Serve the pages of logins while the context is open; without an address, do nothing.

    Raises:
        ConnectionRefused: the address cannot be used.
    """
    if config.listen is None:
        yield
        return
    async with ConnectionServer(config, connections, team, name_of) as server:
        log.info("connections.listening", listen=config.listen, port=server.port)
        yield
