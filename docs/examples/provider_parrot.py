"""`provider-parrot`: repeats the last user message."""

from typing import Any

from orchestrator_interactive.kernel import ModelInfo, ModuleCoordinator, ProviderInfo, ResponseStream
from orchestrator_interactive.kernel.contracts.messages import ChatRequest, ChatResponse, TextBlock, ToolCall, Usage
from orchestrator_interactive.kernel.interop import accepts_both, to_local_coordinator

WINDOW, OUTPUT = 100_000, 4_000


class ParrotProvider:
    name = "parrot"

    def get_info(self) -> ProviderInfo:
        defaults = {"model": "parrot-1", "context_window": WINDOW, "max_output_tokens": OUTPUT}
        return ProviderInfo(id="parrot", display_name="Parrot", defaults=defaults)

    async def list_models(self) -> list[ModelInfo]:
        return [ModelInfo(id="parrot-1", display_name="Parrot", context_window=WINDOW, max_output_tokens=OUTPUT)]

    @accepts_both
    async def complete(self, request: ChatRequest, **kwargs: Any) -> ChatResponse:
        stream: ResponseStream = kwargs.get("stream") or ResponseStream()
        text = next(str(message.content) for message in reversed(request.messages) if message.role == "user")
        for piece in text.splitlines(keepends=True):
            stream.text(piece)
        block = TextBlock(text=text)
        stream.block(block)
        usage = Usage(input_tokens=len(text), output_tokens=len(text), total_tokens=2 * len(text))
        return ChatResponse(content=[block], usage=usage, finish_reason="end_turn")

    def parse_tool_calls(self, response: ChatResponse) -> list[ToolCall]:
        return response.tool_calls or []


async def mount(coordinator: ModuleCoordinator, config: dict[str, Any]) -> ParrotProvider:
    provider = ParrotProvider()
    await to_local_coordinator(coordinator).mount("providers", provider)
    return provider
