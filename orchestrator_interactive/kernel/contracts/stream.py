"""Partial response of a provider."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestrator_interactive.kernel.contracts.messages import TextBlock, ThinkingBlock, ToolCallBlock

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from orchestrator_interactive.kernel.contracts.messages import ContentBlock, Usage


class ResponseStream:
    """Collect a response as it arrives, so that an interrupted call keeps its partial content.

    The provider calls `text` for each text delta and `block` for each finished block, in order; the deltas of a text
    block come before the block. Both are synchronous: token deltas do not cross the hook bus. `pieces` counts them,
    so that stalls can be detected. `usage` is the usage so far, if the provider reports it before the end; it is also
    the cost of an interrupted call. `on_block` is called with each block after it was added.
    """

    def __init__(self, on_block: Callable[[ContentBlock], None] | None = None) -> None:
        self.pieces = 0
        self.usage: Usage | None = None
        self._on_block = on_block
        self._blocks: list[ContentBlock] = []
        self._open_text: list[str] = []

    def heartbeat(self) -> None:
        """Report progress without visible content: thinking, a tool's input, a retry."""
        self.pieces += 1

    def text(self, delta: str) -> None:
        self.pieces += 1
        self._open_text.append(delta)

    def block(self, block: ContentBlock) -> None:
        self.pieces += 1
        if isinstance(block, TextBlock):
            self._open_text.clear()
        self._blocks.append(block)
        if self._on_block is not None:
            self._on_block(block)

    def close(self) -> None:
        """Stop calling `on_block`: blocks that arrive after the call ended are ignored."""
        self._on_block = None

    def valid_blocks(
        self, complete: list[ContentBlock] | None = None, calls: Collection[str] = frozenset()
    ) -> list[ContentBlock]:
        """Return the blocks of an interrupted response that may stay in the history.

        Complete blocks and partial text are kept. Thinking without a signature and tool calls whose id is not in
        `calls` are dropped. If only thinking is left, the result is empty. `complete` is the whole response, if it
        arrived after all.
        """
        blocks = self._blocks if complete is None else complete
        kept = [block for block in blocks if _may_stay(block) or _is_one_of(calls, block)]
        if complete is None and (tail := "".join(self._open_text)).strip():
            kept.append(TextBlock(text=tail))
        return kept if any(isinstance(block, TextBlock | ToolCallBlock) for block in kept) else []


def _may_stay(block: ContentBlock) -> bool:
    if isinstance(block, TextBlock):
        return bool(block.text.strip())
    if isinstance(block, ThinkingBlock):
        return block.signature is not None
    return not isinstance(block, ToolCallBlock)


def _is_one_of(calls: Collection[str], block: ContentBlock) -> bool:
    return isinstance(block, ToolCallBlock) and block.id in calls
