"""`provider-demo`: an offline provider without a language model, for trying out the service.

It answers by word rules from the conversation and the tool results, paced, streaming, and with errors on request.
`conversation` reads the task from a request, `tour` chooses the next step.
"""

from __future__ import annotations

import asyncio
import re
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from pydantic import Field

from orchestrator_interactive.config import Options, validate
from orchestrator_interactive.kernel.contracts.errors import (
    AuthenticationError,
    ProviderUnavailableError,
    RateLimitError,
)
from orchestrator_interactive.kernel.contracts.messages import ChatResponse, TextBlock, Usage
from orchestrator_interactive.kernel.contracts.models import ModelInfo, ProviderInfo
from orchestrator_interactive.kernel.contracts.tool_calls import calls_of
from orchestrator_interactive.kernel.interop import accepts_both, to_local_coordinator
from orchestrator_interactive.modules.provider_demo.commands import command_of
from orchestrator_interactive.modules.provider_demo.conversation import read_task, text_of
from orchestrator_interactive.modules.provider_demo.tour import next_step

if TYPE_CHECKING:
    from orchestrator_interactive.kernel.contracts.messages import ChatRequest, ResponseStream, ToolCall
    from orchestrator_interactive.kernel.coordinator import ModuleCoordinator

_MODEL = ModelInfo(
    id="demo-1",
    display_name="Offline demo: word rules, no language model",
    context_window=200_000,
    max_output_tokens=8_192,
    capabilities=["streaming", "tools", "tool_choice"],
)
_WORD = re.compile(r"\s*\S+\s*")


async def mount(coordinator: ModuleCoordinator, config: dict[str, Any]) -> DemoProvider:
    """Mount the provider as `demo`.

    Raises:
        ValueError: the configuration has an unknown option or a value out of range.
    """
    provider = DemoProvider(validate(DemoOptions, config, "provider-demo"))
    await to_local_coordinator(coordinator).mount("providers", provider, name=provider.name)
    return provider


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
        limits = {"context_window": _MODEL.context_window, "max_output_tokens": _MODEL.max_output_tokens}
        return ProviderInfo(
            id="demo",
            display_name="Offline demo",
            capabilities=_MODEL.capabilities,
            defaults={"model": _MODEL.id, **limits},
        )

    async def list_models(self) -> list[ModelInfo]:
        return [_MODEL.model_copy()]

    @accepts_both
    async def complete(self, request: ChatRequest, **kwargs: Any) -> ChatResponse:
        """Answer; with `stream=` (a `ResponseStream`), word by word. The only supported `tool_choice` is `"none"`.

        A prompt may request a refused or truncated answer (`demo: refuse`, `demo: cut`).

        Raises:
            LLMError: the last prompt requested it (`demo: fail`, `demo: fail auth`, `demo: rate limit`).
        """
        task = read_task(request.messages)
        await _fail_on_request(None if task.injected else command_of(task.prompt))
        may_call = request.tools and request.tool_choice != "none"
        step = next_step(request.messages, {tool.name for tool in request.tools or ()} if may_call else ())
        stream: ResponseStream | None = kwargs.get("stream")
        await self._pause(self._options.think_s)
        for block in step.blocks:
            if isinstance(block, TextBlock):
                await self._speak(block.text, step.wait_s, stream)
            if stream is not None:
                stream.block(block)
        response = ChatResponse(
            content=step.blocks,
            usage=_estimate(request, step.blocks),
            finish_reason=step.finish_reason,
            metadata={"refusal": step.refusal} if step.refusal else None,
        )
        return response.model_copy(update={"tool_calls": self.parse_tool_calls(response) or None})

    def parse_tool_calls(self, response: ChatResponse) -> list[ToolCall]:
        return calls_of(response.content) if response.tool_calls is None else response.tool_calls

    async def _speak(self, text: str, wait_s: float, stream: ResponseStream | None) -> None:
        in_the_pause = len(_WORD.findall(text.partition("\n\n")[0])) if wait_s else 0
        for number, word in enumerate(_WORD.findall(text)):
            if stream is not None:
                stream.text(word)
            await self._pause(wait_s / in_the_pause if number < in_the_pause else self._options.word_s)

    async def _pause(self, seconds: float) -> None:
        in_a_hurry = not self._options.think_s and not self._options.word_s
        await asyncio.sleep(0 if in_a_hurry else seconds)


async def _fail_on_request(command: str | None) -> None:
    match command:
        case "fail":
            raise ProviderUnavailableError("The demo fails because you asked for it.", provider="demo", status_code=503)
        case "fail auth":
            raise AuthenticationError("The demo refuses its key because you asked.", provider="demo", status_code=401)
        case "rate limit":
            text = "The demo's rate limit is used up because you asked."
            raise RateLimitError(text, provider="demo", status_code=429, retry_after=2.0)
        case "stall":
            await asyncio.Event().wait()


def _estimate(request: ChatRequest, blocks: list[Any]) -> Usage:
    """Estimate tokens as a quarter of the characters; the cost is 0."""
    read = sum(len(text_of(message)) for message in request.messages)
    read += sum(len(tool.model_dump_json()) for tool in request.tools or ())
    asked, said = read // 4 + 1, sum(len(block.model_dump_json()) for block in blocks) // 4 + 1
    return Usage(input_tokens=asked, output_tokens=said, total_tokens=asked + said, cost_usd=Decimal(0))
