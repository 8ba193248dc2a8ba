"""Parts that are broken on purpose, each in one way."""

from . import logs, service, slack_clients, slots, tables

__all__ = ["logs", "service", "slack_clients", "slots", "tables"]
