"""From what states hold to what OpenAI's message format knows."""

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

# Control characters but for tab and line ends, and lone surrogates: no provider takes them.
_UNSENDABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff]")
_RESULT_BLOCKS = {"text", "image", "tool_result"}


class RenderedCall(NamedTuple):
    """A call as a message declares it; the arguments are JSON."""

    id: str
    name: str
    arguments: str

    def wire(self) -> dict[str, Any]:
        return {"id": self.id, "type": "function", "function": {"name": self.name, "arguments": self.arguments}}


def sendable(text: str) -> str:
    """The text without characters that cannot be sent."""
    return text if text.isprintable() else _UNSENDABLE.sub("", text)


def as_json(value: Any) -> str:
    return sendable(json.dumps(value, ensure_ascii=False, default=str))


def call(call_id: Any, name: Any, arguments: Any) -> RenderedCall:
    """A call, whatever form its parts have."""
    given = arguments if isinstance(arguments, str) else as_json({} if arguments is None else arguments)
    return RenderedCall(sendable(str(call_id)), sendable(str(name or "")).strip() or _UNNAMED, sendable(given))


def declared_calls(content: Any, beside: Any) -> list[RenderedCall]:
    """The calls in the content of an assistant's message and beside it, each once; what has no id is none."""
    found: dict[str, RenderedCall] = {}
    for each in (*_blocks(content), *_dicts(beside)):
        is_block = "type" in each and each["type"] != "function"
        call_id = each.get("id")
        if not isinstance(call_id, str) or not call_id.strip() or (is_block and each["type"] != "tool_call"):
            continue
        part = each["function"] if isinstance(each.get("function"), dict) else each
        given = part.get("arguments", part.get("input"))
        found.setdefault(call_id, call(call_id, part.get("name"), given))
    return list(found.values())


def said_by_agent(content: Any) -> str | None:
    """The text of an assistant's content; thinking is left out. `None`: there is none."""
    text = content if isinstance(content, str) else "".join(_texts(content))
    return sendable(text) if text.strip() and sendable(text).strip() else None


def said_by_person(content: Any) -> str | list[dict[str, Any]] | None:
    """The content of a user's message: text, or parts where there are images among it; `None`: there is nothing."""
    parts = [{"type": "text", "text": content}] if isinstance(content, str) else list(_parts(content))
    parts = [part for part in parts if part["type"] != "text" or sendable(part["text"]).strip()]
    if all(part["type"] == "text" for part in parts):
        return "\n".join(sendable(part["text"]) for part in parts) or None
    return [{**part, "text": sendable(part["text"])} if part["type"] == "text" else part for part in parts]


def result_text(result: Any) -> str:
    """A result as text: as it is, from its blocks, or as JSON. Of images it says only that they were there."""
    if isinstance(result, str):
        text = result
    elif _is_blocks(result):
        text = "\n".join(_result_pieces(result))
    else:
        text = as_json(result)
    text = sendable(text)
    return text if text.strip() else NO_OUTPUT


def image_url(source: Any) -> str | None:
    """The URL of an image, which may have all of its data in it."""
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
