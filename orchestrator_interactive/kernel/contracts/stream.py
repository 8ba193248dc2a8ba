"""What a provider says while its answer is still on the way."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestrator_interactive.kernel.contracts.messages import TextBlock, ThinkingBlock, ToolCallBlock

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from orchestrator_interactive.kernel.contracts.messages import ContentBlock, Usage


class ResponseStream:
    """Collects an answer as it arrives, so that a call which is cut keeps what was said.

    The provider calls `text` for each piece of text and `block` for each finished block, in order, a text block's
    pieces before the block itself. Both are synchronous: token deltas cross no hook. `pieces` counts them, so that
    silence can be told. `usage` is what the call has used up so far, where the provider says it before the end: a call
    that is cut has cost that much, too. `on_block` gets each block, after it has been added.
    """

    def __init__(self, on_block: Callable[[ContentBlock], None] | None = None) -> None:
        self.pieces = 0
        self.usage: Usage | None = None
        self._on_block = on_block
        self._blocks: list[ContentBlock] = []
        self._open_text: list[str] = []

    def alive(self) -> None:
        """Say that the answer is on its way though none of it can be shown: thinking, a tool's input, a retry."""
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
        """Tell of no more blocks: what a provider says after its call is over is nobody's."""
        self._on_block = None

    def kept(
        self, complete: list[ContentBlock] | None = None, calls: Collection[str] = frozenset()
    ) -> list[ContentBlock]:
        """The part of a cut answer that may stay in the history; `complete` is the answer if it came whole after all.

        Complete blocks stay; text stays as far as it came; thinking that lacks its signature goes, and so do tool
        calls, but for those with an id in `calls`. Thinking alone is nothing that was said, so it goes too.
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
