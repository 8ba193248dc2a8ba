"""Parts that are broken on purpose, each in one way."""

from . import logs, service, tables, wires

__all__ = ["logs", "service", "tables", "wires"]
