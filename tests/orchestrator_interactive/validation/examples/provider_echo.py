"""A provider without a service: it says what it was told."""

from orchestrator_interactive.kernel.contracts.messages import ChatResponse, TextBlock, ToolCall, ToolCallBlock, Usage
from orchestrator_interactive.kernel.contracts.models import ModelInfo, ProviderInfo


class EchoProvider:
    name = "echo"

    def get_info(self):
        return ProviderInfo(
            id="echo",
            display_name="Echo",
            defaults={"model": "echo-1", "context_window": 8000, "max_output_tokens": 1000},
        )

    async def list_models(self):
        return [ModelInfo(id="echo-1", display_name="Echo 1", context_window=8000, max_output_tokens=1000)]

    async def complete(self, request, **kwargs):
        said = str(request.messages[-1].content)
        usage = Usage(input_tokens=7, output_tokens=5, total_tokens=12)
        return ChatResponse(content=[TextBlock(text=said)], usage=usage)

    def parse_tool_calls(self, response):
        calls = [block for block in response.content if isinstance(block, ToolCallBlock)]
        return [ToolCall(id=call.id, name=call.name, arguments=call.input) for call in calls]


async def mount(coordinator, config):
    await coordinator.mount("providers", EchoProvider(), name="echo")
