"""A provider that asks a service over HTTP, in the form of Anthropic's Messages."""

import asyncio

import aiohttp

from orchestrator_interactive.kernel.contracts.errors import InvalidRequestError, ProviderUnavailableError
from orchestrator_interactive.kernel.contracts.messages import (
    ChatResponse,
    TextBlock,
    ThinkingBlock,
    ToolCall,
    ToolCallBlock,
    Usage,
)
from orchestrator_interactive.kernel.contracts.models import ModelInfo, ProviderInfo


def wire(block):
    match block.type:
        case "text":
            return {"type": "text", "text": block.text}
        case "thinking":
            return {"type": "thinking", "thinking": block.thinking, "signature": block.signature}
        case "redacted_thinking":
            return {"type": "redacted_thinking", "data": block.data}
        case "tool_call":
            return {"type": "tool_use", "id": block.id, "name": block.name, "input": block.input}


def wire_message(message):
    if message.role == "tool":
        result = {"type": "tool_result", "tool_use_id": message.tool_call_id, "content": message.content}
        return {"role": "user", "content": [result]}
    content = message.content
    return {
        "role": message.role,
        "content": content if isinstance(content, str) else [wire(block) for block in content],
    }


def own(block):
    match block["type"]:
        case "text":
            return TextBlock(text=block["text"])
        case "thinking":
            return ThinkingBlock(thinking=block["thinking"], signature=block["signature"])
        case "tool_use":
            return ToolCallBlock(id=block["id"], name=block["name"], input=block["input"])


class WebProvider:
    name = "web"

    def __init__(self, config):
        self.base_url = config["base_url"]
        self.api_key = config["api_key"]

    def get_info(self):
        defaults = {"model": "web-1", "context_window": 8000, "max_output_tokens": 1000}
        return ProviderInfo(id="web", display_name="Web", defaults=defaults)

    async def list_models(self):
        found = await self.ask("GET", "/v1/models", None)
        return [
            ModelInfo(id=each["id"], display_name=each["display_name"], context_window=8000, max_output_tokens=1000)
            for each in found["data"]
        ]

    async def complete(self, request, **kwargs):
        tools = [
            {"name": tool.name, "description": tool.description, "input_schema": tool.parameters}
            for tool in request.tools or []
        ]
        body = {"model": "web-1", "messages": [wire_message(message) for message in request.messages], "tools": tools}
        answer = await self.ask("POST", "/v1/messages", body)
        counted = answer["usage"]
        usage = Usage(
            input_tokens=counted["input_tokens"],
            output_tokens=counted["output_tokens"],
            total_tokens=counted["input_tokens"] + counted["output_tokens"],
        )
        return ChatResponse(content=[own(block) for block in answer["content"]], usage=usage)

    async def ask(self, method, path, body):
        headers = {"x-api-key": self.api_key}
        try:
            async with (
                aiohttp.ClientSession(headers=headers) as session,
                session.request(method, self.base_url + path, json=body) as response,
            ):
                answer = await response.json()
        except aiohttp.ClientError as e:
            raise ProviderUnavailableError(f"The service cannot be reached: {e}", provider="web") from e
        if response.status >= 400:
            raise InvalidRequestError(answer["error"]["message"], provider="web", status_code=response.status)
        return answer

    def parse_tool_calls(self, response):
        calls = [block for block in response.content if isinstance(block, ToolCallBlock)]
        return [ToolCall(id=call.id, name=call.name, arguments=call.input) for call in calls]


async def mount(coordinator, config):
    if not config.get("api_key"):
        return
    await coordinator.mount("providers", WebProvider(config), name="web")
    await asyncio.sleep(0)
