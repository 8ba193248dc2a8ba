"""The Web API over HTTP: who calls, which method, what faults it meets, and Slack's way to answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aiohttp import web

from . import methods_chat, methods_conversations, methods_history, methods_reactions, methods_users
from .arguments import Arguments, read_arguments
from .calls import Call, Json, Method
from .errors import SlackRefused
from .faults import Breaks, DropsAfterwards, DropsBefore, Fault, Faults, RateLimits, Refuses, Waits
from .people import AppToken, BotToken, Credential, PersonToken

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from .workspace import Workspace

_METHODS: dict[str, Method] = {
    **methods_chat.METHODS,
    **methods_conversations.METHODS,
    **methods_history.METHODS,
    **methods_reactions.METHODS,
    **methods_users.METHODS,
}
_SCOPES = (
    "app_mentions:read,channels:history,channels:join,channels:read,chat:write,chat:write.customize,"
    "im:history,im:read,im:write,reactions:read,reactions:write,users:read"
)


class WebApi:
    """Answer ``/api/METHOD``. ``open_socket`` gives the one-time URL for ``apps.connections.open``."""

    def __init__(self, workspace: Workspace, faults: Faults, open_socket: Callable[[], str]) -> None:
        self._workspace = workspace
        self._faults = faults
        self._open_socket = open_socket

    async def handle(self, request: web.Request) -> web.StreamResponse:
        method = request.match_info["method"]
        try:
            values = await read_arguments(request)
        except SlackRefused as refused:
            return _answer(_refusal(refused))
        credential = self._workspace.directory.credential(_token(request, values) or "")
        fault = None if isinstance(credential, PersonToken) else self._faults.take(method)
        return await self._meet(fault, request, lambda: self._call(method, _token(request, values), values))

    async def _meet(  # noqa: PLR0911 - one per kind of fault
        self, fault: Fault | None, request: web.Request, call: Callable[[], Json]
    ) -> web.StreamResponse:
        match fault:
            case None:
                return _answer(call())
            case Refuses(error):
                return _answer({"ok": False, "error": error})
            case RateLimits(retry_after_s):
                return _rate_limited(retry_after_s)
            case Breaks(status):
                return web.Response(status=status, text="upstream error")
            case Waits(until):
                await until.wait()
                return _answer(call())
            case DropsAfterwards():
                call()
                return _dropped(request)
            case DropsBefore():
                return _dropped(request)

    def _call(self, method: str, token: str | None, values: Mapping[str, Any]) -> Json:
        try:
            return {"ok": True, **self._result(method, token, Arguments(values))}
        except SlackRefused as refused:
            return _refusal(refused)

    def _result(self, method: str, token: str | None, args: Arguments) -> Json:
        if method == "api.test":
            return _api_test(args)
        if method != "apps.connections.open" and method not in _METHODS:
            raise SlackRefused("unknown_method", method)
        credential = self._authenticated(token)
        match credential:
            case AppToken() if method == "apps.connections.open":
                return {"url": self._open_socket()}
            case PersonToken(member) | BotToken(member) if method in _METHODS:
                return _METHODS[method](Call(self._workspace, member, args))
        raise SlackRefused("not_allowed_token_type")

    def _authenticated(self, token: str | None) -> Credential:
        if not token:
            raise SlackRefused("not_authed")
        credential = self._workspace.directory.credential(token)
        if credential is None:
            raise SlackRefused("invalid_auth")
        return credential


def _token(request: web.Request, values: Mapping[str, Any]) -> str | None:
    scheme, _, token = request.headers.get("Authorization", "").partition(" ")
    if scheme.lower() == "bearer" and token.strip():
        return token.strip()
    value = values.get("token")
    return value if isinstance(value, str) else None


def _api_test(args: Arguments) -> Json:
    if error := args.text("error"):
        raise SlackRefused(error)
    return {"args": args.given()}


def _answer(body: Json) -> web.Response:
    return web.json_response(body, headers={"X-OAuth-Scopes": _SCOPES, "Cache-Control": "no-store"})


def _refusal(refused: SlackRefused) -> Json:
    if refused.code == "unknown_method":
        return {"ok": False, "error": refused.code, "req_method": refused.messages[0]}
    details = {"response_metadata": {"messages": list(refused.messages)}} if refused.messages else {}
    return {"ok": False, "error": refused.code, **details}


def _rate_limited(retry_after_s: int) -> web.Response:
    body = {"ok": False, "error": "ratelimited"}
    return web.json_response(body, status=429, headers={"Retry-After": str(retry_after_s)})


def _dropped(request: web.Request) -> web.Response:
    """Cut the connection under the answer, which is then never written."""
    if request.transport is not None:
        request.transport.abort()
    return web.Response()
