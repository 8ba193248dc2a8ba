"""Convert the kernel's request to the body of a Chat Completions call.

The conversion is deterministic, and a longer history only appends, so that a prompt cache keeps the whole prefix.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
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
from orchestrator_interactive.modules.provider_anthropic.convert import api_name

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from orchestrator_interactive.kernel.contracts.messages import ChatRequest, ContentBlock, ToolSpec
    from orchestrator_interactive.modules.provider_openai.config import OpenAIConfig

    ApiMessage = dict[str, Any]

_TOOL_CHOICES = {"auto": "auto", "none": "none", "required": "required", "any": "required"}
_SYSTEM = ("system", "developer")
_EARLIER = "(The beginning of this conversation is not shown.)"
_NO_OUTPUT = "(no output)"
_IMAGES = "(Images in the results of the tool calls:)"


@dataclass(frozen=True, slots=True)
class ApiRequest:
    """The request body. `tool_names` maps the API's tool names to the declared ones."""

    body: dict[str, Any]
    tool_names: dict[str, str]

    @property
    def model(self) -> str:
        model: str = self.body["model"]
        return model


def api_request(request: ChatRequest, config: OpenAIConfig) -> ApiRequest:
    """Convert a request.

    Raises:
        InvalidRequestError: an unknown `tool_choice`, a call without its result, or a result without its call.
    """
    model = request.model or config.model
    messages = _messages(request.messages, model, sends_reasoning=config.sends_reasoning)
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
        body["tools"] = [_tool(each) for each in request.tools]
        if request.tool_choice is not None:
            body["tool_choice"] = _tool_choice(request.tool_choice)
    return ApiRequest({**body, **config.extra_request_params}, {api_name(t.name): t.name for t in request.tools or ()})


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


def _tool(tool: ToolSpec) -> dict[str, Any]:
    described = {"description": tool.description} if tool.description else {}
    parameters = {"type": "object", **tool.parameters}
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


def _messages(rows: Sequence[Message], model: str, *, sends_reasoning: bool) -> list[ApiMessage]:
    """Convert rows. Consecutive user rows form one message: templates of open models require turns to alternate."""
    system = "\n\n".join(filter(str.strip, map(_text_of, takewhile(_is_system, rows))))
    messages: list[ApiMessage] = [{"role": "system", "content": sendable(system)}] if system else []
    images: list[dict[str, Any]] = []
    for row in rows[len(list(takewhile(_is_system, rows))) :]:
        if row.role in {"tool", "function"} and row.tool_call_id is not None:
            result, found = _tool_result(row, row.tool_call_id)
            messages.append(result)
            images += found
            continue
        if images:  # after all results of a batch: the API has no images in results
            _add_user(messages, [_text(_IMAGES), *images])
            images = []
        if row.role == "assistant":
            if message := _assistant(row, model, sends_reasoning=sends_reasoning):
                messages.append(message)
        else:
            _add_user(messages, list(_parts(row)))
    if images:
        _add_user(messages, [_text(_IMAGES), *images])
    first = next((place for place, message in enumerate(messages) if message["role"] != "system"), len(messages))
    if len(messages) > first and messages[first]["role"] == "assistant":
        messages.insert(first, {"role": "user", "content": _EARLIER})
    return messages


def _add_user(messages: list[ApiMessage], parts: list[dict[str, Any]]) -> None:
    if not parts:
        return
    if messages and messages[-1]["role"] == "user":
        known = messages.pop()["content"]
        parts = [*([_text(known)] if isinstance(known, str) else known), *parts]
    texts = [part["text"] for part in parts if part["type"] == "text"]
    messages.append({"role": "user", "content": "\n\n".join(texts) if len(texts) == len(parts) else parts})


def _is_system(row: Message) -> bool:
    return row.role in _SYSTEM


def _blocks(row: Message) -> list[ContentBlock]:
    return [TextBlock(text=row.content)] if isinstance(row.content, str) else row.content


def _text_of(row: Message) -> str:
    return "\n\n".join(block.text for block in _blocks(row) if isinstance(block, TextBlock))


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": sendable(text)}


def _parts(row: Message) -> Iterator[dict[str, Any]]:
    if row.role in _SYSTEM:
        if (text := _text_of(row)).strip():
            yield _text(f"<system-reminder>\n{text}\n</system-reminder>")
        return
    for block in _blocks(row):
        match block:
            case TextBlock(text=text) if text.strip():
                yield _text(text)
            case ImageBlock(source=source):
                yield _image(source)
            case ToolResultBlock(output=output):
                yield _text(ToolResult(output=output).get_serialized_output() or _NO_OUTPUT)


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
    content = text if text.strip() else "(see the images)" if found else _NO_OUTPUT
    return {"role": "tool", "tool_call_id": api_name(call_id), "content": content}, found


def _assistant(row: Message, model: str, *, sends_reasoning: bool) -> ApiMessage | None:
    text, calls, thoughts = "", dict[str, dict[str, Any]](), ""
    for block in _blocks(row):
        match block:
            case TextBlock(text=piece):
                text = f"{text}\n\n{piece}" if text.strip() and piece.strip() else text + piece
            case ToolCallBlock(id=call_id, name=name, input=given):
                calls.setdefault(api_name(call_id), _call(call_id, name, given))
            case ThinkingBlock(thinking=thought) if (block.model_extra or {}).get("model") == model:
                thoughts += thought
    for call in (row.model_extra or {}).get("tool_calls") or ():
        function = call.get("function") or call
        if name := function.get("name") or function.get("tool"):
            call_id = str(call.get("id") or "")
            calls.setdefault(api_name(call_id), _call(call_id, str(name), function.get("arguments")))
    if not text.strip() and not calls:
        return None
    message: ApiMessage = {"role": "assistant", "content": sendable(text) if text.strip() else None}
    if calls:
        message["tool_calls"] = list(calls.values())
    if sends_reasoning and thoughts:
        message["reasoning_content"] = sendable(thoughts)
    return message


def _call(call_id: str, name: str, given: Any) -> dict[str, Any]:
    arguments = json.dumps(writable(given) if given else {}, ensure_ascii=False)
    function = {"name": api_name(name), "arguments": sendable(arguments)}
    return {"id": api_name(call_id), "type": "function", "function": function}
