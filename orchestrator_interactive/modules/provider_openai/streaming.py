"""Build the kernel's answer from the chunks of a Chat Completions stream.

Compatible servers differ in details, so each value is checked; one of an unexpected type is ignored.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from orchestrator_interactive.kernel.contracts.arguments import arguments_of, problem_of
from orchestrator_interactive.kernel.contracts.errors import LLMError
from orchestrator_interactive.kernel.contracts.messages import (
    ChatResponse,
    TextBlock,
    ThinkingBlock,
    ToolCall,
    ToolCallBlock,
    Usage,
)
from orchestrator_interactive.modules.provider_anthropic.models import Tokens

if TYPE_CHECKING:
    from orchestrator_interactive.kernel.contracts.messages import ContentBlock, ResponseStream
    from orchestrator_interactive.modules.provider_anthropic.models import Prices
    from orchestrator_interactive.modules.provider_openai.convert import ApiRequest

# Limit of an answer: many times the output limit of any model.
_MAX_CHARS = 10_000_000
_MAX_CALLS = 1_000
_CUT = ("length", "max_tokens")
# Names of the field with the reasoning of a model, by server.
_REASONING = ("reasoning_content", "reasoning")
_REFUSED = "refusal"


class _OpenCall:
    """A tool call that is still arriving."""

    __slots__ = ("id", "name", "pieces")

    def __init__(self) -> None:
        self.id = self.name = ""
        self.pieces: list[str] = []


class StreamedAnswer:
    """Collects one answer and passes its complete parts on: reasoning, then text, then tool calls.

    A tool call whose arguments are not a JSON object stays in the content with invalid arguments, and the loop asks the
    model again. A call that was truncated by the length limit is dropped and named in `degradation`.
    """

    def __init__(self, request: ApiRequest, sink: ResponseStream | None, prices: Prices | None) -> None:
        self._request = request
        self._sink = sink
        self._prices = prices
        self._chars = 0
        self._content: list[ContentBlock] = []
        self._thoughts: list[str] = []
        self._text: list[str] = []
        self._calls: dict[int, _OpenCall] = {}
        self._ids: set[str] = set()
        self._refusal: list[str] = []
        self._figures: dict[str, Any] = {}
        self._identity: dict[str, Any] = {}
        self._stop: str | None = None
        self.is_over = False

    @property
    def complete(self) -> bool:
        """Whether the model has ended its answer; the usage may still follow."""
        return self._stop is not None

    @property
    def has_usage(self) -> bool:
        return bool(self._figures)

    def feed(self, chunk: object) -> None:
        """Process one chunk; this is the hot path."""
        if self._sink is not None:
            self._sink.heartbeat()
        if not isinstance(chunk, dict):
            return
        if isinstance(usage := chunk.get("usage"), dict):
            self._figures = usage
            if self._sink is not None:
                self._sink.usage = self._usage()
        if not self._identity:
            self._identity = {"id": chunk.get("id"), "model": chunk.get("model")}
        choices = chunk.get("choices")
        choice = choices[0] if isinstance(choices, list) and choices else None
        if not isinstance(choice, dict) or choice.get("index", 0) not in {0, None}:
            return
        if isinstance(delta := choice.get("delta") or choice.get("message"), dict):
            self._grow(delta)
        if isinstance(stop := choice.get("finish_reason"), str) and stop and self._stop is None:
            self._stop = stop

    def _grow(self, delta: dict[str, Any]) -> None:
        for name in _REASONING:
            if isinstance(thought := delta.get(name), str) and thought:
                self._thoughts.append(thought)
                self._count(thought)
                break
        if isinstance(text := delta.get("content"), str) and text:
            self._text.append(text)
            self._count(text)
            if self._sink is not None:
                self._sink.text(text)
        if isinstance(refusal := delta.get("refusal"), str) and refusal:
            self._refusal.append(refusal)
            self._count(refusal)
        calls = delta.get("tool_calls")
        for call in calls if isinstance(calls, list) else ():
            if isinstance(call, dict):
                self._grow_call(call)

    def _grow_call(self, part: dict[str, Any]) -> None:
        function = part.get("function")
        function = function if isinstance(function, dict) else {}
        index = part.get("index")
        call_id = part.get("id") if isinstance(part.get("id"), str) else ""
        last = max(self._calls, default=-1)
        if not isinstance(index, int) or isinstance(index, bool):  # some servers leave it out
            begins = bool(call_id) and (last < 0 or self._calls[last].id not in {"", call_id})
            index = last + 1 if begins or last < 0 else last
        if index not in self._calls and len(self._calls) >= _MAX_CALLS:
            raise self._too_long()
        call = self._calls.setdefault(index, _OpenCall())
        call.id = call.id or call_id or ""
        if isinstance(name := function.get("name"), str) and name and not call.name:
            call.name = name
        arguments = function.get("arguments")
        if isinstance(arguments, dict):  # not a text, against the specification
            call.pieces = [_as_json(arguments)]
        elif isinstance(arguments, str) and arguments:
            call.pieces.append(arguments)
            self._count(arguments)

    def _count(self, piece: str) -> None:
        self._chars += len(piece)
        if self._chars > _MAX_CHARS:
            raise self._too_long()

    def _too_long(self) -> LLMError:
        message = f"The answer has more than {_MAX_CHARS:,} characters or {_MAX_CALLS:,} calls: it was cut off."
        return LLMError(message, provider="openai", model=self._request.model)

    def finish(self) -> None:
        """Pass on the blocks: the stream is over."""
        if self.is_over:
            return
        self.is_over = True
        if thought := "".join(self._thoughts):
            self._add(ThinkingBlock.model_validate({"thinking": thought, "model": self._request.model}))
        if text := "".join(self._text):
            self._add(TextBlock(text=text))
        for _, call in sorted(self._calls.items()):
            if call.name or call.pieces:
                self._add(self._finished(call))

    def _finished(self, call: _OpenCall) -> ToolCallBlock:
        call_id = call.id if call.id and call.id not in self._ids else f"call_{uuid4().hex[:24]}"
        self._ids.add(call_id)
        name = self._request.tool_names.get(call.name, call.name)
        return ToolCallBlock(id=call_id, name=name, input=arguments_of("".join(call.pieces)))

    def _add(self, block: ContentBlock) -> None:
        self._content.append(block)
        if self._sink is not None:
            self._sink.block(block)

    def response(self) -> ChatResponse:
        """Return the complete answer."""
        content, degradation, reason = list(self._content), None, self._stop
        last = content[-1] if content else None
        if reason in _CUT and isinstance(last, ToolCallBlock) and problem_of(last.input):
            content.pop()
            why = "their input did not arrive completely"
            degradation = {
                "requested": f"tool calls: {last.name}",
                "actual": "these calls were dropped",
                "reason": why,
            }
        metadata = {name: value for name, value in self._identity.items() if isinstance(value, str)}
        if self._refusal:
            reason, metadata[_REFUSED] = _REFUSED, "".join(self._refusal)
        calls = [block for block in content if isinstance(block, ToolCallBlock)]
        return ChatResponse(
            content=content,
            tool_calls=[ToolCall(id=call.id, name=call.name, arguments=call.input) for call in calls] or None,
            usage=self._usage(),
            finish_reason=reason,
            degradation=degradation,
            metadata=metadata,
        )

    def _usage(self) -> Usage | None:
        """Return the reported tokens and their cost; `None`: none were reported."""
        if not self._figures:
            return None
        read, written = _number(self._figures, "prompt_tokens"), _number(self._figures, "completion_tokens")
        cached = min(_number(self._figures.get("prompt_tokens_details"), "cached_tokens"), read)
        reasoning = _number(self._figures.get("completion_tokens_details"), "reasoning_tokens")
        tokens = Tokens(read - cached, written, cached, 0, 0)
        return Usage(
            input_tokens=read,
            output_tokens=written,
            total_tokens=read + written,
            reasoning_tokens=reasoning or None,
            cache_read_tokens=cached or None,
            cost_usd=None if self._prices is None else self._prices.cost_usd(tokens),
        )


def _number(figures: object, name: str) -> int:
    value = figures.get(name) if isinstance(figures, dict) else None
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else 0


def _as_json(arguments: dict[str, Any]) -> str:

    return json.dumps(arguments)
