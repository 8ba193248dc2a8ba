"""The Web API over HTTP: authentication, dispatch to methods, faults, limits and responses."""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from aiohttp import web

from local_slack.delivery import faults
from local_slack.delivery.faults import Fault, Faults, kind_of
from local_slack.methods import agents, canvases, chat, conversations, lists, streams, views  # noqa: F401 - they enter their methods
from local_slack.methods.app import APP_TOKEN_SCOPES, MissingScope
from local_slack.methods.calls import METHODS, Arguments, Call, read_arguments, token_of
from local_slack.methods.files import DOWNLOAD, UPLOAD, FileServer
from local_slack.methods.oauth import OAUTH_LIMITS, answer_of, check_team, client_of
from local_slack.methods.rate_limits import TIER_3, TIER_4
from local_slack.workspace.errors import SlackRefused
from local_slack.workspace.people import AppToken, Holder

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from local_slack.json_limits import Json
    from local_slack.methods.app import App
    from local_slack.methods.rate_limits import MethodRateLimiter
    from local_slack.workspace.installations import Installations
    from local_slack.workspace.workspace import Workspace

# The limits of all methods; the first ones do not act in a workspace, `WebApi` answers them itself.
SLACK_LIMITS = {
    "api.test": TIER_4,
    "apps.connections.open": TIER_3,
    "apps.manifest.export": TIER_3,
    **OAUTH_LIMITS,
    **{name: method.limits for name, method in METHODS.items()},
}
_SECRET = ("token", "client_secret", "refresh_token")
METHOD_NAMES = tuple(sorted(SLACK_LIMITS))
# What faults can be announced for: the methods, and the transfers of files to and from the app.
FAULTY = (*METHOD_NAMES, DOWNLOAD, UPLOAD)


@dataclass(frozen=True, slots=True)
class _Request:
    """One request; ``holder`` is None for an unknown token."""

    method: str
    token: str
    holder: Holder | None
    workspace: Workspace
    values: Mapping[str, Any]
    base_url: str
    client: tuple[str, str]


class WebApi:
    """Answer ``/api/METHOD`` for all workspaces. ``open_socket`` gives the URL for ``apps.connections.open``.

    A fault has priority over the limits: its call is counted and not refused. ``on_call`` gets every call with its
    answer, without its token.
    """

    def __init__(  # noqa: PLR0913, PLR0917 - its dependencies
        self,
        workspaces: Sequence[Workspace],
        coming_faults: Faults,
        rate_limits: MethodRateLimiter,
        app: App,
        open_socket: Callable[[], str],
        on_call: Callable[[Json], None],
        installations: Installations,
    ) -> None:
        self._workspaces = workspaces
        self._faults = coming_faults
        self._rate_limits = rate_limits
        self._app = app
        self._open_socket = open_socket
        self._on_call = on_call
        self._installations = installations

    def routes(self) -> list[web.RouteDef]:
        api = "/api/{method}"
        return [
            web.get(api, self.handle),
            web.post(api, self.handle),
            *FileServer(self._workspaces, self._transfer, self._installations, self._app).routes(),
        ]

    async def _transfer(self, name: str, http: web.Request, answer: Callable[[], web.Response]) -> web.StreamResponse:
        return await meet(self._faults.take(name), http, answer)

    async def handle(self, http: web.Request) -> web.StreamResponse:
        begun = time.perf_counter()
        try:
            values = await read_arguments(http)
        except SlackRefused as refused:
            return web.json_response(_refusal(refused))
        request = self._request(http, values)
        fault, wait_s = None, 0
        is_under_test = request.workspace.directory.is_under_test(request.holder)
        if request.holder is None or is_under_test:
            fault = self._faults.take(request.method)
        if is_under_test:
            team, channel = request.workspace.directory.team.id, _channel(request)
            wait_s = self._rate_limits.take(team, request.method, channel, refuse=fault is None)
        answer = _rate_limited(wait_s) if wait_s else await meet(fault, http, lambda: self._answer(request))
        duration_ms = round((time.perf_counter() - begun) * 1000, 1)
        self._on_call({**_record(request, fault, answer), "duration_ms": duration_ms})
        return answer

    def _request(self, http: web.Request, values: Mapping[str, Any]) -> _Request:
        token = token_of(http, values)
        workspace, holder = self._installations.find(token, values) or (self._workspaces[0], None)
        base_url = f"{http.scheme}://{http.host}/"
        return _Request(http.match_info["method"], token, holder, workspace, values, base_url, client_of(http))

    def _answer(self, request: _Request) -> web.Response:
        args = Arguments(request.values)
        try:
            body = {"ok": True, **self._result(request, args)}
        except SlackRefused as refused:
            body = _refusal(refused)
        headers = {"Cache-Control": "no-store"}
        if request.holder is not None:
            scopes = APP_TOKEN_SCOPES if isinstance(request.holder, AppToken) else self._app.scopes
            needed = METHODS[request.method].scopes(args) if request.method in METHODS else ()
            headers["X-OAuth-Scopes"] = ",".join(sorted(scopes))
            headers["X-Accepted-OAuth-Scopes"] = ",".join(needed)
        return web.json_response(body, headers=headers)

    def _result(self, request: _Request, args: Arguments) -> Json:  # noqa: C901 - a case for each kind of method
        name = request.method
        if name == "api.test":
            if error := args.text("error"):
                raise SlackRefused(error)
            return {"args": args.given()}
        if name not in METHOD_NAMES:
            raise SlackRefused("unknown_method", name)
        if name == "apps.manifest.export" and request.token == self._app.config_token:
            if args.required("app_id") != self._app.bot.app_id:
                raise SlackRefused("invalid_app_id")
            return {"manifest": self._app.manifest(messages_tab=request.workspace.rules.messages_tab)}
        if name in OAUTH_LIMITS:
            return answer_of(name, args, request.token, request.client, self._installations, self._app)
        if error := self._installations.problem(request.token):
            raise SlackRefused(error)
        holder = _authenticated(request)
        if name == "apps.connections.open" and isinstance(holder, AppToken):
            return {"url": self._open_socket()}
        if name not in METHODS or isinstance(holder, AppToken):
            raise SlackRefused("not_allowed_token_type")
        if request.workspace.directory.is_under_test(holder):
            self._app.check_scopes(METHODS[name].scopes(args))
        args.need(*METHODS[name].needs)
        check_team(name, args, request.token, self._installations)
        answer = METHODS[name].answer(Call(request.workspace, holder, args, self._app, request.base_url))
        if name == "auth.test" and (whole := self._installations.organisation) is not None:
            is_whole = self._installations.is_of_organisation(request.token)
            answer = {**answer, "enterprise_id": whole.id, "is_enterprise_install": is_whole}
        return answer


async def meet(  # noqa: PLR0911 - one per kind of fault
    fault: Fault | None, http: web.Request, call: Callable[[], web.Response]
) -> web.StreamResponse:
    """Answer a request with a fault."""
    match fault:
        case None:
            return call()
        case faults.ErrorResponse(error):
            return web.json_response({"ok": False, "error": error})
        case faults.RateLimited(retry_after_s):
            return _rate_limited(retry_after_s)
        case faults.ServerError(status):
            return web.Response(status=status, text="upstream error")
        case faults.BlockUntil(until):
            await until.wait()
            return call()
        case faults.SlowResponse(delay_s):
            answer = call()
            await asyncio.sleep(delay_s)
            return answer
        case faults.DropAfterCall():
            call()
            return _dropped(http)
        case faults.DropBeforeCall():
            return _dropped(http)


def _record(request: _Request, fault: Fault | None, answer: web.StreamResponse) -> Json:
    match request.holder:
        case AppToken(bot):
            by = bot.app_id
        case member:
            by = member.id if member else ""
    dropped = isinstance(fault, faults.DropBeforeCall | faults.DropAfterCall)
    text = answer.text if isinstance(answer, web.Response) and answer.content_type == "application/json" else None
    return {
        "method": request.method,
        "by": by,
        "team": request.workspace.directory.team.id,
        "arguments": {name: value for name, value in request.values.items() if name not in _SECRET},
        "status": None if dropped else answer.status,
        "answer": json.loads(text) if text else {},
        "fault": kind_of(type(fault)) if fault else None,
    }


def _authenticated(request: _Request) -> Holder:
    if not request.token:
        raise SlackRefused("not_authed")
    if error := request.workspace.rules.refused_tokens.get(request.token):
        raise SlackRefused(error)
    if request.holder is None:
        raise SlackRefused("invalid_auth")
    return request.holder


def _channel(request: _Request) -> str:
    """Return the id of the channel of a call, which may be given by id, name or member."""
    name, workspace = str(request.values.get("channel") or ""), request.workspace
    if name in workspace.directory.members:
        both = {name, workspace.directory.bot.id}
        return next((c.id for c in workspace.channels if c.is_im and set(c.members) == both), name)
    try:
        return workspace.channel(name).id
    except SlackRefused:
        return name


def _refusal(refused: SlackRefused) -> Json:
    answer: Json = {"ok": False, "error": refused.code}
    if refused.code == "unknown_method":
        return {**answer, "req_method": refused.messages[0]}
    if isinstance(refused, MissingScope):
        return {**answer, "needed": refused.needed, "provided": refused.provided}
    if refused.code == "invalid_blocks":
        answer["errors"] = [message.removeprefix("[ERROR] ") for message in refused.messages]
    details = {"response_metadata": {"messages": list(refused.messages)}} if refused.messages else {}
    return {**answer, **details}


def _rate_limited(retry_after_s: int) -> web.Response:
    body = {"ok": False, "error": "ratelimited"}
    return web.json_response(body, status=429, headers={"Retry-After": str(retry_after_s)})


def _dropped(http: web.Request) -> web.Response:
    """Cut the connection, so that the response is never sent."""
    if http.transport is not None:
        http.transport.abort()
    return web.Response()
