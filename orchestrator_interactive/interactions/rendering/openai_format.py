"""Convert contents of states to OpenAI's message format."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

Message = dict[str, Any]

NO_OUTPUT = "(no output)"
NO_RESULT = "No result was recorded: the outcome of this call is unknown."
IMAGE = "[image]"
_UNNAMED = "unnamed"

# Control characters except tab and line ends, and lone surrogates: providers reject them.
_UNSENDABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff]")
_RESULT_BLOCKS = {"text", "image", "tool_result"}


class RenderedCall(NamedTuple):
    """A tool call in a message; the arguments are JSON."""

    id: str
    name: str
    arguments: str

    def to_dict(self) -> dict[str, Any]:
        return {"id": self.id, "type": "function", "function": {"name": self.name, "arguments": self.arguments}}


def sendable(text: str) -> str:
    """Remove characters that providers reject."""
    return text if text.isprintable() else _UNSENDABLE.sub("", text)


def as_json(value: Any) -> str:
    return sendable(json.dumps(value, ensure_ascii=False, default=str))


def call(call_id: Any, name: Any, arguments: Any) -> RenderedCall:
    """Build a call from parts of any type."""
    given = arguments if isinstance(arguments, str) else as_json({} if arguments is None else arguments)
    return RenderedCall(sendable(str(call_id)), sendable(str(name or "")).strip() or _UNNAMED, sendable(given))


def declared_calls(content: Any, tool_calls: Any) -> list[RenderedCall]:
    """Return the calls in an assistant message's content and `tool_calls`, without duplicates and calls without id."""
    found: dict[str, RenderedCall] = {}
    for each in (*_blocks(content), *_dicts(tool_calls)):
        is_block = "type" in each and each["type"] != "function"
        call_id = each.get("id")
        if not isinstance(call_id, str) or not call_id.strip() or (is_block and each["type"] != "tool_call"):
            continue
        part = each["function"] if isinstance(each.get("function"), dict) else each
        given = part.get("arguments", part.get("input"))
        found.setdefault(call_id, call(call_id, part.get("name"), given))
    return list(found.values())


def agent_text(content: Any) -> str | None:
    """Return the text of an assistant message without thinking; `None` if there is none."""
    text = content if isinstance(content, str) else "".join(_texts(content))
    return sendable(text) if text.strip() and sendable(text).strip() else None


def user_content(content: Any) -> str | list[dict[str, Any]] | None:
    """Return the content of a user message: text, or parts if it has images; `None` if it is empty."""
    parts = [{"type": "text", "text": content}] if isinstance(content, str) else list(_parts(content))
    parts = [part for part in parts if part["type"] != "text" or sendable(part["text"]).strip()]
    if all(part["type"] == "text" for part in parts):
        return "\n".join(sendable(part["text"]) for part in parts) or None
    return [{**part, "text": sendable(part["text"])} if part["type"] == "text" else part for part in parts]


def result_text(result: Any) -> str:
    """Return a result as text: unchanged, from its blocks, or as JSON. A placeholder replaces each image."""
    if isinstance(result, str):
        text = result
    elif _is_blocks(result):
        text = "\n".join(_result_pieces(result))
    else:
        text = as_json(result)
    text = sendable(text)
    return text if text.strip() else NO_OUTPUT


def image_url(source: Any) -> str | None:
    """Return the URL of an image; it may be a data URL."""
    match source:
        case {"type": "base64", "media_type": str(kind), "data": str(data)}:
            return f"data:{kind};base64,{data}"
        case {"url": str(url)}:
            return url
    return None


def _parts(content: Any) -> Iterator[dict[str, Any]]:
    for block in _blocks(content):
        match block:
            case {"type": "text", "text": str(text)}:
                yield {"type": "text", "text": text}
            case {"type": "image", "source": source} if url := image_url(source):
                yield {"type": "image_url", "image_url": {"url": url}}
            case {"type": "image_url"}:
                yield block


def _result_pieces(blocks: list[dict[str, Any]]) -> Iterator[str]:
    for block in blocks:
        match block:
            case {"type": "text", "text": str(text)}:
                yield text
            case {"type": "tool_result"}:
                yield result_text(block.get("output"))
            case _:
                yield IMAGE


def _is_blocks(result: Any) -> bool:
    return (
        isinstance(result, list)
        and bool(result)
        and all(isinstance(block, dict) and block.get("type") in _RESULT_BLOCKS for block in result)
    )


def _texts(content: Any) -> Iterator[str]:
    return (block["text"] for block in _blocks(content) if block.get("type") == "text" and _has_text(block))


def _has_text(block: dict[str, Any]) -> bool:
    return isinstance(block.get("text"), str)


def _blocks(content: Any) -> list[dict[str, Any]]:
    return _dicts(content)


def _dicts(values: Any) -> list[dict[str, Any]]:
    return [each for each in values if isinstance(each, dict)] if isinstance(values, list | tuple) else []
