"""Build the kernel's answer from the API's events."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from orchestrator_interactive.kernel.contracts.arguments import arguments_of, problem_of
from orchestrator_interactive.kernel.contracts.errors import LLMError
from orchestrator_interactive.kernel.contracts.messages import (
    ChatResponse,
    RedactedThinkingBlock,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
)
from orchestrator_interactive.kernel.contracts.tool_calls import calls_of
from orchestrator_interactive.modules.provider_anthropic.models import usage_of

if TYPE_CHECKING:
    from anthropic.types import Message, MessageDeltaUsage, RawContentBlockStartEvent
    from anthropic.types import RawMessageStreamEvent as Event
    from anthropic.types import Usage as StartUsage

    from orchestrator_interactive.kernel.contracts.messages import ContentBlock, ResponseStream, Usage
    from orchestrator_interactive.modules.provider_anthropic.models import Prices
    from orchestrator_interactive.modules.provider_base import ApiRequest

# Limit of an answer: many times the output limit of any model.
_MAX_CHARS = 10_000_000
_CUT = ("max_tokens", "model_context_window_exceeded")


class _OpenBlock:
    """A block that is still arriving."""

    __slots__ = ("pieces", "signature", "start")

    def __init__(self, start: Any) -> None:
        self.start = start
        self.pieces: list[str] = []
        self.signature = ""


class StreamedAnswer:
    """Collects one answer and passes its complete parts on.

    Events and blocks of unknown types are ignored: the API adds types without a new version. A tool call whose input is
    not a JSON object stays in the content with invalid arguments, and the loop asks the model again. A call that was
    truncated by the length limit is dropped and named in `degradation`.
    """

    def __init__(self, request: ApiRequest, sink: ResponseStream | None, prices: Prices | None) -> None:
        self.complete = False
        self._chars = 0
        self._request = request
        self._sink = sink
        self._prices = prices
        self._open: dict[int, _OpenBlock] = {}
        self._content: list[ContentBlock] = []
        # The last block, if it is a call whose input is missing or incomplete.
        self._unfinished_call: ToolCallBlock | None = None
        self._message: Message | None = None
        self._usage: dict[str, Any] = {}
        self._stop: Any = None

    def feed(self, event: Event) -> None:
        """Process one event; this is the hot path."""
        if self._sink is not None:
            self._sink.heartbeat()
        if event.type == "content_block_delta":
            if block := self._open.get(event.index):
                self._grow(block, event.delta)
        elif event.type == "content_block_start":
            self._begin(event)
        elif event.type == "content_block_stop":
            self._end(event.index)
        elif event.type == "message_start":
            self._start(event.message)
        elif event.type == "message_delta":
            self._stop = event.delta
            self._count(event.usage)
        elif event.type == "message_stop":
            for index in sorted(self._open):  # some gateways omit the end of the last block
                self._end(index)
            self.complete = True

    def _start(self, message: Message) -> None:
        self._message = message
        self._count(message.usage)
        if self._sink is not None:
            self._sink.usage = self._tokens()

    def response(self) -> ChatResponse:
        """Return the complete answer."""
        stop_reason: str | None = getattr(self._stop, "stop_reason", None)
        degradation = None
        if stop_reason in _CUT and (dropped := self._unfinished_call) is not None:
            self._content.remove(dropped)
            degradation = {
                "requested": f"tool calls: {dropped.name}",
                "actual": "these calls were dropped",
                "reason": "their input did not arrive completely",
            }
        metadata = {"id": getattr(self._message, "id", None), "model": getattr(self._message, "model", None)}
        if explanation := getattr(getattr(self._stop, "stop_details", None), "explanation", None):
            metadata["refusal"] = explanation
        return ChatResponse(
            content=self._content,
            tool_calls=calls_of(self._content) or None,
            usage=self._tokens(),
            finish_reason=stop_reason,
            degradation=degradation,
            metadata=metadata,
        )

    def _begin(self, event: RawContentBlockStartEvent) -> None:
        start = event.content_block
        block = self._open[event.index] = _OpenBlock(start)
        self._unfinished_call = None
        if start.type == "text" and start.text:
            self._say(block, start.text)
        elif start.type == "thinking":
            block.pieces.append(start.thinking)
            block.signature = start.signature

    def _grow(self, block: _OpenBlock, delta: Any) -> None:
        match delta.type:
            case "text_delta":
                self._say(block, delta.text)
            case "input_json_delta":
                block.pieces.append(delta.partial_json)
            case "thinking_delta":
                block.pieces.append(delta.thinking)
            case "signature_delta":
                block.signature = delta.signature
        self._chars += len(block.pieces[-1]) if block.pieces else 0
        if self._chars > _MAX_CHARS:
            message = f"The answer has more than {_MAX_CHARS:,} characters: it was cut off."
            raise LLMError(message, provider="anthropic", model=self._request.model)

    def _say(self, block: _OpenBlock, text: str) -> None:
        block.pieces.append(text)
        if self._sink is not None and block.start.type == "text":
            self._sink.text(text)

    def _end(self, index: int) -> None:
        block = self._open.pop(index, None)
        finished = None if block is None else self._finished(block)
        if finished is not None:
            self._content.append(finished)
            if self._sink is not None:
                self._sink.block(finished)

    def _finished(self, block: _OpenBlock) -> ContentBlock | None:
        text = "".join(block.pieces)
        match block.start.type:
            case "text":
                return TextBlock(text=text) if text else None
            case "thinking":
                # Thinking is only valid for the model that produced it; the conversion drops it for others.
                thought = {"thinking": text, "signature": block.signature or None, "model": self._request.model}
                return ThinkingBlock.model_validate(thought)
            case "redacted_thinking":
                return RedactedThinkingBlock.model_validate({"data": block.start.data, "model": self._request.model})
            case "tool_use":
                name = self._request.tool_names.get(block.start.name, block.start.name)
                given = arguments_of(text or block.start.input)
                call = ToolCallBlock(id=block.start.id, name=name, input=given)
                if not text or problem_of(given):
                    self._unfinished_call = call
                return call
        return None

    def _tokens(self) -> Usage:
        return usage_of(self._usage, self._request.model, self._prices)

    def _count(self, usage: StartUsage | MessageDeltaUsage | None) -> None:
        # The last event's figures are cumulative, but may be incomplete.
        self._usage |= {key: value for key, value in (vars(usage) if usage else {}).items() if value is not None}
