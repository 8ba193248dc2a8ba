"""Split message contents into parts that are rendered differently."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from orchestrator_interactive.interactions.rows import image_url

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclass(frozen=True, slots=True)
class ExportPart:
    """A part of a message. `text` of an image is its URL; a note describes a part without text."""

    kind: Literal["text", "code", "thinking", "image", "note"]
    text: str


def parts_of(content: Any) -> Iterator[ExportPart]:
    if isinstance(content, str) and content.strip("\n"):
        yield ExportPart("text", content.strip("\n"))
    for block in content if isinstance(content, list) else ():
        match block:
            case {"type": "text", "text": str(text)}:
                if text.strip("\n"):
                    yield ExportPart("text", text.strip("\n"))
            case {"type": "thinking", "thinking": str(text)}:
                yield ExportPart("thinking", text)
            case {"type": "redacted_thinking"}:
                yield ExportPart("note", "Thinking that the provider does not disclose.")
            case {"type": "image", "source": source} if url := image_url(source):
                yield ExportPart("image", url)
            case {"type": "tool_call"}:
                continue
            case _:
                yield ExportPart("code", as_json(block))


def result_parts(result: Any) -> Iterator[ExportPart]:
    if isinstance(result, str):
        yield ExportPart("code", result)
    elif isinstance(result, list) and result and all(isinstance(each, dict) and "type" in each for each in result):
        for part in parts_of(result):
            yield ExportPart("code", part.text) if part.kind == "text" else part
    else:
        yield ExportPart("code", as_json(result))


def as_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, indent=2, default=str)
