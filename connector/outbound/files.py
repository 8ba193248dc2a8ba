"""A very long answer as a file in its thread."""

from __future__ import annotations

import json
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from markdown_it import MarkdownIt

from connector.lines import one_line
from connector.outbound.inline import words
from connector.outbound.links import escape
from connector.outbound.markdown import markdown_to_slack
from connector.outbound.pieces import pieces
from connector.outbound.scheduler import Turn
from connector.outbound.wire import Sending

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from connector.messages import Place
    from connector.outbound.wire import Wire

    Confirm = Callable[[], Awaitable[None]]

_GET_URL, _COMPLETE, _DELETE = "files.getUploadURLExternal", "files.completeUploadExternal", "files.delete"
_BEGINNING_CHARS = 1200
_HEADINGS = 20
_HEADING_CHARS = 100
_KEY_CHARS = 12
_parser = MarkdownIt("commonmark", {"html": False})


def summary_of(markdown: str) -> tuple[str, ...]:
    """What stands in the thread in a long answer's place: its beginning, the names of its parts, where the rest is."""
    end = _end_of_beginning(markdown)
    beginning = "\n".join(markdown.splitlines()[:end])
    first, *more = pieces(markdown_to_slack(beginning), _BEGINNING_CHARS) or [""]
    headings = [f"• {escape(one_line(each, _HEADING_CHARS))}" for each in _headings(markdown, end)]
    if len(headings) > _HEADINGS:
        headings = [*headings[:_HEADINGS], f"… and {len(headings) - _HEADINGS} more"]
    length = f"{len(markdown.split()):,} words"
    where = f"📎 The whole answer ({length}) is in the file in this thread: it is too long for messages."
    parts = (f"{first} …" if more else first, "\n".join(headings), where)
    return tuple(pieces("\n\n".join(part for part in parts if part)))


def file_name(key: str) -> str:
    """The name that tells the file of this post from every other file."""
    return f"answer-{sha256(key.encode()).hexdigest()[:_KEY_CHARS]}.md"


async def share(  # noqa: PLR0913 - what sharing consists of
    wire: Wire, place: Place, key: str, content: str, *, in_doubt: bool, confirm: Confirm
) -> None:
    """Put a Markdown file into a conversation, exactly once.

    One that is `in_doubt` may be there already: it is looked for, by its name. `confirm` as in `Wire.post`.

    Raises:
        SlackCallFailed: Slack did not take it.
    """
    name = file_name(key)

    async def look() -> dict[str, Any] | None:
        return next(iter(await _shared(wire, place, name)), None)

    if in_doubt and await look() is not None:
        return
    turn = Turn(run=place.conversation_id)
    data = content.encode()
    begun = await wire.call(_GET_URL, {"filename": name, "length": len(data)}, turn)
    await wire.upload(begun["upload_url"], data)
    arguments = {"files": json.dumps([{"id": begun["file_id"], "title": _title(content)}])}
    arguments |= {"channel_id": place.channel}
    if place.thread_ts is not None:
        arguments["thread_ts"] = place.thread_ts
    await wire.call(_COMPLETE, arguments, turn, once=Sending(look, confirm=confirm))
    try:
        await confirm()
    except Exception:
        await _take_back(wire, place, name, begun["file_id"])
        raise


async def _shared(wire: Wire, place: Place, name: str) -> list[dict[str, Any]]:
    """The files with this name that are in a conversation; of one that was deleted a tombstone stays."""
    return [
        file
        async for message in wire.messages(place)
        for file in message.get("files") or ()
        if file.get("name") == name and file.get("mode") != "tombstone"
    ]


async def _take_back(wire: Wire, place: Place, name: str, file_id: str) -> None:
    """Delete a file if there is another one with its name."""
    if any(file["id"] != file_id for file in await _shared(wire, place, name)):
        await wire.call(_DELETE, {"file": file_id}, Turn(), done=("file_not_found", "file_deleted"))


def _end_of_beginning(markdown: str) -> int:
    """The line after the first paragraphs, up to the first heading under them."""
    lines = markdown.splitlines()
    end = 0
    for token in _parser.parse(markdown):
        if token.level or token.map is None:
            continue
        is_next_part = token.type == "heading_open" and end > 0
        if is_next_part or sum(map(len, lines[:end])) > _BEGINNING_CHARS:
            break
        end = token.map[1]
    return end


def _headings(markdown: str, after: int = 0) -> list[str]:
    """What the parts from this line on are called, and their parts, but not the parts of those."""
    tokens = _parser.parse(markdown)
    found = [
        (token.tag, words(tokens[place + 1].children or ()))
        for place, token in enumerate(tokens)
        if token.type == "heading_open" and token.map is not None and token.map[0] >= after
    ]
    ranks = sorted({tag for tag, _ in found})
    return [text for tag, text in found if tag in ranks[:2] and text.strip()]


def _title(markdown: str) -> str:
    """What the file is called for people."""
    return one_line(next(iter(_headings(markdown)), "The whole answer"), _HEADING_CHARS)
