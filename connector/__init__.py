"""Connect agents to Slack. The package knows no agents and no stores; `protocols` defines the interfaces it needs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from connector.inbound.access_policy import AccessRules
from connector.protocols import (
    BotRules,
    ChannelRules,
    FileLimits,
    Instance,
    Participation,
    Persona,
    Refused,
    RunFailed,
    SessionManager,
    SlackOptions,
)
from connector.runs.run_slots import RunLimits
from connector.setup import ConnectionRefused, HttpTransport, SlackCredentials, SocketTransport

if TYPE_CHECKING:
    from connector.app import connected

__all__ = [
    "AccessRules",
    "BotRules",
    "ChannelRules",
    "ConnectionRefused",
    "FileLimits",
    "HttpTransport",
    "Instance",
    "Participation",
    "Persona",
    "Refused",
    "RunFailed",
    "RunLimits",
    "SessionManager",
    "SlackCredentials",
    "SlackOptions",
    "SocketTransport",
    "connected",
]


def __getattr__(name: str) -> Any:
    if name == "connected":
        from connector.app import connected  # noqa: PLC0415 - load Slack's libraries only when connecting

        return connected
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
