"""The rows of a conversation: dictionaries in the contracts' message format, as contexts store them.

Builds and marks rows, reads their marks, and estimates their size.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from typing import TYPE_CHECKING, Any

from orchestrator_interactive.kernel.contracts.messages import ToolCallBlock
from orchestrator_interactive.kernel.contracts.models import sendable
from orchestrator_interactive.kernel.contracts.request_validation import is_plain
from orchestrator_interactive.transcript.framing import REFUSED, plain_id, without_frames

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from orchestrator_interactive.kernel.contracts.messages import ContentBlock, ToolCall

# Metadata key of a user row that notes the rows omitted by compaction.
LEFT_OUT = "left_out"
# Metadata keys of user rows that are not prompts: injections, notices, talk among people, late results, and notes about
# omitted rows.
_NO_PROMPT = frozenset({"injections", "notices", "talk", "results", LEFT_OUT})
_ITEM = re.compile(r"\n(?=\S)")
_json_of = json.JSONEncoder().encode
# The end of the mark that replaces omitted text.
MARK_END = "left out here …]"
_DECLINED = "[No answer: the request was refused.]"
_REFUSED_TASK = {"role": "user", "content": REFUSED}

BYTES_PER_TOKEN = 4
# Overhead of a message beyond its text. The cost of an image depends on its width and height, which are unknown here,
# not on the length of its base64.
_ROW_TOKENS = 4
_IMAGE_TOKENS = 1_600
_BLOCK_BYTES = 8
_QUOTES = 4  # around a text in JSON, and its separator


def user_row(
    text: str, message_id: str | None = None, author: str | None = None, images: Sequence[Mapping[str, Any]] = ()
) -> dict[str, Any]:
    """Return the row of a person's message with this id, and its image blocks; `author` is the id of this person."""
    row: dict[str, Any] = {"role": "user", "content": with_images([(text, images)])}
    marks: dict[str, Any] = {} if message_id is None else {"message": message_id}
    marks |= {} if author is None else {"authors": [plain_id(author)]}
    return marked(row, **marks) if marks else row


def with_images(texts: Iterable[tuple[str, Sequence[Mapping[str, Any]]]]) -> str | list[dict[str, Any]]:
    """Return the content of a row: texts, each followed by its image blocks; without images, one text."""
    parts = list(texts)
    if not any(images for _, images in parts):
        return "".join(text for text, _ in parts)
    return [block for text, images in parts for block in ({"type": "text", "text": text}, *map(dict, images))]


def marked(row: dict[str, Any], **marks: Any) -> dict[str, Any]:
    """Return the row with more metadata."""
    return {**row, "metadata": {**metadata_of(row), **marks}}


def assistant_row(content: Iterable[ContentBlock], calls: Iterable[ToolCall] = ()) -> dict[str, Any]:
    """Return the row of a model's answer.

    Tool calls are in the content blocks, in the model's order, and in `tool_calls`, where third-party contexts look for
    them.
    """
    blocks, inside, in_field = [], set(), []
    for block in content:
        blocks.append(block.model_dump(exclude_none=True))
        if isinstance(block, ToolCallBlock):
            inside.add(block.id)
    for call in calls:
        if call.id not in inside:
            block = ToolCallBlock(id=call.id, name=call.name, input=call.arguments)
            blocks.append(block.model_dump(exclude_none=True))
        in_field.append(tool_call_dict(call.id, call.name, call.arguments))
    row: dict[str, Any] = {"role": "assistant", "content": blocks}
    return {**row, "tool_calls": in_field} if in_field else row


def tool_row(call: ToolCall, content: str | list[dict[str, Any]], *, failed: bool = False) -> dict[str, Any]:
    """Return the row of a tool result: a text, or content blocks."""
    row: dict[str, Any] = {"role": "tool", "tool_call_id": call.id, "name": call.name, "content": content}
    if failed:
        row["metadata"] = {"is_error": True}
    return row


def metadata_of(row: Any) -> dict[str, Any]:
    """Return the metadata of a row; empty if it is not a dictionary."""
    metadata = row.get("metadata") if isinstance(row, dict) else None
    return metadata if isinstance(metadata, dict) else {}


def is_prompt(row: Any) -> bool:
    """Return whether a row is a prompt, which begins a task. Only its role and metadata count, not its text."""
    if not isinstance(row, dict) or row.get("role") != "user":
        return False
    return not is_of_hook(row) and _NO_PROMPT.isdisjoint(metadata_of(row))


def refused_row(row: dict[str, Any]) -> dict[str, Any]:
    """Mark the row of a refused answer, with its text up to the refusal."""
    if not row["content"]:  # a row needs content
        row = marked({**row, "content": [{"type": "text", "text": _DECLINED}]}, hidden=True)
    return marked(row, refused=True)


def is_refused(row: Any) -> bool:
    return isinstance(row, dict) and "metadata" in row and metadata_of(row).get("refused") is True


def is_of_hook(row: Any) -> bool:
    """Return whether a hook injected the row."""
    return isinstance(row, dict) and "metadata" in row and metadata_of(row).get("source") == "hook"


def without_refused(rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the rows without refused answers and the tasks that led to them; the log keeps them.

    Anthropic's API refuses every request that contains a refused turn ("Handle streaming refusals" on
    platform.claude.com). The whole task is removed: the provider does not report whether it refused the prompt, an
    injection or a tool result.
    """
    kept: list[dict[str, Any]] = []
    for row in rows:
        if is_refused(row):
            kept[_begin_of_task(kept) :] = [_REFUSED_TASK]
        else:
            kept.append(row)
    return kept


def _begin_of_task(rows: Sequence[dict[str, Any]]) -> int:
    """Return the index of the last task's first row: its prompt, or pending messages of an earlier run before it.

    If compaction removed the prompt, the task begins after the note about the omitted rows.
    """
    begin = len(rows)
    while begin > 0 and not is_prompt(rows[begin - 1]) and not _is_note(rows[begin - 1]):
        begin -= 1
    if begin > 0 and is_prompt(rows[begin - 1]):
        begin -= 1
    while begin > 0 and _leads_a_prompt(rows[begin - 1]):
        begin -= 1
    return begin


def _leads_a_prompt(row: dict[str, Any]) -> bool:
    is_of_user = isinstance(row, dict) and row.get("role") == "user"
    return is_of_user and not is_prompt(row) and not _is_note(row)


def _is_note(row: dict[str, Any]) -> bool:
    return LEFT_OUT in metadata_of(row)


def delivered_ids_in(row: Any) -> list[str]:
    """Return the ids of the messages that a row delivers: of talk, the prompt, the injections, or the notices."""
    message = metadata_of(row).get("message")
    own = [message] if isinstance(message, str) else []
    return [*talk_ids_in(row), *own, *_ids_at(row, "messages", "injections", "notices")]


def authors_at(rows: Iterable[Any], call_id: str, of_prompt: frozenset[str] = frozenset()) -> frozenset[str]:
    """Return the authors (ids) of the messages that led to a tool call: those that were new to the model's last answer.

    A blank id stands for messages without a known author; `of_prompt` are the authors of prompts without one. Talk
    among people, notices and texts of hooks lead to no call. Rows without the call are those before it.
    """
    found, is_answered = frozenset[str](), True
    for row in rows:
        role = row.get("role") if isinstance(row, dict) else None
        if role == "assistant" and not is_of_hook(row):
            if call_id in call_ids(row):
                break
            is_answered = True
        elif is_prompt(row) or "injections" in metadata_of(row):
            unknown = of_prompt if is_prompt(row) and of_prompt else frozenset({""})
            authors = frozenset(_ids_at(row, "authors")) or unknown
            found, is_answered = authors if is_answered else found | authors, False
    return found


def talk_ids_in(row: Any) -> list[str]:
    """Return the ids of the messages that a row delivers as talk among people, or in front of its own messages."""
    return _ids_at(row, "talk", "with_talk")


def _ids_at(row: Any, *keys: str) -> list[str]:
    lists = [found for key in keys if isinstance(found := metadata_of(row).get(key), list)]
    return [each for found in lists for each in found if isinstance(each, str)]


def joined(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return one row of texts for those of several user rows, with all their marks."""
    metadata: dict[str, Any] = {}
    for row in rows:
        for key, mark in metadata_of(row).items():
            name = "with_talk" if key == "talk" else key
            metadata[name] = [*metadata.get(name, ()), *mark] if isinstance(mark, list) else mark
    images = [[each for each in _blocks_of(row) if each.get("type") == "image"] for row in rows]
    texts = [f"{text_of(row)}\n" for row in rows]
    texts[-1] = texts[-1].removesuffix("\n")
    return {"role": "user", "content": with_images(zip(texts, images, strict=True)), "metadata": metadata}


def _blocks_of(row: dict[str, Any]) -> list[dict[str, Any]]:
    content = row.get("content")
    return [each for each in content if isinstance(each, dict)] if isinstance(content, list) else []


def text_of(row: dict[str, Any]) -> str:
    """Return the text of a row, its text blocks joined."""
    content = row.get("content")
    if isinstance(content, list):
        blocks = (block for block in content if isinstance(block, dict) and block.get("type") == "text")
        return "".join(text for block in blocks if isinstance(text := block.get("text"), str))
    return content if isinstance(content, str) else ""


def truncate_middle(text: str, max_chars: int, *, by_items: bool = False) -> str:
    """Return the beginning and the end of a text that is too long, with a mark between that counts the omitted part.

    With `by_items`, a line that is not indented begins an item, which includes the indented lines below it. The end
    then begins with an item, unless the text has only one.
    """
    if len(text) <= max_chars:
        return text
    begin, end = max_chars - max_chars // 4, len(text) - max_chars // 4
    indent = ""
    if by_items and _ITEM.match(text, end - 1) is None:
        if sum(1 for _ in _ITEM.finditer(text, 0, end)) <= 1:
            indent = "  "
        else:
            following = _ITEM.search(text, end)
            end = following.end() if following else len(text)
    mark = f"[… {end - begin} characters are {MARK_END}"
    tail = without_frames(f"{indent}{text[end:]}") if text[end:] else ""
    return "\n".join(part for part in (text[:begin], mark, tail) if part)


def call_ids(row: dict[str, Any]) -> list[str]:
    """Return the ids of the tool calls in an assistant row, from `tool_calls` and from the content blocks."""
    beside, content = row.get("tool_calls"), row.get("content")
    if not beside and isinstance(content, str):
        return []
    ids = _ids(beside) if isinstance(beside, list | tuple) else []
    if isinstance(content, list):
        blocks = [each for each in content if isinstance(each, dict) and each.get("type") == "tool_call"]
        there = set(ids)
        ids += [each for each in _ids(blocks) if each not in there]
    return ids


def _ids(calls: Iterable[Any]) -> list[str]:
    return [call["id"] for call in calls if isinstance(call, dict) and isinstance(call.get("id"), str)]


def distinct(
    content: Sequence[ContentBlock], calls: Sequence[ToolCall], is_used: Callable[[str], bool]
) -> tuple[Sequence[ContentBlock], Sequence[ToolCall]]:
    """Return an answer with a unique id for each of its calls.

    Some models repeat ids in each answer or leave them blank; providers refuse a conversation with duplicate ids.
    `is_used` returns whether the conversation so far has an id.
    """
    if _are_own(content, calls, is_used):
        return content, calls
    inside = [block.id for block in content if isinstance(block, ToolCallBlock)]
    beside = [call.id for call in calls]
    own_inside, own_beside = own_ids(inside, beside, is_used)
    own_calls = [call.model_copy(update={"id": own}) for call, own in zip(calls, own_beside, strict=True)]
    return with_ids(content, own_inside), own_calls


def _are_own(content: Iterable[ContentBlock], calls: Iterable[ToolCall], is_used: Callable[[str], bool]) -> bool:
    """Return whether the ids need no change: a fast path for the usual case."""
    inside: dict[str, None] = {}
    for block in content:
        if not isinstance(block, ToolCallBlock):
            continue
        if block.id in inside or not is_plain(block.id) or is_used(block.id):
            return False
        inside[block.id] = None
    left = iter(inside)
    for call in calls:
        if call.id != next(left, None):
            return False
    return next(left, None) is None


def with_ids(content: Iterable[ContentBlock], ids: Iterable[str]) -> list[ContentBlock]:
    """Return the blocks with these ids for their calls, in order."""
    given = iter(ids)
    return [
        block.model_copy(update={"id": next(given)}) if isinstance(block, ToolCallBlock) else block for block in content
    ]


def own_ids(
    inside: Sequence[str], beside: Sequence[str], is_used: Callable[[str], bool]
) -> tuple[list[str], list[str]]:
    """Return unique ids for one answer's calls, in its content blocks (`inside`) and in `tool_calls`.

    The n-th call with an id in the blocks is the n-th call with that id in `tool_calls`.
    """
    taken = {*inside, *beside}
    own: dict[tuple[str, int], str] = {}
    for call in (*_numbered(inside), *_numbered(beside)):
        call_id, nth = call
        if call not in own:
            keeps_it = nth == 0 and is_plain(call_id) and not is_used(call_id)
            own[call] = call_id if keeps_it else _free(call_id, lambda name: name in taken or is_used(name))
            taken.add(own[call])
    return [own[call] for call in _numbered(inside)], [own[call] for call in _numbered(beside)]


def _numbered(ids: Iterable[str]) -> Iterator[tuple[str, int]]:
    """Yield each id with the number of its earlier occurrences."""
    seen: Counter[str] = Counter()
    for call_id in ids:
        yield call_id, seen[call_id]
        seen[call_id] += 1


def _free(call_id: str, is_taken: Callable[[str], bool]) -> str:
    """Return an unused id derived from this one, found by binary search over its numeric suffix."""
    base = sendable(call_id).strip() or "call"
    if not is_taken(base):
        return base
    taken, free = 1, 2
    while is_taken(f"{base}-{free}"):
        taken, free = free, 2 * free
    while free - taken > 1:
        middle = (taken + free) // 2
        if is_taken(f"{base}-{middle}"):
            taken = middle
        else:
            free = middle
    return f"{base}-{free}"


def tool_call_dict(call_id: str, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """Return a call in the format of `tool_calls`."""
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": _json_of(arguments)}}


def estimate(row: dict[str, Any]) -> int:
    """Estimate the tokens of a row as a quarter of the bytes that a provider receives.

    Bytes rather than characters, because scripts beyond ASCII take more tokens. Metadata do not count. A call in both
    the blocks and `tool_calls` counts once.
    """
    content = row.get("content")
    blocks = content if isinstance(content, list) else ()
    images, size, inside = 0, 0 if blocks else _bytes_of(content), set()
    for block in blocks:
        kind = block.get("type") if isinstance(block, dict) else None
        if kind == "image":
            images += 1
            continue
        text = block.get("text") if kind is not None else None
        size += _BLOCK_BYTES + _bytes_of(text) if isinstance(text, str) else _json_bytes_of(block)
        if kind == "tool_call":
            inside.add(block.get("id"))
    if calls := row.get("tool_calls"):
        calls = calls if isinstance(calls, list | tuple) else [calls]
        size += _json_bytes_of([call for call in calls if not isinstance(call, dict) or call.get("id") not in inside])
    return _ROW_TOKENS + size // BYTES_PER_TOKEN + images * _IMAGE_TOKENS


def _bytes_of(content: Any) -> int:
    if isinstance(content, str):
        return len(content) if content.isascii() else len(content.encode(errors="replace"))
    return 0 if content is None else _json_bytes_of(content)


def _json_bytes_of(value: Any) -> int:
    """Estimate the bytes of a value as JSON. Iterative for speed: it runs for every row."""
    parts, size = [value], 0
    for part in parts:
        if isinstance(part, str):
            size += _bytes_of(part) + _QUOTES
        elif isinstance(part, dict):
            parts += part
            parts += part.values()
        elif isinstance(part, list | tuple):
            parts += part
        elif isinstance(part, int):
            size += part.bit_length() // 3 + 2
        elif part is None or isinstance(part, float):
            size += 6
        else:
            size += len(str(part))
    return size
