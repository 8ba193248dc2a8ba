"""Requests to and responses from a provider, with their messages and typed blocks, and the partial response.

Field names are those of `amplifier_core.message_models`, so that objects convert in both directions with
`model_dump` and `model_validate`. Unknown fields are kept: provider-specific data survives the round trip.
"""

from __future__ import annotations

from decimal import Decimal  # noqa: TC003 - pydantic reads the annotation at run time
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, field_serializer

from orchestrator_interactive.kernel.contracts.arguments import arguments_of
from orchestrator_interactive.kernel.contracts.text import whole

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

Visibility = Literal["internal", "developer", "user"]
# Unusable arguments become {INVALID_JSON: text}; the loop then returns the error to the model as the result.
Arguments = Annotated[dict[str, Any], BeforeValidator(arguments_of)]
# A text or name of a model, which stores and Slack can encode.
Text = Annotated[str, AfterValidator(whole)]


class _ContractModel(BaseModel):
    model_config = ConfigDict(extra="allow")


class TextBlock(_ContractModel):
    type: Literal["text"] = "text"
    text: Text
    visibility: Visibility | None = None


class ThinkingBlock(_ContractModel):
    """Thinking of the model. It must not be sent back without a `signature` or provider state in `content`."""

    type: Literal["thinking"] = "thinking"
    thinking: str
    signature: str | None = None
    visibility: Visibility | None = None
    content: list[Any] | None = None


class RedactedThinkingBlock(_ContractModel):
    type: Literal["redacted_thinking"] = "redacted_thinking"
    data: str
    visibility: Visibility | None = None


class ToolCallBlock(_ContractModel):
    type: Literal["tool_call"] = "tool_call"
    id: str
    name: Text
    input: Arguments
    visibility: Visibility | None = None


class ToolResultBlock(_ContractModel):
    type: Literal["tool_result"] = "tool_result"
    tool_call_id: str
    output: Any
    visibility: Visibility | None = None


class ImageBlock(_ContractModel):
    type: Literal["image"] = "image"
    source: dict[str, Any]
    visibility: Visibility | None = None


class ReasoningBlock(_ContractModel):
    type: Literal["reasoning"] = "reasoning"
    content: list[Any]
    summary: list[Any]
    visibility: Visibility | None = None


ContentBlock = (
    TextBlock | ThinkingBlock | RedactedThinkingBlock | ToolCallBlock | ToolResultBlock | ImageBlock | ReasoningBlock
)
ContentBlockUnion = Annotated[ContentBlock, Field(discriminator="type")]
Role = Literal["system", "developer", "user", "assistant", "function", "tool"]


class Message(_ContractModel):
    role: Role
    content: str | list[ContentBlockUnion]
    name: str | None = None
    tool_call_id: str | None = None
    metadata: dict[str, Any] | None = None


class ToolSpec(_ContractModel):
    """A tool as the model sees it; `parameters` is a JSON schema."""

    name: str
    parameters: dict[str, Any]
    description: str | None = None


class ToolCall(_ContractModel):
    id: str
    name: Text
    arguments: Arguments


class Usage(_ContractModel):
    """Tokens of one call, and its cost in US dollars, which dumps as text. `None`: the provider does not report it."""

    input_tokens: int
    output_tokens: int
    total_tokens: int
    reasoning_tokens: int | None = None
    cache_read_tokens: int | None = None
    cache_write_tokens: int | None = None
    cost_usd: Decimal | None = None

    @field_serializer("cost_usd")
    def _as_text(self, cost_usd: Decimal | None) -> str | None:
        return None if cost_usd is None else str(cost_usd)


class ChatRequest(_ContractModel):
    """One call to a model.

    `tool_choice` is `"auto"`, `"none"`, `"required"` or a provider's own dict; `timeout` is in seconds.
    """

    messages: list[Message]
    tools: list[ToolSpec] | None = None
    response_format: Any | None = None
    temperature: float | None = None
    top_p: float | None = None
    max_output_tokens: int | None = None
    conversation_id: str | None = None
    stream: bool | None = False
    metadata: dict[str, Any] | None = None
    model: str | None = None
    tool_choice: str | dict[str, Any] | None = None
    stop: list[str] | None = None
    reasoning_effort: str | None = None
    timeout: float | None = None


class ChatResponse(_ContractModel):
    """A model's response. `finish_reason` is the provider's value (`end_turn`, `tool_use`, `max_tokens`, …)."""

    content: list[ContentBlockUnion]
    tool_calls: list[ToolCall] | None = None
    usage: Usage | None = None
    degradation: dict[str, Any] | None = None
    finish_reason: str | None = None
    metadata: dict[str, Any] | None = None

    @property
    def text(self) -> str:
        """Text blocks, joined; empty if there are none."""
        return "".join(block.text for block in self.content if isinstance(block, TextBlock))


# In characters. A remark before tool calls is usually shorter.


class ResponseStream:
    """Collect a response as it arrives, so that an interrupted call keeps its partial content.

    The provider calls `text` for each text delta and `block` for each finished block, in order; the deltas of a text
    block come before the block. Both are synchronous: token deltas do not cross the hook bus. `pieces` counts them,
    so that stalls can be detected. `usage` is the usage so far, if the provider reports it before the end; it is also
    the cost of an interrupted call. `on_block` is called with each block after it was added, `on_text` with each delta.
    """

    def __init__(
        self,
        on_block: Callable[[ContentBlock], None] | None = None,
        on_text: Callable[[str], None] | None = None,
    ) -> None:
        self.pieces = 0
        self.usage: Usage | None = None
        self._on_block = on_block
        self._on_text = on_text
        self._blocks: list[ContentBlock] = []
        self._open_text: list[str] = []

    def heartbeat(self) -> None:
        """Report progress without visible content: thinking, a tool's input, a retry."""
        self.pieces += 1

    def text(self, delta: str) -> None:
        self.pieces += 1
        self._open_text.append(delta)
        if self._on_text is not None:
            self._on_text(delta)

    def block(self, block: ContentBlock) -> None:
        self.pieces += 1
        if isinstance(block, TextBlock):
            self._open_text.clear()
        self._blocks.append(block)
        if self._on_block is not None:
            self._on_block(block)

    def close(self) -> None:
        """Stop calling `on_block` and `on_text`: what arrives after the call ended is ignored."""
        self._on_block = self._on_text = None

    def valid_blocks(
        self, complete: list[ContentBlock] | None = None, calls: Collection[str] = frozenset()
    ) -> list[ContentBlock]:
        """Return the blocks of an interrupted response that may stay in the history.

        Complete blocks and partial text are kept. Thinking without a signature or provider state and tool calls whose
        id is not in `calls` are dropped. If only thinking is left, the result is empty. `complete` is the whole
        response, if it arrived after all.
        """
        blocks = self._blocks if complete is None else complete
        kept = [block for block in blocks if _may_stay(block, calls)]
        if complete is None and (tail := "".join(self._open_text)).strip():
            kept.append(TextBlock(text=tail))
        return kept if any(isinstance(block, TextBlock | ToolCallBlock) for block in kept) else []


def _may_stay(block: ContentBlock, calls: Collection[str]) -> bool:
    match block:
        case TextBlock():
            return bool(block.text.strip())
        case ThinkingBlock():
            return block.signature is not None or bool(block.content)
        case ToolCallBlock():
            return block.id in calls
        case _:
            return True
