"""Slack: events in, messages out. It knows nothing of agents or stores: see `protocols` for what it asks of others."""

from connector.access import ConnectionRefused, HttpDoor, SlackAccess, SocketDoor
from connector.inbound.gate import Policy
from connector.protocols import Instance, Persona, Refused, RunFailed, SessionManager, Steer
from connector.slack import connected

__all__ = [
    "ConnectionRefused",
    "HttpDoor",
    "Instance",
    "Persona",
    "Policy",
    "Refused",
    "RunFailed",
    "SessionManager",
    "SlackAccess",
    "SocketDoor",
    "Steer",
    "connected",
]
