"""Connect agents to Slack. The package knows no agents and no stores; `protocols` defines the interfaces it needs."""

from __future__ import annotations

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
]
