"""Convert the kernel's request to the body of a Chat Completions call.

The conversion is deterministic, and a longer history only appends, so that a prompt cache keeps the whole prefix.
"""

from __future__ import annotations

import json
from itertools import takewhile
from typing import TYPE_CHECKING, Any

from orchestrator_interactive.kernel.contracts.arguments import writable
from orchestrator_interactive.kernel.contracts.errors import InvalidRequestError
from orchestrator_interactive.kernel.contracts.messages import (
    ImageBlock,
    Message,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
    ToolResultBlock,
)
from orchestrator_interactive.kernel.contracts.models import ToolResult, sendable
from orchestrator_interactive.modules.provider_base import ApiRequest
from orchestrator_interactive.modules.provider_rows import (
    EARLIER,
    NO_OUTPUT,
    api_name,
    blocks_of,
    calls_in_field,
    is_system,
    reminder,
    shortened,
    text_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from orchestrator_interactive.kernel.contracts.messages import ChatRequest, ToolSpec
    from orchestrator_interactive.modules.provider_openai.config import OpenAIConfig

    ApiMessage = dict[str, Any]

_TOOL_CHOICES = {"auto": "auto", "none": "none", "required": "required", "any": "required"}
_UNSEEN = "(An image that you cannot see: this model reads only text.)"
_IMAGES = "(Images in the results of the calls above:)"
# OpenAI's limits, in characters. Some models expect their own ids back, such as `functions.read:0`.
_MAX_ID, _ID_STEM = 40, 31
_MAX_DESCRIPTION = 1024


def api_request(request: ChatRequest, config: OpenAIConfig) -> ApiRequest:
    """Convert a request.

    Raises:
        InvalidRequestError: an unknown `tool_choice`, a call without its result, or a result without its call.
    """
    model = request.model or config.model
    messages = _messages(request.messages, model, config.sends_reasoning)
    check_tool_pairs(messages)
    body: dict[str, Any] = {"model": model, "messages": messages, "stream": True}
    body[config.limit_field] = request.max_output_tokens or config.max_output_tokens
    if config.stream_usage:
        body["stream_options"] = {"include_usage": True}
    temperature = config.temperature if request.temperature is None else request.temperature
    optional = {
        "temperature": temperature,
        "top_p": request.top_p,
        "reasoning_effort": request.reasoning_effort or config.reasoning_effort,
        "stop": [text for text in request.stop or () if text.strip()] or None,
    }
    body |= {name: value for name, value in optional.items() if value is not None}
    if request.tools:
        body["tools"] = [_tool(each, is_openai=config.is_openai) for each in request.tools]
        if (choice := request.tool_choice) is not None:
            body["tool_choice"] = _tool_choice(choice)
            if isinstance(choice, dict) and choice.get("disable_parallel_tool_use"):
                body["parallel_tool_calls"] = False
    return ApiRequest({**body, **config.extra_request_params}, {api_name(t.name): t.name for t in request.tools or ()})


def has_images(call: ApiRequest) -> bool:
    return any(part["type"] == "image_url" for part in _parts_of(call))


def without_images(call: ApiRequest) -> ApiRequest:
    """Return a request for a model that cannot see: each image becomes a remark."""

    def seen(part: dict[str, Any]) -> dict[str, Any]:
        return _text(_UNSEEN) if part["type"] == "image_url" else part

    messages = [
        {**each, "content": "\n\n".join(part["text"] for part in map(seen, content))}
        if isinstance(content := each.get("content"), list)
        else each
        for each in call.body["messages"]
    ]
    return ApiRequest({**call.body, "messages": messages}, call.tool_names)


def _parts_of(call: ApiRequest) -> Iterator[dict[str, Any]]:
    for each in call.body["messages"]:
        if isinstance(content := each.get("content"), list):
            yield from content


def check_tool_pairs(messages: Sequence[ApiMessage]) -> None:
    """Raise unless exactly the results of its calls follow each message with calls.

    Raises:
        InvalidRequestError: names the calls; the API would refuse this request and each later one of the conversation.
    """
    problems: list[str] = []
    waiting: list[str] = []
    for message in (*messages, {"role": "end"}):
        if message["role"] == "tool":
            if message["tool_call_id"] in waiting:
                waiting.remove(message["tool_call_id"])
            else:
                problems.append(f"the result of {message['tool_call_id']} has no call of its own before it")
            continue
        problems += [f"the call {call_id} has no result after its message" for call_id in waiting]
        waiting = [call["id"] for call in message.get("tool_calls") or ()]
    if problems:
        raise InvalidRequestError(f"The API would refuse this request: {'; '.join(problems)}.", provider="openai")


def _tool(tool: ToolSpec, *, is_openai: bool) -> dict[str, Any]:
    description = sendable(tool.description or "")
    parameters = {"type": "object", "properties": {}, **tool.parameters}
    if is_openai and len(description) > _MAX_DESCRIPTION:  # the description of a schema has no limit
        parameters["description"] = description
        description = description[: _MAX_DESCRIPTION - 1] + "…"
    described = {"description": description} if description else {}
    return {"type": "function", "function": {"name": api_name(tool.name), **described, "parameters": parameters}}


def _tool_choice(choice: str | dict[str, Any]) -> str | dict[str, Any]:
    if isinstance(choice, str):
        if kind := _TOOL_CHOICES.get(choice):
            return kind
    elif name := choice.get("name") or (choice.get("function") or {}).get("name"):
        return {"type": "function", "function": {"name": api_name(name)}}
    elif kind := _TOOL_CHOICES.get(str(choice.get("type"))):
        return kind
    raise InvalidRequestError(
        f'tool_choice {choice!r} is not possible. Use "auto", "none", "required", or {{"type": "tool", "name": …}}.',
        provider="openai",
    )


def _messages(rows: Sequence[Message], model: str, sends_reasoning: bool | None) -> list[ApiMessage]:
    """Convert rows. The rows between two answers form the results, and one user message for all the rest.

    Templates of open models require turns to alternate. The API has no images in results: they are in that message.
    """
    leading = list(takewhile(is_system, rows))
    system = sendable("\n\n".join(filter(str.strip, map(text_of, leading))))
    messages: list[ApiMessage] = [{"role": "system", "content": system}] if system else []
    first = len(messages)
    images: list[dict[str, Any]] = []
    parts: list[dict[str, Any]] = []
    for row in rows[len(leading) :]:
        if row.role == "assistant":
            if message := _assistant(row, model, sends_reasoning):
                messages += _user(images, parts)
                images, parts = [], []
                if messages and messages[-1]["role"] == "assistant" and "tool_calls" not in messages[-1]:
                    message["content"] = "\n\n".join(filter(None, (messages.pop()["content"], message["content"])))
                messages.append(message)
        elif row.role in {"tool", "function"} and row.tool_call_id is not None:
            result, found = _tool_result(row, row.tool_call_id)
            messages.append(result)
            images += found
        else:
            parts += _parts(row)
    messages += _user(images, parts)
    if len(messages) > first and messages[first]["role"] == "assistant":
        messages.insert(first, {"role": "user", "content": EARLIER})
    return messages


def _user(images: list[dict[str, Any]], parts: list[dict[str, Any]]) -> list[ApiMessage]:
    parts = [*([_text(_IMAGES), *images] if images else ()), *parts]
    texts = [part["text"] for part in parts if part["type"] == "text"]
    content = "\n\n".join(texts) if len(texts) == len(parts) else parts
    return [{"role": "user", "content": content}] if parts else []


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": sendable(text)}


def _parts(row: Message) -> Iterator[dict[str, Any]]:
    if is_system(row):
        if text := reminder(row):
            yield _text(text)
        return
    for block in blocks_of(row):
        match block:
            case TextBlock(text=text) if text.strip():
                yield _text(text)
            case ImageBlock(source=source):
                yield _image(source)
            case ToolResultBlock(output=output):
                yield _text(ToolResult(output=output).get_serialized_output() or NO_OUTPUT)


def _image(source: dict[str, Any]) -> dict[str, Any]:
    """Convert an image of the form {type: base64, media_type, data} or {type: url, url}."""
    url = source.get("url") or f"data:{source.get('media_type', 'image/png')};base64,{source.get('data', '')}"
    return {"type": "image_url", "image_url": {"url": url}}


def _tool_result(row: Message, call_id: str) -> tuple[ApiMessage, list[dict[str, Any]]]:
    """Return the message of a result, and the images in it."""
    parts = list(_parts(row))
    text = "\n\n".join(part["text"] for part in parts if part["type"] == "text")
    if (row.metadata or {}).get("is_error") and text.strip():
        text = f"Error: {text}" if not text.startswith("Error") else text
    found = [part for part in parts if part["type"] != "text"]
    content = text if text.strip() else "(see the images)" if found else NO_OUTPUT
    return {"role": "tool", "tool_call_id": _id(call_id), "content": content}, found


def _assistant(row: Message, model: str, sends_reasoning: bool | None) -> ApiMessage | None:
    texts: list[str] = []
    calls: dict[str, dict[str, Any]] = {}
    thoughts: dict[str, str] = {}
    for block in blocks_of(row):
        match block:
            case TextBlock(text=text) if text.strip():
                texts.append(sendable(text))
            case ToolCallBlock(id=call_id, name=name, input=given):
                calls.setdefault(_id(call_id), _call(call_id, name, given))
            case ThinkingBlock(thinking=thought, content=[{"field": str(field)}]) if _thought_by(block, model):
                thoughts[field] = thoughts.get(field, "") + sendable(thought)
    for call_id, name, given in calls_in_field(row):
        calls.setdefault(_id(call_id), _call(call_id, name, given))
    if not texts and not calls:
        return None
    message: ApiMessage = {"role": "assistant", "content": "\n\n".join(texts) or None}
    if calls:
        message["tool_calls"] = list(calls.values())
    if sends_reasoning or (sends_reasoning is None and calls):
        message |= thoughts
    return message


def _thought_by(block: ThinkingBlock, model: str) -> bool:
    return (block.model_extra or {}).get("model") == model


def _call(call_id: str, name: str, given: Any) -> dict[str, Any]:
    arguments = json.dumps(writable(given) if given else {}, ensure_ascii=False)
    function = {"name": api_name(name), "arguments": sendable(arguments)}
    return {"id": _id(call_id), "type": "function", "function": function}


def _id(call_id: str) -> str:
    """Return a call id that the API accepts: the given one, unless it is too long or cannot be sent."""
    is_valid = 0 < len(call_id) <= _MAX_ID and call_id.isascii() and call_id.isprintable()
    return call_id if is_valid else shortened(call_id, _ID_STEM)
