"""Build the kernel's answer from the chunks of a Chat Completions stream.

Compatible servers differ in details, so each value is checked: a value of an unexpected type is ignored.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import uuid4

from orchestrator_interactive.kernel.contracts.arguments import arguments_of, problem_of
from orchestrator_interactive.kernel.contracts.errors import LLMError
from orchestrator_interactive.kernel.contracts.messages import (
    ChatResponse,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
    Usage,
)
from orchestrator_interactive.kernel.contracts.tool_calls import calls_of

if TYPE_CHECKING:
    from orchestrator_interactive.kernel.contracts.messages import ContentBlock, ResponseStream
    from orchestrator_interactive.modules.provider_base import ApiRequest
    from orchestrator_interactive.modules.provider_openai.config import Prices

# Limit of an answer: many times the output limit of any model.
_MAX_CHARS = 10_000_000
_MAX_CALLS = 1_000
_CUT = ("length", "max_tokens")
# The server ended the answer because of a failure.
_FAILED = ("error", "abort")
# Names of the field with the reasoning of a model, by server.
_REASONING = ("reasoning_content", "reasoning")
_REFUSED = "refusal"
# Numbers of tokens above this are wrong.
_MAX_TOKENS = 10**12


class _OpenText:
    """Text or reasoning that is still arriving; `field` is where reasoning comes from."""

    __slots__ = ("field", "pieces")

    def __init__(self, field: str | None = None) -> None:
        self.field = field
        self.pieces: list[str] = []


class _OpenCall:
    """A tool call that is still arriving."""

    __slots__ = ("id", "is_over", "name", "pieces", "was_checked")

    def __init__(self, call_id: str) -> None:
        self.id = call_id
        self.name = ""
        self.pieces: list[str] = []
        self.was_checked = self.is_over = False

    @property
    def arguments(self) -> dict[str, Any] | None:
        """The arguments; `None` if they are missing or incomplete."""
        text = "".join(self.pieces)
        arguments = arguments_of(text)
        return None if not text.strip() or problem_of(arguments) else arguments


OpenT = TypeVar("OpenT", _OpenText, _OpenCall)


class StreamedAnswer:
    """Collects one answer and passes its complete parts on, in the order in which they begin.

    A tool call is complete when another part begins and its arguments are a JSON object, otherwise at the end. One
    whose arguments are no JSON object stays in the content with invalid arguments, and the loop asks the model again.
    A call that was truncated by the length limit is dropped and named in `degradation`.
    """

    def __init__(self, request: ApiRequest, sink: ResponseStream | None, prices: Prices | None) -> None:
        self._request = request
        self._sink = sink
        self._prices = prices
        self._chars = 0
        self._content: list[ContentBlock] = []
        self._open: list[_OpenText | _OpenCall] = []
        self._text: _OpenText | None = None
        self._thought: _OpenText | None = None
        self._calls: dict[int, _OpenCall] = {}
        self._last_index = -1
        self._begun = 0  # calls
        self._ids: set[str] = set()
        self._refusal: list[str] = []
        self._figures: dict[str, Any] = {}
        self._identity: dict[str, Any] = {}
        self._stop: str | None = None
        self._dropped = ""

    @property
    def complete(self) -> bool:
        """Whether the model has ended its answer; the usage may still follow."""
        return self._stop is not None and self._stop not in _FAILED

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
        if self._stop is not None or not isinstance(choice, dict) or (choice.get("index") or 0) != 0:
            return
        if isinstance(delta := choice.get("delta") or choice.get("message"), dict):
            self._grow(delta)
        if isinstance(stop := choice.get("finish_reason"), str) and stop:
            self._finish(stop)

    def _grow(self, delta: dict[str, Any]) -> None:
        for name in _REASONING:
            if isinstance(thought := delta.get(name), str) and thought:
                if self._thought is None:
                    self._thought = self._begin(_OpenText(name))
                self._add(self._thought, thought)
                break
        content = delta.get("content")
        if text := content if isinstance(content, str) else _text_in(content):
            if self._text is None:
                self._text = self._begin(_OpenText())
            self._add(self._text, text)
            if self._sink is not None:
                self._sink.text(text)
        if isinstance(refusal := delta.get("refusal"), str):
            self._refusal.append(refusal)
            self._count(refusal)
        calls = delta.get("tool_calls")
        for call in calls if isinstance(calls, list) else ():
            if isinstance(call, dict):
                self._grow_call(call)

    def _grow_call(self, part: dict[str, Any]) -> None:
        function = part.get("function")
        function = function if isinstance(function, dict) else {}
        call_id, name, arguments = part.get("id"), function.get("name"), function.get("arguments")
        call_id = call_id if isinstance(call_id, str) else ""
        name = name if isinstance(name, str) else ""
        call = self._call(part.get("index"), call_id, name)
        if call.is_over:
            return
        call.id, call.name = call.id or call_id, call.name or name
        if isinstance(arguments, dict):  # not a text, against the specification
            call.pieces = []
            arguments = json.dumps(arguments)
        if isinstance(arguments, str) and arguments:
            self._add(call, arguments)

    def _call(self, index: object, call_id: str, name: str) -> _OpenCall:
        """Return the call that a part belongs to.

        Some servers omit the index, or give all calls the same one: a name with another id begins a call. An id alone
        does not, because others give each part an id of its own.
        """
        has_index = isinstance(index, int) and not isinstance(index, bool)
        place = index if has_index and isinstance(index, int) else self._last_index
        call = self._calls.get(place)
        if call is not None:
            is_other = bool(name and call_id and call.id and call_id != call.id)
            is_next = bool(not has_index and name and not call_id and call.name and call.pieces)
            if not (is_other or is_next):
                return call
        if self._begun >= _MAX_CALLS:
            raise self._too_long()
        self._begun += 1
        self._last_index = place
        self._text = self._thought = None
        call = self._calls[place] = self._begin(_OpenCall(call_id))
        return call

    def _begin(self, block: OpenT) -> OpenT:
        """Add a block, and pass on those before it that are complete."""
        self._open.append(block)
        while len(self._open) > 1 and self._may_go(self._open[0]):
            self._pass_on(self._open.pop(0))
        return block

    def _may_go(self, block: _OpenText | _OpenCall) -> bool:
        if isinstance(block, _OpenText):
            return block is not self._text and block is not self._thought
        if block.was_checked:  # once: its arguments may be long
            return False
        block.was_checked = True
        return block.arguments is not None

    def _add(self, block: _OpenText | _OpenCall, piece: str) -> None:
        block.pieces.append(piece)
        self._count(piece)

    def _count(self, piece: str) -> None:
        self._chars += len(piece)
        if self._chars > _MAX_CHARS:
            raise self._too_long()

    def _too_long(self) -> LLMError:
        message = f"The answer has more than {_MAX_CHARS:,} characters or {_MAX_CALLS:,} calls: it was cut off."
        return LLMError(message, provider="openai", model=self._request.model)

    def _finish(self, stop: str) -> None:
        self._stop = stop
        if not self.complete:
            return
        last = self._open[-1] if self._open else None
        if stop in _CUT and isinstance(last, _OpenCall) and last.arguments is None:
            self._open.pop()
            self._dropped = self._declared(last.name)
        for block in self._open:
            self._pass_on(block)
        self._open.clear()

    def _pass_on(self, block: _OpenText | _OpenCall) -> None:
        finished = self._finished_call(block) if isinstance(block, _OpenCall) else self._finished_text(block)
        if finished is not None:
            self._content.append(finished)
            if self._sink is not None:
                self._sink.block(finished)

    def _finished_text(self, block: _OpenText) -> ContentBlock | None:
        text = "".join(block.pieces)
        if block.field is None:
            return TextBlock(text=text) if text.strip() else None
        # `content` is what this provider needs to send the reasoning back; others leave such a block out.
        thought = {"thinking": text, "content": [{"field": block.field}], "model": self._request.model}
        return ThinkingBlock.model_validate(thought)

    def _finished_call(self, call: _OpenCall) -> ContentBlock | None:
        call.is_over = True
        if not call.name and not call.pieces:
            return None
        call_id = call.id if call.id and call.id not in self._ids else f"call_{uuid4().hex[:24]}"
        self._ids.add(call_id)
        return ToolCallBlock(id=call_id, name=self._declared(call.name), input=arguments_of("".join(call.pieces)))

    def _declared(self, name: str) -> str:
        return self._request.tool_names.get(name, name)

    def response(self) -> ChatResponse:
        """Return the complete answer."""
        degradation, reason = None, self._stop
        if self._dropped:
            why = "their input did not arrive completely"
            degradation = {
                "requested": f"tool calls: {self._dropped}",
                "actual": "these calls were dropped",
                "reason": why,
            }
        metadata = {name: value for name, value in self._identity.items() if isinstance(value, str)}
        if refusal := "".join(self._refusal):
            reason, metadata[_REFUSED] = _REFUSED, refusal
        return ChatResponse(
            content=self._content,
            tool_calls=calls_of(self._content) or None,
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
        read, written = read or 0, written or 0
        cached = _number(self._figures.get("prompt_tokens_details"), "cached_tokens")
        cached = None if cached is None else min(cached, read)
        return Usage(
            input_tokens=read,
            output_tokens=written,
            total_tokens=read + written,
            reasoning_tokens=_number(self._figures.get("completion_tokens_details"), "reasoning_tokens"),
            cache_read_tokens=cached,
            cost_usd=None if self._prices is None else self._prices.cost_usd(read, written, cached or 0),
        )


def _text_in(content: object) -> str:
    """Return the text in a list of parts, in which some servers send it."""
    parts = content if isinstance(content, list) else ()
    texts = (part.get("text") for part in parts if isinstance(part, dict))
    return "".join(text for text in texts if isinstance(text, str))


def _number(figures: object, name: str) -> int | None:
    value = figures.get(name) if isinstance(figures, dict) else None
    if not isinstance(value, int) or isinstance(value, bool):
        return None
    return value if 0 <= value <= _MAX_TOKENS else None
