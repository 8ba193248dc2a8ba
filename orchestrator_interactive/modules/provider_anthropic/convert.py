"""Convert the kernel's request to the body of a Messages API call.

The conversion is deterministic, and a longer history only appends, so that the prompt cache keeps the whole prefix.
Only the cache markers move.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from orchestrator_interactive.kernel.contracts.errors import InvalidRequestError
from orchestrator_interactive.modules.provider_anthropic.messages import api_messages, api_name, system_blocks
from orchestrator_interactive.modules.provider_anthropic.model_rules import effort_for, thinking_for

if TYPE_CHECKING:
    from orchestrator_interactive.kernel.contracts.messages import ChatRequest, ToolSpec
    from orchestrator_interactive.modules.provider_anthropic.config import AnthropicConfig

_CACHE = {"type": "ephemeral"}
_TOOL_CHOICES = {"auto": "auto", "none": "none", "required": "any", "any": "any"}


@dataclass(frozen=True, slots=True)
class ApiRequest:
    """The request body. `tool_names` maps the API's tool names to the declared ones."""

    body: dict[str, Any]
    tool_names: dict[str, str]

    @property
    def model(self) -> str:
        model: str = self.body["model"]
        return model


def api_request(request: ChatRequest, config: AnthropicConfig) -> ApiRequest:
    """Convert a request.

    `temperature` and `top_p` are not sent: API version 2026-10-21, which this SDK uses, rejects them.

    Raises:
        InvalidRequestError: an unknown `tool_choice`.
    """
    model = request.model or config.model
    system, messages = system_blocks(request.messages), api_messages(request.messages, model)
    tools = [_api_tool(tool) for tool in request.tools or ()]
    if config.prompt_cache:
        _mark_for_cache(system, tools, messages)
    body: dict[str, Any] = {"model": model, "messages": messages, **_limits(request, config, model)}
    if system:
        body["system"] = system
    if tools:
        body["tools"] = tools
        if request.tool_choice is not None:
            body["tool_choice"] = _api_tool_choice(request.tool_choice)
    return ApiRequest(body, {api_name(tool.name): tool.name for tool in request.tools or ()})


def _limits(request: ChatRequest, config: AnthropicConfig, model: str) -> dict[str, Any]:
    limits: dict[str, Any] = {"max_tokens": request.max_output_tokens or config.max_output_tokens}
    effort = effort_for(model, request.reasoning_effort)
    if thinking := thinking_for(model, config.thinking_budget_tokens, effort):
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
