"""Parts that are broken on purpose, each in one way."""

from . import logs, service, slots, tables, wires

__all__ = ["logs", "service", "slots", "tables", "wires"]
