"""Convert the kernel's request to the body of a Messages API call.

The conversion is deterministic, and a longer history only appends, so that the prompt cache keeps the whole prefix.
Only the cache markers move.
"""

from __future__ import annotations

import json
from collections import Counter
from hashlib import sha256
from itertools import takewhile
from typing import TYPE_CHECKING, Any

from pydantic_core import PydanticSerializationError, to_json

from orchestrator_interactive.kernel.contracts.arguments import arguments_of
from orchestrator_interactive.kernel.contracts.errors import InvalidRequestError
from orchestrator_interactive.kernel.contracts.messages import (
    ImageBlock,
    Message,
    RedactedThinkingBlock,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
    ToolResultBlock,
)
from orchestrator_interactive.kernel.contracts.models import ToolResult, sendable
from orchestrator_interactive.modules.provider_anthropic.models import effort_for, thinking_for
from orchestrator_interactive.modules.provider_base import ApiRequest
from orchestrator_interactive.modules.provider_rows import (
    EARLIER,
    NO_OUTPUT,
    api_name,
    blocks_of,
    calls_in_field,
    is_system,
    reminder,
    text_of,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from orchestrator_interactive.kernel.contracts.messages import ChatRequest, ContentBlock, ToolSpec
    from orchestrator_interactive.modules.provider_anthropic.config import AnthropicConfig

    ApiBlock = dict[str, Any]

_CACHE = {"type": "ephemeral"}
_TOOL_CHOICES = {"auto": "auto", "none": "none", "required": "any", "any": "any"}
_THINKING = ("thinking", "redacted_thinking")
_UNSEEN = "(An image that you cannot see: the API refused it, or another one of the same request.)"


def api_request(request: ChatRequest, config: AnthropicConfig) -> ApiRequest:
    """Convert a request.

    `temperature` and `top_p` are not sent: API version 2026-10-21, which this SDK uses, rejects them.

    Raises:
        InvalidRequestError: an unknown `tool_choice`.
    """
    model = request.model or config.model
    system, messages = _system_blocks(request.messages), _api_messages(request.messages, model)
    tools = [_api_tool(tool) for tool in request.tools or ()]
    if config.prompt_cache:
        _mark_for_cache(system, tools, messages)
    body: dict[str, Any] = {"model": model, "messages": messages, **_limits(request, config, model)}
    body |= {"extra_body": config.extra_request_params} if config.extra_request_params else {}
    if betas := config.beta_headers:
        body["extra_headers"] = {"anthropic-beta": betas if isinstance(betas, str) else ",".join(betas)}
    if config.inference_geo:
        body["inference_geo"] = config.inference_geo
    if system:
        body["system"] = system
    if tools:
        body["tools"] = tools
        if request.tool_choice is not None:
            body["tool_choice"] = _api_tool_choice(request.tool_choice)
    return ApiRequest(body, {api_name(tool.name): tool.name for tool in request.tools or ()})


def images_of(call: ApiRequest) -> frozenset[str]:
    """Return the digests of the images in a request, also in its results."""
    blocks = [block for message in call.body["messages"] for block in message["content"]]
    blocks += [nested for block in blocks if isinstance(block.get("content"), list) for nested in block["content"]]
    return frozenset(_digest(block) for block in blocks if block["type"] == "image")


def without_images(call: ApiRequest, refused: Collection[str]) -> ApiRequest:
    """Return the request with a remark in place of each image whose digest is in `refused`."""

    def seen(block: ApiBlock) -> ApiBlock:
        if isinstance(content := block.get("content"), list):  # a message, or a result
            return {**block, "content": list(map(seen, content))}
        if block["type"] != "image" or _digest(block) not in refused:
            return block
        return {**{key: value for key, value in block.items() if key != "source"}, "type": "text", "text": _UNSEEN}

    return ApiRequest({**call.body, "messages": list(map(seen, call.body["messages"]))}, call.tool_names)


def _digest(image: ApiBlock) -> str:
    return sha256(json.dumps(image["source"], sort_keys=True).encode()).hexdigest()


def check_tool_pairs(messages: Sequence[ApiBlock]) -> None:
    """Raise unless the message after each call, and only that one, has exactly one result for it.

    Raises:
        InvalidRequestError: names the calls; the API would refuse this request and each later one of the conversation.
    """
    problems, called = [], Counter[str]()
    for message in (*messages, {"content": ()}):
        results = Counter(block["tool_use_id"] for block in message["content"] if block["type"] == "tool_result")
        problems += [f"the call {call_id} has no result in the next message" for call_id in called - results]
        problems += [f"the result of {call_id} has no call of its own before it" for call_id in results - called]
        called = Counter(block["id"] for block in message["content"] if block["type"] == "tool_use")
    if problems:
        raise InvalidRequestError(f"Anthropic would refuse this request: {'; '.join(problems)}.", provider="anthropic")


def _limits(request: ChatRequest, config: AnthropicConfig, model: str) -> dict[str, Any]:
    limits: dict[str, Any] = {"max_tokens": request.max_output_tokens or config.max_output_tokens}
    effort = effort_for(model, request.reasoning_effort or config.reasoning_effort)
    if thinking := thinking_for(model, config.thinking_tokens, effort):
        limits["thinking"] = thinking
        budget = thinking.get("budget_tokens", 0)
        if budget >= limits["max_tokens"]:  # thinking counts towards max_tokens and would leave no room for the answer
            limits["max_tokens"] += budget
    if effort:
        limits["output_config"] = {"effort": effort}
    if stop := [text for text in request.stop or () if text.strip()]:
        limits["stop_sequences"] = stop
    return limits


def _api_tool(tool: ToolSpec) -> dict[str, Any]:
    api_block: dict[str, Any] = {"name": api_name(tool.name), "input_schema": {"type": "object", **tool.parameters}}
    if tool.description:
        api_block["description"] = tool.description
    return api_block


def _api_tool_choice(choice: str | dict[str, Any]) -> dict[str, Any]:
    if isinstance(choice, str):
        if kind := _TOOL_CHOICES.get(choice):
            return {"type": kind}
    elif choice.get("type") in _TOOL_CHOICES.values():
        return choice
    elif name := choice.get("name") or choice.get("function", {}).get("name"):
        rest = {key: value for key, value in choice.items() if key != "function"}
        return {**rest, "type": "tool", "name": api_name(name)}
    raise InvalidRequestError(
        f'Anthropic does not support tool_choice {choice!r}. Use "auto", "none", "required", or '
        '{"type": "tool", "name": …}.',
        provider="anthropic",
    )


def _mark_for_cache(system: list[dict[str, Any]], tools: list[dict[str, Any]], messages: list[dict[str, Any]]) -> None:
    """Set the four markers that the API allows: on system prompt and tools, and on the last two user messages.

    The previous request ended at the last user message but one: the cache is read there and written at the last one.
    """
    for blocks in (system, tools):
        if blocks:
            blocks[-1]["cache_control"] = _CACHE
    for message in [message for message in messages if message["role"] == "user"][-2:]:
        message["content"][-1]["cache_control"] = _CACHE


def _system_blocks(rows: Sequence[Message]) -> list[ApiBlock]:
    """Return the system prompt: the system and developer rows at the start of the history."""
    return [block for row in takewhile(is_system, rows) for block in _text_blocks(text_of(row))]


def _api_messages(rows: Sequence[Message], model: str) -> list[ApiBlock]:
    """Convert the rows after the system prompt; rows of one side form one message, with its tool results first."""
    messages: list[ApiBlock] = []
    for row in rows[len(list(takewhile(is_system, rows))) :]:
        blocks = list(_row_blocks(row, model))
        role = "assistant" if row.role == "assistant" else "user"
        if not blocks:
            continue
        if messages and messages[-1]["role"] == role:
            messages[-1]["content"].extend(blocks)
        else:
            messages.append({"role": role, "content": blocks})
    if messages and messages[0]["role"] == "assistant":
        messages.insert(0, {"role": "user", "content": [{"type": "text", "text": EARLIER}]})
    for message in messages:
        if message["role"] == "user":
            message["content"].sort(key=lambda block: block["type"] != "tool_result")
    return messages


def _row_blocks(row: Message, model: str) -> Iterable[ApiBlock]:
    match row.role:
        case "system" | "developer":
            return _text_blocks(reminder(row))
        case "assistant":
            return _assistant_blocks(row, model)
        case "tool" | "function" if row.tool_call_id is not None:
            return _tool_result_row(row, row.tool_call_id)
        case _:
            return (api_block for block in blocks_of(row) for api_block in _user_block(block))


def _text_blocks(text: str) -> list[ApiBlock]:
    """Return a text block, or none if the text is blank: the API rejects blank blocks."""
    text = sendable(text)
    return [{"type": "text", "text": text}] if text.strip() else []


def _user_block(block: ContentBlock) -> list[ApiBlock]:
    match block:
        case TextBlock(text=text):
            return _text_blocks(text)
        case ImageBlock(source=source):
            return [{"type": "image", "source": source}]
        case ToolResultBlock(tool_call_id=call_id, output=output):
            return [_tool_result(call_id, ToolResult(output=output).get_serialized_output(), is_error=False)]
    return []


def _tool_result_row(row: Message, call_id: str) -> list[ApiBlock]:
    """Return the result, and after it the images of a failed call: the API allows only text in such a result."""
    is_error = bool((row.metadata or {}).get("is_error"))
    if isinstance(row.content, str):
        return [_tool_result(call_id, sendable(row.content), is_error=is_error)]
    nested = next((block for block in row.content if isinstance(block, ToolResultBlock)), None)
    if nested is not None:
        return [_tool_result(call_id, ToolResult(output=nested.output).get_serialized_output(), is_error=is_error)]
    content = [api_block for block in row.content for api_block in _user_block(block)]
    images = [api_block for api_block in content if is_error and api_block["type"] == "image"]
    texts = [api_block for api_block in content if api_block not in images]
    return [_tool_result(call_id, texts, is_error=is_error), *images]


def _tool_result(call_id: str, content: str | list[ApiBlock], *, is_error: bool) -> ApiBlock:
    if not content or (isinstance(content, str) and not content.strip()):
        content = NO_OUTPUT
    api_block: ApiBlock = {"type": "tool_result", "tool_use_id": api_name(call_id), "content": content}
    return {**api_block, "is_error": True} if is_error else api_block


def _assistant_blocks(row: Message, model: str) -> list[ApiBlock]:
    api_block = [converted for block in blocks_of(row) for converted in _assistant_block(block, model)]
    called = {block["id"] for block in api_block if block["type"] == "tool_use"}
    beside = (_tool_use(*call) for call in calls_in_field(row))
    api_block += [call for call in beside if call["id"] not in called]
    while api_block and api_block[-1]["type"] in _THINKING:  # the API rejects a message that ends with thinking
        api_block.pop()
    return api_block


def _assistant_block(block: ContentBlock, model: str) -> list[ApiBlock]:
    match block:
        case TextBlock(text=text):
            return _text_blocks(text)
        case ThinkingBlock(thinking=thinking, signature=str(signature)) if _thought_by(block, model):
            return [{"type": "thinking", "thinking": thinking, "signature": signature}]
        case RedactedThinkingBlock(data=data) if _thought_by(block, model):
            return [{"type": "redacted_thinking", "data": data}]
        case ToolCallBlock(id=call_id, name=name, input=given):
            return [_tool_use(call_id, name, given)]
    return []


def _thought_by(block: ThinkingBlock | RedactedThinkingBlock, model: str) -> bool:
    """Return whether this model produced the thinking: newer models reject thinking of other models."""
    thought_by: str = (block.model_extra or {}).get("model", model)
    return thought_by == model


def _tool_use(call_id: str, name: str, given: Any) -> ApiBlock:
    return {"type": "tool_use", "id": api_name(call_id), "name": api_name(name), "input": _object(given)}


def _object(given: Any) -> dict[str, Any]:
    """Return the input of a call as a valid object; a lone surrogate would break every later request."""
    parsed = arguments_of(given) if given else {}
    try:
        to_json(parsed)
    except PydanticSerializationError:
        return dict(json.loads(json.dumps(parsed, ensure_ascii=False, default=str).encode(errors="ignore")))
    return parsed
