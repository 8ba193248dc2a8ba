"""The names of OpenTelemetry's semantic conventions for generative AI, version 1.41.0.

Source: https://github.com/open-telemetry/semantic-conventions/blob/v1.41.0/docs/gen-ai/. The conventions are in
development, so their names are here only.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

SCHEMA_URL = "https://opentelemetry.io/schemas/1.41.0"

OPERATION = "gen_ai.operation.name"
INVOKE_AGENT, CHAT, EXECUTE_TOOL = "invoke_agent", "chat", "execute_tool"
AGENT = "gen_ai.agent.name"
CONVERSATION = "gen_ai.conversation.id"
PROVIDER = "gen_ai.provider.name"
REQUEST_MODEL = "gen_ai.request.model"
RESPONSE_MODEL = "gen_ai.response.model"
FINISH_REASONS = "gen_ai.response.finish_reasons"
INPUT_TOKENS = "gen_ai.usage.input_tokens"
OUTPUT_TOKENS = "gen_ai.usage.output_tokens"
CACHE_READ_TOKENS = "gen_ai.usage.cache_read.input_tokens"
CACHE_WRITE_TOKENS = "gen_ai.usage.cache_creation.input_tokens"
TOOL = "gen_ai.tool.name"
TOOL_CALL = "gen_ai.tool.call.id"
TOOL_TYPE = "gen_ai.tool.type"
ERROR_TYPE = "error.type"
# With `observe.content` only.
INPUT_MESSAGES = "gen_ai.input.messages"
OUTPUT_MESSAGES = "gen_ai.output.messages"
TOOL_ARGUMENTS = "gen_ai.tool.call.arguments"
TOOL_RESULT = "gen_ai.tool.call.result"


def messages(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return rows of a conversation as the JSON of `INPUT_MESSAGES` and `OUTPUT_MESSAGES`."""
    return as_json([{"role": row.get("role"), "parts": _parts(row)} for row in rows])


def as_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)


def _parts(row: Mapping[str, Any]) -> list[dict[str, Any]]:
    content = row.get("content")
    if row.get("role") == "tool":
        return [{"type": "tool_call_response", "id": row.get("tool_call_id"), "response": content}]
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content or []
    return [_part(block) for block in blocks if isinstance(block, dict)]


def _part(block: Mapping[str, Any]) -> dict[str, Any]:
    match block.get("type"):
        case "text":
            return {"type": "text", "content": block.get("text")}
        case "tool_call":
            return {"type": "tool_call", **{key: block.get(key) for key in ("id", "name")}, "arguments": block["input"]}
        case "thinking":
            return {"type": "reasoning", "content": block.get("thinking")}
        case kind:
            return {"type": str(kind)}
