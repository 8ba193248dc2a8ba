"""The interaction stack: an append-only conversation log with branches, rewind and recovery.

`states` defines the entries, `flow` their allowed order, `stack` the log and `tree` its branches. `stores` persist the
log, `serializers` encode states, and `records` defines the stored values. `rendering` turns the log into messages.
`artifacts` searches states, and `export` writes a conversation for people.
"""

from __future__ import annotations

from orchestrator_interactive.interactions.stack import InteractionStack, StackEntry

__all__ = ["InteractionStack", "StackEntry"]
