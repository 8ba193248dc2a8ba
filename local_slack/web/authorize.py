"""The page on which a person allows an app in a workspace: ``/oauth/v2/authorize``."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING
from urllib.parse import urlencode, urlsplit

from aiohttp import web

from local_slack.web.loopback import is_loopback

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from local_slack.methods.app import App
    from local_slack.workspace.installations import Installations
    from local_slack.workspace.workspace import Workspace

AUTHORIZE = "/oauth/v2/authorize"
_HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'",
    "Referrer-Policy": "same-origin",  # with no-referrer, a browser sends the form from "null"
}
_STYLE = "body{font:17px/1.5 system-ui,sans-serif;max-width:34em;margin:3em auto;padding:0 1em}button{font:inherit}"


class AuthorizePage:
    """Show the page, and send the browser back to the app with a code or with ``access_denied``."""

    def __init__(self, workspaces: Sequence[Workspace], installations: Installations, app: App) -> None:
        self._installations = installations
        self._app = app
        self._people = {each.directory.team.id: each.directory.people for each in workspaces}
        self._names = {each.directory.team.id: each.directory.team.name for each in workspaces}
        if (whole := installations.organisation) is not None:
            self._names[whole.id] = f"{whole.name} (the whole organisation)"
            self._people[whole.id] = workspaces[0].directory.people

    def routes(self) -> list[web.RouteDef]:
        return [web.get(AUTHORIZE, self.show), web.post(AUTHORIZE, self.decide)]

    async def show(self, request: web.Request) -> web.Response:
        if problem := self._problem(request.query):
            return _page(400, f"<h1>Something went wrong</h1><p>{html.escape(problem)}</p>")
        places = "".join(f"<option value='{place}'>{html.escape(name)}</option>" for place, name in self._names.items())
        named = request.query.get("scope") or request.query["user_scope"]
        scopes = "".join(f"<li>{html.escape(scope)}</li>" for scope in named.split(","))
        hidden = "".join(
            f"<input type=hidden name={name} value='{html.escape(request.query.get(name, ''))}'>"
            for name in ("client_id", "scope", "user_scope", "state", "redirect_uri")
        )
        name = html.escape(self._app.bot.real_name)
        return _page(
            200,
            f"<h1>{name} asks for access to a workspace</h1><form method=post action={AUTHORIZE}>{hidden}"
            f"<p><label>Workspace <select name=place>{places}</select></label></p>"
            f"<p>{name} will be able to use:</p><ul>{scopes}</ul>"
            "<button name=answer value=allow>Allow</button> <button name=answer value=cancel>Cancel</button></form>",
        )

    async def decide(self, request: web.Request) -> web.Response:
        given = {name: value for name, value in (await request.post()).items() if isinstance(value, str)}
        problem, place = self._problem(given), given.get("place", "")
        if not problem and place not in self._names:
            problem = f"There is no workspace {place!r}."
        if problem:
            return _page(400, f"<h1>Something went wrong</h1><p>{html.escape(problem)}</p>")
        uri, answer = given["redirect_uri"], {"state": given.get("state", "")}
        if given.get("answer") == "allow":
            person, is_for_bot = self._people[place][0].id, bool(given.get("scope"))
            answer["code"] = self._installations.authorize(place, person, uri, is_for_bot=is_for_bot)
        else:
            answer["error"] = "access_denied"
        return web.Response(status=302, headers={**_HEADERS, "Location": f"{uri}?{urlencode(answer)}"})

    def _problem(self, given: Mapping[str, str]) -> str:
        """Return why Slack shows no such page; blank: it does."""
        client, uri = self._installations.client, given.get("redirect_uri", "")
        if client is None or given.get("client_id") != client.id:
            return "Invalid client_id parameter."
        try:
            is_here = urlsplit(uri).scheme in ("http", "https") and is_loopback(urlsplit(uri).hostname or "")
        except ValueError:
            is_here = False
        if not is_here or "?" in uri or not uri.isascii() or not uri.isprintable():
            return "redirect_uri did not match any configured URIs."
        # Those of the person are not checked; their token serves no method.
        is_for_bot = given.get("scope") or not given.get("user_scope")
        if is_for_bot and (unknown := set(given.get("scope", "").split(",")) - self._app.scopes):
            return f"Invalid permissions requested: {', '.join(sorted(unknown)) or 'none'}."
        return ""


def _page(status: int, text: str) -> web.Response:
    page = f"<!doctype html><meta charset=utf-8><title>Allow an app</title><style>{_STYLE}</style>{text}"
    return web.Response(status=status, text=page, content_type="text/html", headers=_HEADERS)
