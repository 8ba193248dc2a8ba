"""Parse and validate the body of ``POST /faults``; errors name the accepted forms."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, get_args

from local_slack.delivery.delivery_faults import Delayed, DeliveryFault, Dropped, Duplicated
from local_slack.delivery.faults import (
    DropAfterCall,
    DropBeforeCall,
    ErrorResponse,
    Fault,
    RateLimited,
    ServerError,
    SlowResponse,
)
from local_slack.delivery.recorder import kind_of
from local_slack.delivery.socket_mode import DisconnectReason
from local_slack.json_limits import parse_json
from local_slack.methods.web_api import METHOD_NAMES

if TYPE_CHECKING:
    from collections.abc import Mapping

CALL_FAULTS: Mapping[str, type[Fault]] = {
    kind_of(fault): fault
    for fault in (ErrorResponse, RateLimited, ServerError, SlowResponse, DropBeforeCall, DropAfterCall)
}
DELIVERY_FAULTS: Mapping[str, type[DeliveryFault]] = {kind_of(fault): fault for fault in (Duplicated, Delayed, Dropped)}

_SOCKET_KINDS = ("disconnect", "drop", "freeze", "enable")
_MOST_TIMES = 1_000
_NUMBERS = {"retry_after_s": (1, 3600), "status": (400, 599), "delay_s": (0, 600), "behind": (1, 1000)}
_WHOLE = {"retry_after_s", "status", "behind"}
_FORMS = (
    'send {"method": "chat.update", "kind": "error_response", "error": "internal_error", "times": 1}, '
    '{"delivery": "duplicated", "times": 1} or {"socket": "drop"}'
)


class InvalidRequest(ValueError):  # noqa: N818 - reads as what happened
    """An invalid request; the message names the accepted forms."""


@dataclass(frozen=True, slots=True)
class ForCalls:
    """A fault for the next calls of ``method``."""

    method: str
    fault: Fault
    times: int


@dataclass(frozen=True, slots=True)
class ForDeliveries:
    """A fault for the next deliveries."""

    fault: DeliveryFault
    times: int


@dataclass(frozen=True, slots=True)
class ForConnections:
    """A fault of all connections at once."""

    kind: str
    reason: DisconnectReason = "refresh_requested"


def parse(text: bytes) -> ForCalls | ForDeliveries | ForConnections:
    """Parse the body of a request; raises InvalidRequest."""
    try:
        body: dict[str, Any] = parse_json(text.decode())
    except ValueError as e:
        raise InvalidRequest(f"the body is not JSON; {_FORMS}") from e
    match body:
        case {"method": method}:
            if method not in METHOD_NAMES:
                raise InvalidRequest(f"unknown method {method!r}; GET /faults lists all methods")
            return ForCalls(method, _fault(CALL_FAULTS, "kind", body), _times(body))
        case {"delivery": _}:
            return ForDeliveries(_fault(DELIVERY_FAULTS, "delivery", body), _times(body))
        case {"socket": kind}:
            return _for_connections(kind, body)
    raise InvalidRequest(f"`method`, `delivery` and `socket` are missing; {_FORMS}")


def _fault(kinds: Mapping[str, type], name: str, body: Mapping[str, Any]) -> Any:
    kind = body.get(name)
    fault = kinds.get(kind) if isinstance(kind, str) else None
    if fault is None:
        raise InvalidRequest(f"`{name}` must be one of {', '.join(kinds)}, not {kind!r}")
    fields = dataclasses.fields(fault)
    _only(body, {"method", name, "times", *(field.name for field in fields)})
    given = {field.name: _field(field.name, body[field.name]) for field in fields if field.name in body}
    missing = [f.name for f in fields if f.name not in given and f.default is dataclasses.MISSING]
    if missing:
        raise InvalidRequest(f"`{kind}` also needs `{missing[0]}`")
    return fault(**given)


def _field(name: str, value: Any) -> Any:
    if name not in _NUMBERS:
        if isinstance(value, str) and value:
            return value
        raise InvalidRequest(f"`{name}` must be a text, not {value!r}")
    low, high = _NUMBERS[name]
    kinds = int if name in _WHOLE else int | float
    if isinstance(value, bool) or not isinstance(value, kinds) or not low <= value <= high:
        raise InvalidRequest(
            f"`{name}` must be a {'whole ' if name in _WHOLE else ''}number from {low} to {high}, not {value!r}"
        )
    return value


def _times(body: Mapping[str, Any]) -> int:
    times = body.get("times", 1)
    if isinstance(times, bool) or not isinstance(times, int) or not 1 <= times <= _MOST_TIMES:
        raise InvalidRequest(f"`times` must be a whole number from 1 to {_MOST_TIMES}, not {times!r}")
    return times


def _for_connections(kind: Any, body: Mapping[str, Any]) -> ForConnections:
    if kind not in _SOCKET_KINDS:
        raise InvalidRequest(f"`socket` must be one of {', '.join(_SOCKET_KINDS)}, not {kind!r}")
    _only(body, {"socket", "reason"} if kind == "disconnect" else {"socket"})
    reason = body.get("reason", "refresh_requested")
    if reason not in get_args(DisconnectReason):
        raise InvalidRequest(f"`reason` must be one of {', '.join(get_args(DisconnectReason))}, not {reason!r}")
    return ForConnections(kind, reason)


def _only(body: Mapping[str, Any], known: set[str]) -> None:
    if unknown := sorted(set(body) - known):
        raise InvalidRequest(f"unknown field `{unknown[0]}`; {_FORMS}")
