"""Provider with scripted answers."""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from orchestrator_interactive.kernel.contracts.messages import (
    ChatResponse,
    ContentBlock,
    TextBlock,
    ToolCall,
    ToolCallBlock,
    Usage,
)
from orchestrator_interactive.kernel.contracts.models import ModelInfo, ProviderInfo
from orchestrator_interactive.kernel.contracts.request_validation import check
from orchestrator_interactive.kernel.interop import to_local

if TYPE_CHECKING:
    from collections.abc import Iterable

    from orchestrator_interactive.kernel.contracts.messages import ChatRequest, ResponseStream

    Part = str | ToolCall | ContentBlock
    Answer = Part | Sequence[Part] | ChatResponse | BaseException

_CONTEXT_WINDOW = 200_000
_MAX_OUTPUT_TOKENS = 8_000


class MockProvider:
    """A provider that returns the answers of a list in order, then its default text.

    `requests` records a copy of each request. A request that real providers would refuse raises an
    `InvalidRequestError`. A `stream=` receives the answer before it is returned.

    Args:
        answers: each is a text, a `ToolCall`, a content block, a sequence of such values, a `ChatResponse`, or an
            exception, which is raised.
        default: the text after the last answer.

    Raises:
        TypeError: `answers` is not a sequence, or contains a value of another type.
    """

    def __init__(self, answers: Sequence[Answer] = (), *, default: str = "Mock response", name: str = "mock") -> None:
        if isinstance(answers, str) or not isinstance(answers, Sequence):
            raise TypeError(f"answers must be a list of answers, not {answers!r}; one for every call is default=….")
        self.name = name
        self.default = default
        self.requests: list[ChatRequest] = []
        self._script = deque(_step(answer) for answer in answers)

    @property
    def call_count(self) -> int:
        return len(self.requests)

    @property
    def last_request(self) -> ChatRequest | None:
        """Last request; `None` before the first call."""
        return self.requests[-1] if self.requests else None

    def get_info(self) -> ProviderInfo:
        return ProviderInfo(
            id=self.name,
            display_name="Mock provider",
            capabilities=["streaming", "tools", "tool_choice"],
            defaults={
                "model": "mock-model",
                "context_window": _CONTEXT_WINDOW,
                "max_output_tokens": _MAX_OUTPUT_TOKENS,
            },
        )

    async def list_models(self) -> list[ModelInfo]:
        model = ModelInfo(
            id="mock-model",
            display_name="Mock model",
            context_window=_CONTEXT_WINDOW,
            max_output_tokens=_MAX_OUTPUT_TOKENS,
        )
        return [model]

    async def complete(self, request: ChatRequest, *, stream: ResponseStream | None = None, **_: Any) -> ChatResponse:
        self.requests.append(copy.deepcopy(request))
        check(to_local(request))
        step = self._script.popleft() if self._script else _step(self.default)
        if isinstance(step, BaseException):
            raise step
        if stream is not None:
            _feed(stream, step.content)
        return step

    def parse_tool_calls(self, response: ChatResponse) -> list[ToolCall]:
        return _calls(response.content) if response.tool_calls is None else list(response.tool_calls)


def _step(answer: Any) -> ChatResponse | BaseException:
    answer = to_local(answer)
    if isinstance(answer, ChatResponse | BaseException):
        return answer
    parts = answer if isinstance(answer, list | tuple) else [answer]
    content = [_block(to_local(part)) for part in parts]
    calls = _calls(content)
    return ChatResponse(
        content=content,
        tool_calls=calls or None,
        usage=Usage(input_tokens=1, output_tokens=1, total_tokens=2),
        finish_reason="tool_use" if calls else "end_turn",
    )


def _block(part: Any) -> ContentBlock:
    match part:
        case str():
            return TextBlock(text=part)
        case ToolCall():
            return ToolCallBlock(id=part.id, name=part.name, input=part.arguments)
        case _ if isinstance(part, ContentBlock):
            block: ContentBlock = part
            return block
        case _:
            raise TypeError(f"answers may hold texts, tool calls, blocks, responses and exceptions, not {part!r}.")


def _calls(content: Iterable[ContentBlock]) -> list[ToolCall]:
    blocks = (block for block in content if isinstance(block, ToolCallBlock))
    return [ToolCall(id=block.id, name=block.name, arguments=block.input) for block in blocks]


def _feed(stream: ResponseStream, content: Iterable[ContentBlock]) -> None:
    for block in content:
        if isinstance(block, TextBlock):
            stream.text(block.text)
        stream.block(block)
