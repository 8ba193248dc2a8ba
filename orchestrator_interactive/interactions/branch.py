"""Branches of a conversation, as functions of its stack."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from orchestrator_interactive.interactions.stack import InteractionStack


async def fork(stack: InteractionStack, index: int | None = None, name: str | None = None) -> str:
    """Create a branch with the states up to `index`; see `InteractionStack.fork`."""
    return await stack.fork(index, name)


async def checkout(stack: InteractionStack, name: str) -> None:
    """Switch to another branch; see `InteractionStack.checkout`."""
    await stack.checkout(name)


async def rewind(stack: InteractionStack, index: int) -> str | None:
    """Make the state at `index` the last one; see `InteractionStack.rewind`."""
    return await stack.rewind(index)
