"""HTTP API for faults, limits and the record; the page's panel and tests in other languages use it."""

from __future__ import annotations

import dataclasses
from itertools import groupby
from typing import TYPE_CHECKING, Any, get_args

from aiohttp import web

from local_slack.delivery import faults
from local_slack.delivery.faults import kind_of
from local_slack.delivery.socket_mode import DisconnectReason
from local_slack.json_limits import parse_json
from local_slack.methods.web_api import FAULTY

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from local_slack.delivery.faults import DeliveryFaults, Faults
    from local_slack.delivery.recorder import Recorder
    from local_slack.delivery.socket_mode import SocketModeEndpoint
    from local_slack.json_limits import Json
    from local_slack.methods.rate_limits import MethodRateLimiter

# Slack error codes that an app should handle; the fault panel suggests them.
KNOWN_ERRORS = """
    account_inactive already_reacted cant_delete_message cant_update_message channel_not_found edit_window_closed
    fatal_error feature_disabled internal_error invalid_auth invalid_blocks is_archived markdown_text_conflict
    message_not_found message_not_in_streaming_state messages_tab_disabled missing_scope msg_blocks_too_long
    msg_too_long no_reaction not_authed not_authorized not_in_channel ratelimited restricted_action
    service_unavailable stopped_by_user streaming_state_conflict thread_locked token_expired token_revoked
    too_many_reactions unknown_method
""".split()  # noqa: SIM905 - as a list it fills a page

_CALL_FAULTS: Mapping[str, type] = {
    kind_of(fault): fault for fault in get_args(faults.Fault) if fault is not faults.BlockUntil
}
_DELIVERY_FAULTS: Mapping[str, type] = {
    kind_of(fault): fault for fault in get_args(faults.DeliveryFault) if fault is not faults.HeldUntil
}
_SOCKET_KINDS = ("disconnect", "drop", "freeze", "enable")
_REASONS = get_args(DisconnectReason)
# The bounds of each number, both inclusive.
_NUMBERS = {
    "retry_after_s": (1, 3600),
    "status": (400, 599),
    "delay_s": (0, 600),
    "behind": (1, 1000),
    "times": (1, 1000),
}
_HEADERS = {"Cache-Control": "no-store"}
_FORMS = (
    'send {"method": "chat.update", "kind": "error_response", "error": "internal_error", "times": 1}, '
    '{"delivery": "duplicated", "times": 1}, {"socket": "drop"} or {"app": "kill"}'
)


class _InvalidRequest(ValueError):  # noqa: N818 - reads as what happened
    """An invalid request; the message names the accepted forms."""


class Control:
    """Answer ``/faults``, ``/limits`` and ``/record.jsonl`` of one ``LocalSlack``."""

    def __init__(
        self,
        calls: Faults,
        deliveries: DeliveryFaults,
        sockets: SocketModeEndpoint,
        limits: MethodRateLimiter,
        record: Recorder,
    ) -> None:
        self._faults, self._deliveries, self._sockets = calls, deliveries, sockets
        self._rate_limits, self._record = limits, record
        # Kills the app, which then begins anew; None: something else started it.
        self.kill_app: Callable[[], None] | None = None

    def routes(self) -> list[web.RouteDef]:
        return [
            web.get("/faults", self.show),
            web.post("/faults", self.announce),
            web.delete("/faults", self.clear),
            web.get("/limits", self.limits),
            web.get("/record.jsonl", self.record),
        ]

    async def show(self, _request: web.Request) -> web.StreamResponse:
        sockets, coming = self._sockets, self._faults.coming
        state = {
            "ok": True,
            "methods": FAULTY,
            "errors": KNOWN_ERRORS,
            "call_kinds": {kind: _fields(fault) for kind, fault in _CALL_FAULTS.items()},
            "delivery_kinds": {kind: _fields(fault) for kind, fault in _DELIVERY_FAULTS.items()},
            "reasons": _REASONS,
            "calls": [{"method": method, **entry} for method, queued in coming.items() for entry in _runs(queued)],
            "deliveries": _runs(self._deliveries.coming),
            "connections": sockets.connections,
            "frozen": sockets.frozen,
            "enabled": sockets.enabled,
            "can_kill": self.kill_app is not None,
        }
        return web.json_response(state, headers=_HEADERS)

    async def announce(self, request: web.Request) -> web.StreamResponse:
        try:
            self._accept(_parse(await request.read()))
        except _InvalidRequest as error:
            return web.json_response({"ok": False, "error": str(error)}, status=400, headers=_HEADERS)
        return await self.show(request)

    async def clear(self, request: web.Request) -> web.StreamResponse:
        """Remove all faults, cut frozen connections, and enable Socket Mode."""
        self._faults.clear()
        self._deliveries.clear()
        self._sockets.enable()
        if self._sockets.frozen:
            self._sockets.drop()
        return await self.show(request)

    async def limits(self, _request: web.Request) -> web.StreamResponse:
        return web.json_response(self._rate_limits.snapshot(), headers=_HEADERS)

    async def record(self, _request: web.Request) -> web.StreamResponse:
        return web.Response(text=self._record.text, content_type="application/x-ndjson", headers=_HEADERS)

    def _accept(self, body: Json) -> None:
        match body:
            case {"method": method}:
                if method not in FAULTY:
                    raise _InvalidRequest(f"unknown method {method!r}; GET /faults lists all methods")
                self._faults.next(method, _fault(_CALL_FAULTS, "kind", body), times=_times(body))
            case {"delivery": _}:
                self._deliveries.next(_fault(_DELIVERY_FAULTS, "delivery", body), times=_times(body))
            case {"socket": _}:
                self._disturb(body)
            case {"app": _}:
                self._kill(body)
            case _:
                raise _InvalidRequest(f"`method`, `delivery`, `socket` and `app` are missing; {_FORMS}")

    def _kill(self, body: Json) -> None:
        _only(body, {"app"})
        _one_of(("kill",), "app", body["app"])
        if self.kill_app is None:
            raise _InvalidRequest("the workspace did not start the app; give its command after -- to kill it from here")
        self.kill_app()

    def _disturb(self, body: Json) -> None:
        """Inject a fault into all connections at once."""
        kind = _one_of(_SOCKET_KINDS, "socket", body["socket"])
        _only(body, {"socket", "reason"} if kind == "disconnect" else {"socket"})
        match kind:
            case "disconnect":
                self._sockets.disconnect(_one_of(_REASONS, "reason", body.get("reason", "refresh_requested")))
            case "drop":
                self._sockets.drop()
            case "freeze":
                self._sockets.freeze()
            case "enable":
                self._sockets.enable()


def _parse(text: bytes) -> Json:
    try:
        body = parse_json(text.decode())
    except ValueError as e:
        raise _InvalidRequest(f"the body is not JSON; {_FORMS}") from e
    return body if isinstance(body, dict) else {}


def _fault(kinds: Mapping[str, type], name: str, body: Json) -> Any:
    kind = _one_of(tuple(kinds), name, body.get(name))
    fields = dataclasses.fields(kinds[kind])
    _only(body, {"method", name, "times", *(field.name for field in fields)})
    given = {field.name: _value(field.name, body[field.name]) for field in fields if field.name in body}
    missing = [f.name for f in fields if f.name not in given and f.default is dataclasses.MISSING]
    if missing:
        raise _InvalidRequest(f"`{kind}` also needs `{missing[0]}`")
    return kinds[kind](**given)


def _times(body: Json) -> int:
    return int(_value("times", body.get("times", 1)))


def _value(name: str, value: Any) -> Any:
    if name not in _NUMBERS:
        if isinstance(value, str) and value:
            return value
        raise _InvalidRequest(f"`{name}` must be a text, not {value!r}")
    low, high = _NUMBERS[name]
    whole = name != "delay_s"
    is_number = isinstance(value, int if whole else int | float) and not isinstance(value, bool)
    if not is_number or not low <= value <= high:
        kind = "whole number" if whole else "number"
        raise _InvalidRequest(f"`{name}` must be a {kind} from {low} to {high}, not {value!r}")
    return value


def _one_of(words: tuple[Any, ...], name: str, value: Any) -> Any:
    if value not in words:
        raise _InvalidRequest(f"`{name}` must be one of {', '.join(words)}, not {value!r}")
    return value


def _only(body: Json, known: set[str]) -> None:
    if unknown := sorted(set(body) - known):
        raise _InvalidRequest(f"unknown field `{unknown[0]}`; {_FORMS}")


def _runs(queued: Iterable[Any]) -> list[Json]:
    """Return an entry for each sequence of equal faults, without fields that JSON cannot represent."""
    runs = []
    for fault, equal in groupby(queued):
        given = {name: getattr(fault, name) for name in _fields(type(fault))}
        plain = {name: value for name, value in given.items() if isinstance(value, str | int | float)}
        runs.append({"kind": kind_of(type(fault)), "times": len(list(equal)), **plain})
    return runs


def _fields(fault: type) -> list[str]:
    return [field.name for field in dataclasses.fields(fault)]
