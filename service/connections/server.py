"""The pages of a login: who connects what, and the place to which the browser returns."""

from __future__ import annotations

import asyncio
import html
import re
import secrets
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Protocol
from urllib.parse import urlsplit

import structlog
from aiohttp import web

from connector.inbound.bounded_server import BoundedServer
from orchestrator_interactive.storage.errors import StoreError
from service.config.slack import address_of
from service.connections.stored import CALLBACK, LOGIN_S

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from connector.inbound.bounded_server import InTime
    from connector.inbound.unattended import Unattended
    from service.config.connections import ConnectionsConfig
    from service.connections.stored import StoredConnections


log = structlog.get_logger(__name__)

_AT_A_TIME = 20
_ANSWER_WITHIN_S = 5.0
_COOKIE, _TEAMS_COOKIE = "connect", "connect_teams"
# One browser can have logins of so many workspaces at the same time.
_MOST_TEAMS = 5
_TEAM = re.compile(r"[A-Z0-9]{1,40}")
_MOST_CHARS = 4_000
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
}
_OVER = "This link is over: it was used, it has expired, or it was opened in another browser. Ask the agent again."


class Pages(Protocol):
    """Pages of another part of the service at the same address."""

    def add_routes(self, router: web.UrlDispatcher, in_time: InTime) -> None:
        """Add the paths of the pages, which do their work by `in_time`."""


class ConnectionServer(BoundedServer):
    """Serves `GET /connect/TEAM/LINK` and `GET /oauth/mcp/callback`.

    Args:
        slack_of: returns the open workspace with an id; `None`: there is none.
        pages: further pages.
    """

    def __init__(
        self,
        config: ConnectionsConfig,
        connections: StoredConnections,
        slack_of: Callable[[str], Unattended | None],
        pages: Pages | None = None,
    ) -> None:
        self._stored = connections
        self._slack_of = slack_of
        self._pages = pages
        self._is_secure = config.public_url.startswith("https:")
        super().__init__(*address_of(config.listen or ""), asyncio.Semaphore(_AT_A_TIME))

    def add_routes(self, router: web.UrlDispatcher) -> None:
        """Add the paths of the pages."""
        router.add_get("/connect/{team}/{link}", self._on_link)
        router.add_get(CALLBACK, self._on_callback)
        if self._pages is not None:
            self._pages.add_routes(router, self._in_time)

    async def _on_link(self, request: web.Request) -> web.Response:
        team, link = request.match_info["team"], request.match_info["link"]
        slack = self._slack_of(team) if _TEAM.fullmatch(team) else None
        if slack is None or len(link) > _MOST_CHARS:
            return _page(404, _OVER)
        browser = request.cookies.get(_COOKIE) or secrets.token_urlsafe()
        teams = ".".join(dict.fromkeys([team, *_teams_in(request)][:_MOST_TEAMS]))
        return await self._answered(lambda: self._shown(slack, link, browser, teams))

    async def _shown(self, slack: Unattended, link: str, browser: str, teams: str) -> web.Response:
        team = slack.team
        login = await self._stored.login_of_link(team, link)
        if login is None or not await self._stored.open_link(login, browser):
            return _page(410, _OVER)
        name = await slack.name_of(login.person)
        host = urlsplit(login.url).hostname or "another site"
        text = (
            f"<p>The agent in Slack asks to use the account of <b>{html.escape(name)}</b> ({html.escape(login.person)})"
            f" at <b>{html.escape(login.server)}</b>, on their behalf only.</p>"
            f"<p><b>Are you {html.escape(name)}?</b> If not, close this page: the agent would use your account for "
            f"them.</p><p><a href='{html.escape(login.url)}'>I am {html.escape(name)}: continue to "
            f"{html.escape(host)}</a></p>"
        )
        response = _page(200, text, is_html=True)
        for cookie, value in ((_COOKIE, browser), (_TEAMS_COOKIE, teams)):
            response.set_cookie(
                cookie, value, max_age=int(LOGIN_S), httponly=True, samesite="Lax", secure=self._is_secure
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
        return await self._answered(lambda: self._finished(_teams_in(request), state, browser, result))

    async def _finished(self, teams: list[str], state: str, browser: str, result: dict[str, str]) -> web.Response:
        for team in teams:
            if (login := await self._stored.finish(team, state, browser, result)) is not None:
                break
        else:
            return _page(410, _OVER)
        log.info("connection.returned", server=login.server, person=login.person, success="code" in result)
        if "code" not in result:
            return _page(200, f"{login.server} did not give access. The agent reports it in Slack.")
        return _page(200, f"Thank you. Go back to Slack: the agent continues with {login.server}.")

    async def _answered(self, work: Callable[[], Awaitable[web.Response]]) -> web.Response:
        try:
            return await self._in_time(work)
        except (TimeoutError, StoreError):
            return _page(503, "That did not work just now. Load this page again.")

    async def _in_time(self, work: Callable[[], Awaitable[web.Response]]) -> web.Response:
        async with asyncio.timeout(_ANSWER_WITHIN_S):
            return await self.handled(work)


def _teams_in(request: web.Request) -> list[str]:
    """Return the workspaces in which this browser has opened links, the latest first."""
    return [each for each in request.cookies.get(_TEAMS_COOKIE, "").split(".") if _TEAM.fullmatch(each)][:_MOST_TEAMS]


def _page(status: int, text: str, *, is_html: bool = False) -> web.Response:
    body = text if is_html else f"<p>{html.escape(text)}</p>"
    style = "body{font:18px/1.5 system-ui,sans-serif;max-width:34em;margin:4em auto;padding:0 1em}"
    page = f"<!doctype html><meta charset=utf-8><title>Connect</title><style>{style}</style>{body}"
    return web.Response(status=status, text=page, content_type="text/html", headers=_HEADERS)


@asynccontextmanager
async def serving_connections(
    config: ConnectionsConfig,
    connections: StoredConnections,
    slack_of: Callable[[str], Unattended | None],
    pages: Pages | None = None,
) -> AsyncIterator[None]:
    """Serve the pages of logins and the given ones while the context is open; without an address, do nothing.

    Raises:
        ConnectionRefused: the address cannot be used.
    """
    if config.listen is None:
        yield
        return
    async with ConnectionServer(config, connections, slack_of, pages) as server:
        log.info("connections.listening", listen=config.listen, port=server.port)
        yield
