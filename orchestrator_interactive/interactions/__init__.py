"""The interaction stack: a conversation's log that branches, rewinds and comes back.

`states` are what it holds, `flow` says which may follow which, `stack` is the log, and `tree` how its branches hang
together. `stores` keep it, `serializers` write it, `records` are what stores keep. `render` shows it to a model as
`render_policies` say, with `pairing` of calls and results into messages of the `openai_format`. `artifacts` finds
things in it, and `export` gives it to people.
"""

from __future__ import annotations

from orchestrator_interactive.interactions.stack import InteractionStack, StackEntry

__all__ = ["InteractionStack", "StackEntry"]
