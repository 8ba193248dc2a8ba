"""Create a new context for each rule."""

from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from orchestrator_interactive.kernel.contracts.models import ProviderInfo

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from orchestrator_interactive.kernel.contracts.protocols import ContextManager
    from orchestrator_interactive.validation.sandbox import RecordingHooks, SandboxSession, ValidationSandbox

    Row = dict[str, Any]

# The contract subtracts this and the output limit from a model's window.
SAFETY_MARGIN_TOKENS = 1000
_OUTPUT_TOKENS = 1000


@dataclass(frozen=True, slots=True)
class ContextProbe:
    """A context in a session. `own_rows` is its number of initial rows, such as a system prompt."""

    context: ContextManager
    sandbox: ValidationSandbox
    own_rows: int

    @property
    def hooks(self) -> RecordingHooks:
        return self.sandbox.hooks

    async def add(self, rows: Sequence[Row]) -> None:
        for row in rows:
            await self.context.add_message(row)

    async def history(self) -> list[Row]:
        """Return all rows except the initial ones."""
        return list(await self.context.get_messages())[self.own_rows :]


class ContextFactory:
    """Creates new contexts."""

    def __init__(self, sandboxes: SandboxSession) -> None:
        self._sandboxes = sandboxes

    @asynccontextmanager
    async def fresh(self, rows: Sequence[Row] = ()) -> AsyncIterator[ContextProbe]:
        """Open a new context with these rows."""
        async with self._sandboxes.open() as sandbox:
            context: ContextManager = sandbox.one("context")
            memory = ContextProbe(context, sandbox, own_rows=len(await context.get_messages()))
            await memory.add(rows)
            yield memory


class Window:
    """A provider whose model has a budget of this many tokens. A context only calls its `get_info`."""

    name = "window"

    def __init__(self, budget: int) -> None:
        self._budget = budget

    def get_info(self) -> ProviderInfo:
        window = self._budget + _OUTPUT_TOKENS + SAFETY_MARGIN_TOKENS
        defaults = {"model": "window-1", "context_window": window, "max_output_tokens": _OUTPUT_TOKENS}
        return ProviderInfo(id=self.name, display_name="A small model", defaults=defaults)
