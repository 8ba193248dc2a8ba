"""Slack: events in, messages out. It knows nothing of agents or stores: see `protocols` for what it asks of others."""

from connector.preflight import ConnectionRefused, SlackAccess
from connector.protocols import Instance, Persona, Refused, RunFailed, SessionManager, Steer
from connector.slack import connected

__all__ = [
    "ConnectionRefused",
    "Instance",
    "Persona",
    "Refused",
    "RunFailed",
    "SessionManager",
    "SlackAccess",
    "Steer",
    "connected",
]
