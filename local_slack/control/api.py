"""HTTP API for faults, limits and the record; the page's panel and tests in other languages use it."""

from __future__ import annotations

import dataclasses
from itertools import groupby
from typing import TYPE_CHECKING, Any, get_args

from aiohttp import web

from local_slack.control.requests import (
    CALL_FAULTS,
    DELIVERY_FAULTS,
    ForCalls,
    ForConnections,
    ForDeliveries,
    InvalidRequest,
    parse,
)
from local_slack.delivery.recorder import kind_of
from local_slack.delivery.socket_mode import DisconnectReason
from local_slack.methods.known_errors import KNOWN_ERRORS
from local_slack.methods.web_api import METHOD_NAMES

if TYPE_CHECKING:
    from collections.abc import Iterable

    from local_slack.blocks.slack_json import Json
    from local_slack.delivery.delivery_faults import DeliveryFaults
    from local_slack.delivery.faults import Faults
    from local_slack.delivery.recorder import Recorder
    from local_slack.delivery.socket_mode import SocketMode
    from local_slack.methods.rate_limits import RateLimiter

_HEADERS = {"Cache-Control": "no-store"}


class Control:
    """Answer ``/faults``, ``/limits`` and ``/record.jsonl`` of one ``LocalSlack``."""

    def __init__(
        self, faults: Faults, deliveries: DeliveryFaults, sockets: SocketMode, limits: RateLimiter, record: Recorder
    ) -> None:
        self._faults, self._deliveries, self._sockets = faults, deliveries, sockets
        self._rate_limits, self._record = limits, record

    def routes(self) -> list[web.RouteDef]:
        return [
            web.get("/faults", self.show),
            web.post("/faults", self.announce),
            web.delete("/faults", self.clear),
            web.get("/limits", self.limits),
            web.get("/record.jsonl", self.record),
        ]

    async def show(self, _request: web.Request) -> web.StreamResponse:
        return web.json_response(self._state(), headers=_HEADERS)

    async def announce(self, request: web.Request) -> web.StreamResponse:
        try:
            wanted = parse(await request.read())
        except InvalidRequest as error:
            return web.json_response({"ok": False, "error": str(error)}, status=400, headers=_HEADERS)
        match wanted:
            case ForDeliveries(fault, times):
                self._deliveries.next(fault, times=times)
            case ForCalls(method, call_fault, times):
                self._faults.next(method, call_fault, times=times)
            case ForConnections():
                self._disturb(wanted)
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

    def _disturb(self, wanted: ForConnections) -> None:
        sockets = self._sockets
        match wanted.kind:
            case "disconnect":
                sockets.disconnect(wanted.reason)
            case "drop":
                sockets.drop()
            case "freeze":
                sockets.freeze()
            case "enable":
                sockets.enable()

    def _state(self) -> Json:
        sockets, coming = self._sockets, self._faults.coming
        return {
            "ok": True,
            "methods": list(METHOD_NAMES),
            "errors": list(KNOWN_ERRORS),
            "call_kinds": {kind: _fields(fault) for kind, fault in CALL_FAULTS.items()},
            "delivery_kinds": {kind: _fields(fault) for kind, fault in DELIVERY_FAULTS.items()},
            "reasons": list(get_args(DisconnectReason)),
            "calls": [{"method": method, **entry} for method, faults in coming.items() for entry in _runs(faults)],
            "deliveries": _runs(self._deliveries.coming),
            "connections": sockets.connections,
            "frozen": sockets.frozen,
            "enabled": sockets.enabled,
        }


def _runs(faults: Iterable[Any]) -> list[Json]:
    """Return an entry for each sequence of equal faults, without fields that JSON cannot represent."""
    runs = []
    for fault, equal in groupby(faults):
        given = {f.name: getattr(fault, f.name) for f in dataclasses.fields(fault)}
        plain = {name: value for name, value in given.items() if isinstance(value, str | int | float)}
        runs.append({"kind": kind_of(type(fault)), "times": len(list(equal)), **plain})
    return runs


def _fields(fault: type) -> list[str]:
    return [field.name for field in dataclasses.fields(fault)]
