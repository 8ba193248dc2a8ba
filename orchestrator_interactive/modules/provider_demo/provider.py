"""The demo provider: paced, streaming, with errors on request."""

from __future__ import annotations

import asyncio
import re
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from pydantic import Field

from orchestrator_interactive.config import Options
from orchestrator_interactive.kernel.contracts.errors import (
    AuthenticationError,
    ProviderUnavailableError,
    RateLimitError,
)
from orchestrator_interactive.kernel.contracts.messages import ChatResponse, TextBlock, ToolCall, ToolCallBlock, Usage
from orchestrator_interactive.kernel.contracts.models import ModelInfo, ProviderInfo
from orchestrator_interactive.kernel.interop import accepts_both
from orchestrator_interactive.modules.provider_demo.conversation import task_of
from orchestrator_interactive.modules.provider_demo.plan import next_step

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orchestrator_interactive.kernel.contracts.messages import ChatRequest, ContentBlock, ResponseStream
    from orchestrator_interactive.modules.provider_demo.plan import DemoStep

MODEL = "demo-1"
_CONTEXT_WINDOW = 200_000
_MAX_OUTPUT_TOKENS = 8_192
# A call takes as long as this number of words.
_WORDS_OF_A_CALL = 10
_WORD = re.compile(r"\s*\S+\s*")


class DemoOptions(Options):
    """Pace of the demo, in seconds. With both 0 it never waits, not even on request."""

    think_s: float = Field(default=1.5, ge=0, le=60)
    word_s: float = Field(default=0.02, ge=0, le=5)


class DemoProvider:
    """A stateless provider without a model or network; a conversation can resume anywhere."""

    name = "demo"

    def __init__(self, options: DemoOptions) -> None:
        self._options = options

    def get_info(self) -> ProviderInfo:
        return ProviderInfo(
            id="demo",
            display_name="Offline demo",
            capabilities=["streaming", "tools", "tool_choice"],
            defaults={"model": MODEL, "context_window": _CONTEXT_WINDOW, "max_output_tokens": _MAX_OUTPUT_TOKENS},
        )

    async def list_models(self) -> list[ModelInfo]:
        return [
            ModelInfo(
                id=MODEL,
                display_name="Offline demo: word rules, no language model",
                context_window=_CONTEXT_WINDOW,
                max_output_tokens=_MAX_OUTPUT_TOKENS,
                capabilities=["streaming", "tools", "tool_choice"],
            )
        ]

    @accepts_both
    async def complete(self, request: ChatRequest, **kwargs: Any) -> ChatResponse:
        """Answer; with `stream=` (a `ResponseStream`), word by word. The only supported `tool_choice` is `"none"`.

        A prompt may request a refused or truncated answer (`demo: refuse`, `demo: cut`).

        Raises:
            LLMError: the last prompt requested it (`demo: fail`, `demo: fail auth`, `demo: rate limit`).
        """
        await _fail_on_request(request)
        may_call = request.tools and request.tool_choice != "none"
        step = next_step(request.messages, {tool.name for tool in request.tools or ()} if may_call else ())
        await self._deliver(step, kwargs.get("stream"))
        return ChatResponse(
            content=step.blocks,
            tool_calls=_tool_calls(step.blocks) or None,
            usage=_usage(request, step.blocks),
            finish_reason=step.finish_reason,
            metadata={"refusal": step.refusal} if step.refusal else None,
        )

    def parse_tool_calls(self, response: ChatResponse) -> list[ToolCall]:
        if response.tool_calls is not None:
            return response.tool_calls
        return _tool_calls(response.content)

    async def _deliver(self, step: DemoStep, stream: ResponseStream | None) -> None:
        await self._pause(self._options.think_s)
        for block in step.blocks:
            if isinstance(block, TextBlock):
                await self._speak(block.text, step.wait_s, stream)
            else:
                await self._pause(self._options.word_s * _WORDS_OF_A_CALL)
            if stream is not None:
                stream.block(block)

    async def _speak(self, text: str, wait_s: float, stream: ResponseStream | None) -> None:
        in_the_pause = len(_WORD.findall(text.partition("\n\n")[0])) if wait_s else 0
        for number, word in enumerate(_WORD.findall(text)):
            if stream is not None:
                stream.text(word)
            await self._pause(wait_s / in_the_pause if number < in_the_pause else self._options.word_s)

    async def _pause(self, seconds: float) -> None:
        in_a_hurry = not self._options.think_s and not self._options.word_s
        await asyncio.sleep(0 if in_a_hurry else seconds)


async def _fail_on_request(request: ChatRequest) -> None:
    task = task_of(request.messages)
    match "" if task.wrote else task.prompt.strip():
        case "demo: fail":
            raise ProviderUnavailableError("The demo fails because you asked for it.", provider="demo", status_code=503)
        case "demo: fail auth":
            raise AuthenticationError("The demo refuses its key because you asked.", provider="demo", status_code=401)
        case "demo: rate limit":
            raise RateLimitError(
                "The demo's rate limit is used up because you asked.", provider="demo", status_code=429, retry_after=2.0
            )
        case "demo: stall":
            await asyncio.Event().wait()
        case _:
            pass


def _tool_calls(blocks: Sequence[ContentBlock]) -> list[ToolCall]:
    calls = [block for block in blocks if isinstance(block, ToolCallBlock)]
    return [ToolCall(id=call.id, name=call.name, arguments=call.input) for call in calls]


def _usage(request: ChatRequest, blocks: Sequence[ContentBlock]) -> Usage:
    """Estimate tokens as a quarter of the characters; the cost is 0."""
    read = sum(_size(message.content) for message in request.messages)
    read += sum(len(tool.model_dump_json()) for tool in request.tools or ())
    input_tokens, output_tokens = read // 4 + 1, _size(blocks) // 4 + 1
    return Usage(
        input_tokens=input_tokens,
        output_tokens=output_tokens,
        total_tokens=input_tokens + output_tokens,
        cost_usd=Decimal(0),
    )


def _size(content: str | Sequence[ContentBlock]) -> int:
    return len(content) if isinstance(content, str) else sum(map(_block_size, content))


def _block_size(block: ContentBlock) -> int:
    return len(block.text) if isinstance(block, TextBlock) else len(block.model_dump_json())
