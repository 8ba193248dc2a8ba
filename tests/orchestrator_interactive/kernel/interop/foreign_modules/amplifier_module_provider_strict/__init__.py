"""A provider for amplifier_core: it follows a script and accepts only amplifier_core's types."""

from typing import Any

from amplifier_core import (
    ChatRequest,
    ChatResponse,
    ImageBlock,
    InvalidRequestError,
    Message,
    ModelInfo,
    ModuleCoordinator,
    ProviderInfo,
    RateLimitError,
    RedactedThinkingBlock,
    TextBlock,
    ThinkingBlock,
    ToolCall,
    ToolCallBlock,
    ToolResultBlock,
    ToolSpec,
    Usage,
)

__amplifier_module_type__ = "provider"

BLOCKS = (TextBlock, ThinkingBlock, RedactedThinkingBlock, ToolCallBlock, ToolResultBlock, ImageBlock)


class StrictProvider:
    """Answer each request by an entry of the script: `think`, `say` and `call`, or `retry_after` in seconds."""

    def __init__(self, script: list[dict[str, Any]]) -> None:
        self.script = list(script)
        self.requests: list[ChatRequest] = []

    @property
    def name(self) -> str:
        return "strict"

    def get_info(self) -> ProviderInfo:
        defaults = {"model": "strict-1", "context_window": 100_000, "max_output_tokens": 1_000}
        return ProviderInfo(id="strict", display_name="Strict", capabilities=["tools"], defaults=defaults)

    async def list_models(self) -> list[ModelInfo]:
        return [ModelInfo(id="strict-1", display_name="Strict 1", context_window=100_000, max_output_tokens=1_000)]

    async def complete(self, request: ChatRequest, **kwargs: Any) -> ChatResponse:
        if kwargs:
            raise InvalidRequestError(f"I do not know {sorted(kwargs)}.", provider="strict")
        refuse_other_types(request)
        self.requests.append(request)
        step = self.script.pop(0)
        if "retry_after" in step:
            raise RateLimitError("Too fast.", provider="strict", status_code=429, retry_after=step["retry_after"])
        return answer(step)

    def parse_tool_calls(self, response: ChatResponse) -> list[ToolCall]:
        require(response, ChatResponse)
        return response.tool_calls or []


def answer(step: dict[str, Any]) -> ChatResponse:
    content: list[Any] = []
    if "think" in step:
        content.append(ThinkingBlock(thinking=step["think"], signature="signed by strict"))
    if "say" in step:
        content.append(TextBlock(text=step["say"]))
    calls = [ToolCall(id=call["id"], name=call["name"], arguments=call["input"]) for call in step.get("call", [])]
    content += [ToolCallBlock(id=call.id, name=call.name, input=call.arguments) for call in calls]
    usage = Usage(input_tokens=7, output_tokens=3, total_tokens=10)
    return ChatResponse(content=content, tool_calls=calls or None, usage=usage, finish_reason="stop")


def refuse_other_types(request: ChatRequest) -> None:
    require(request, ChatRequest)
    for message in request.messages:
        require(message, Message)
        for block in message.content if isinstance(message.content, list) else []:
            require(block, *BLOCKS)
    for spec in request.tools or []:
        require(spec, ToolSpec)


def require(value: object, *kinds: type) -> None:
    if not isinstance(value, kinds):
        kind = type(value)
        raise InvalidRequestError(f"Another type: {kind.__module__}.{kind.__qualname__}", provider="strict")


async def mount(coordinator: ModuleCoordinator, config: dict[str, Any] | None = None) -> None:
    provider = StrictProvider((config or {}).get("script", []))
    await coordinator.mount("providers", provider, name="strict")
