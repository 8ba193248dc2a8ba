"""Conversations in contexts over an interaction stack."""

from __future__ import annotations

from typing import Any

from context_rows import result, said, thinking, user

from orchestrator_interactive.interactions import InteractionStack
from orchestrator_interactive.interactions.stores.memory import MemoryStore
from orchestrator_interactive.kernel.contracts.messages import ThinkingBlock, ToolCallBlock
from orchestrator_interactive.kernel.hooks import HookRegistry
from orchestrator_interactive.modules.context_simple import SimpleContext
from orchestrator_interactive.modules.context_stack import StackContext, StackOptions
from orchestrator_interactive.transcript.rows import assistant_row, tool_call_dict

Row = dict[str, Any]


class StackFixture:
    """A store with contexts over it, as successive processes have."""

    def __init__(self) -> None:
        self.store = MemoryStore()

    def stack(self) -> InteractionStack:
        return InteractionStack(self.store, "c", "a")

    def context(self, **options: Any) -> StackContext:
        return StackContext(StackOptions(**options), HookRegistry().emit, self.stack())

    async def kinds(self) -> list[str]:
        stack = self.stack()
        return [entry.kind.removesuffix("State") async for entry in stack.iter_last_n(await stack.length())]


async def add(context: StackContext | SimpleContext, *rows: Row) -> None:
    for row in rows:
        await context.add_message(row)


LOOKS = [ToolCallBlock(id="1", name="look", input={"at": "a"}), ToolCallBlock(id="2", name="look", input={"at": "b"})]
STEP = assistant_row([ThinkingBlock(thinking="Hm.", signature="c2ln"), *LOOKS], [])
STEP["tool_calls"] = [tool_call_dict(block.id, block.name, block.input) for block in LOOKS]
TURN = [user("Hello!"), STEP, result("1", "one"), result("2", "two"), said("Done.", thinking("So."))]
