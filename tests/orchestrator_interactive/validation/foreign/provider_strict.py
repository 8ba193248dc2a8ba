"""A provider written against amplifier_core, which insists on its types and asks a service over HTTP."""

import json
from urllib.parse import urlsplit

import aiohttp
from amplifier_core import (
    ChatRequest,
    ChatResponse,
    ModelInfo,
    ProviderInfo,
    RedactedThinkingBlock,
    TextBlock,
    ThinkingBlock,
    ToolCall,
    ToolCallBlock,
    Usage,
)
from amplifier_core.llm_errors import InvalidRequestError


class StrictProvider:
    name = "strict"

    def __init__(self, coordinator, config):
        self.base_url = config["base_url"]
        assert urlsplit(self.base_url).hostname

    def get_info(self) -> ProviderInfo:
        defaults = {"model": "strict-1", "context_window": 8000, "max_output_tokens": 1000}
        return ProviderInfo(id="strict", display_name="Strict", credential_env_vars=["STRICT_KEY"], defaults=defaults)

    async def list_models(self) -> list[ModelInfo]:
        return [ModelInfo(id="strict-1", display_name="Strict 1", context_window=8000, max_output_tokens=1000)]

    async def complete(self, request: ChatRequest, **kwargs) -> ChatResponse:
        assert isinstance(request, ChatRequest), type(request)
        tools = [tool.model_dump() for tool in request.tools or []]
        body = {"messages": [self.wire(message) for message in request.messages], "tools": tools}
        async with (
            aiohttp.ClientSession() as session,
            session.post(f"{self.base_url}/v1/messages", json=body) as response,
        ):
            answer = json.loads(await response.text())
        if response.status != 200:
            raise InvalidRequestError(answer["error"]["message"], provider="strict", status_code=response.status)
        return self.own(answer)

    def wire(self, message):
        if isinstance(message.content, str):
            return {"role": message.role, "content": message.content, "id": message.tool_call_id}
        return {"role": message.role, "content": [self.wire_block(block) for block in message.content]}

    def wire_block(self, block):
        match block:
            case TextBlock():
                return {"text": block.text}
            case ThinkingBlock():
                return {"thinking": block.thinking, "signature": block.signature}
            case RedactedThinkingBlock():
                return {"data": block.data}
            case ToolCallBlock():
                return {"id": block.id, "name": block.name, "input": block.input}
        raise TypeError(type(block))

    def own(self, answer) -> ChatResponse:
        thinking, text, call = answer["content"]
        used = answer["usage"]
        total = used["input_tokens"] + used["output_tokens"]
        return ChatResponse(
            content=[
                ThinkingBlock(thinking=thinking["thinking"], signature=thinking["signature"]),
                TextBlock(text=text["text"]),
                ToolCallBlock(id=call["id"], name=call["name"], input=call["input"]),
            ],
            tool_calls=[ToolCall(id=call["id"], name=call["name"], arguments=call["input"])],
            usage=Usage(input_tokens=used["input_tokens"], output_tokens=used["output_tokens"], total_tokens=total),
        )

    def parse_tool_calls(self, response: ChatResponse) -> list[ToolCall]:
        assert isinstance(response, ChatResponse), type(response)
        return list(response.tool_calls or [])


async def mount(coordinator, config=None):
    config = config or {}
    if not config.get("api_key"):
        return
    await coordinator.mount("providers", StrictProvider(coordinator, config), name="strict")
