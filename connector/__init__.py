"""Slack: events in, messages out. It knows nothing of agents or stores: see `protocols` for what it asks of others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from connector.conversations.run_slots import RunLimits
from connector.inbound.access_policy import Policy
from connector.protocols import Instance, Persona, Refused, RunFailed, SessionManager, Steer
from connector.setup.credentials import ConnectionRefused, HttpDoor, SlackAccess, SocketDoor

if TYPE_CHECKING:
    from connector.app import connected

__all__ = [
    "ConnectionRefused",
    "HttpDoor",
    "Instance",
    "Persona",
    "Policy",
    "Refused",
    "RunFailed",
    "RunLimits",
    "SessionManager",
    "SlackAccess",
    "SocketDoor",
    "Steer",
    "connected",
]


def __getattr__(name: str) -> Any:
    if name == "connected":
        from connector.app import connected  # noqa: PLC0415 - Slack's libraries are only for who connects

        return connected
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
