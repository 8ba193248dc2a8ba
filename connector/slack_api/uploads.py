"""Share files in a thread: those of an agent, and very long answers."""

from __future__ import annotations

import asyncio
import json
import re
from dataclasses import replace
from hashlib import sha256
from itertools import accumulate
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from markdown_it import MarkdownIt
from markdown_it.tree import SyntaxTreeNode

from connector.formatting.content import one_line
from connector.formatting.inline import LONGEST, escape, whole, words
from connector.formatting.markdown import markdown_to_slack
from connector.formatting.splitting import pieces
from connector.slack_api.client import PendingCalls
from connector.slack_api.errors import NO_THREAD, Backoff, SlackCallFailed
from connector.slack_api.rate_limiter import CallSlot

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from collections.abc import Set as AbstractSet

    from markdown_it.token import Token

    from connector.events import ThreadAddress
    from connector.protocols import SharedFile
    from connector.slack_api.client import Confirm, SlackClient

    IsOurs = Callable[[dict[str, Any]], bool]

_GET_URL, _COMPLETE, _DELETE = "files.getUploadURLExternal", "files.completeUploadExternal", "files.delete"
# Together 15.5 s: how long a message with files is looked for whose upload is complete.
_LOOKS, _BETWEEN_LOOKS = 6, Backoff(0.5, 4.0)
# Longer than any link, so that none is cut.
_PREVIEW_CHARS = LONGEST + 100
# Bounds on the part of an answer that is parsed for its beginning and its headings.
_CONVERTED_CHARS = 2 * _PREVIEW_CHARS
_OUTLINED_CHARS = 100_000
_OUTLINED_LINES = 2000
_TITLED_CHARS = 10_000
_HEADINGS = 20
_HEADING_CHARS = 100
_PARSED_CHARS = 1000
_KEY_CHARS = 12
ANSWER = "answer.md"
_NAME = re.compile(rf"(?:answer|code|table)-([0-9a-f]{{{_KEY_CHARS}}})\.[a-z0-9]+")
# Slack's names of the languages of snippets, by the ending of a file.
_SNIPPETS = {
    **{each: each for each in ("c", "cpp", "css", "csv", "diff", "go", "html", "java", "json", "lua", "php", "scala")},
    **{each: each for each in ("sql", "swift", "xml", "yaml")},
    "h": "c",
    "js": "javascript",
    "kt": "kotlin",
    "md": "markdown",
    "patch": "diff",
    "pl": "perl",
    "ps1": "powershell",
    "py": "python",
    "rb": "ruby",
    "rs": "rust",
    "sh": "shell",
    "ts": "typescript",
    "txt": "text",
    "yml": "yaml",
}
_parser = MarkdownIt("commonmark", {"html": False})
# Parses only the outer blocks of long texts: inline content takes most of the time.
_outliner = MarkdownIt("commonmark", {"html": False, "maxNesting": 4})
_outliner.core.ruler.disable("inline")


def summary_of(markdown: str, canvas: str = "") -> tuple[str, ...]:
    """Return the messages that replace a long answer in the thread: its beginning, its headings, a note on the file.

    `canvas`: the address of the canvas that has it; blank: a file has it.
    """
    tokens = _outliner.parse("\n".join(markdown[:_OUTLINED_CHARS].split("\n", _OUTLINED_LINES)[:_OUTLINED_LINES]))
    end = _end_of_preview(markdown, tokens)
    beginning = "\n".join(markdown.splitlines()[:end])
    first, *more = pieces(markdown_to_slack(beginning[:_CONVERTED_CHARS]), _PREVIEW_CHARS) or [""]
    is_cut = bool(more) or len(beginning) > _CONVERTED_CHARS
    headings = _headings(tokens, end)
    outline = [f"• {escape(_plain(each))}" for each in headings[:_HEADINGS]]
    if len(headings) > _HEADINGS:
        outline.append(f"… and {len(headings) - _HEADINGS} more")
    length = f"{len(markdown.split()):,} words"
    where = f"📄 The whole answer ({length}) is in <{escape(canvas)}|this canvas>."
    if not canvas:
        where = f"📎 The whole answer ({length}) is in the file in this thread, because it is too long for messages."
    parts = (f"{first} …" if is_cut else first, "\n".join(outline), where)
    return tuple(pieces("\n\n".join(part for part in parts if part)))


def file_name(key: str, kind: str = ANSWER) -> str:
    """Return the unique name of the file for the post with this key; `kind` as in `LongPart`."""
    stem, _, ending = kind.partition(".")
    return f"{stem}-{digest_of(key)}.{ending}"


def digest_of(key: str) -> str:
    """Return what identifies a post in the names of its files."""
    return sha256(key.encode()).hexdigest()[:_KEY_CHARS]


async def share(  # noqa: PLR0913 - the parts of an upload
    client: SlackClient,
    place: ThreadAddress,
    key: str,
    content: str,
    kind: str = ANSWER,
    *,
    in_doubt: bool,
    since: str,
    confirm: Confirm,
) -> None:
    """Share a text as a file in a conversation, exactly once; `kind` as in `file_name`.

    A file `in_doubt` may already be shared, so it is looked up by its name. `since` and `confirm` as in
    `SlackClient.post`.

    Raises:
        SlackCallFailed: Slack refused it, or the thread's root was deleted.
    """
    content = whole(content)
    name = file_name(key, kind)

    def is_answer(file: dict[str, Any]) -> bool:
        return file.get("name") == name

    if in_doubt and await _shared(client, place, is_answer, since):
        return
    await _require_thread(client, place, is_answer)
    data = content.encode()
    address, file_id = await begin(client, name, len(data), is_snippet=kind != ANSWER)
    await client.upload(address, data)
    arguments = {"files": json.dumps([{"id": file_id, "title": title_of(content) if kind == ANSWER else kind}])}
    await _complete(client, place, arguments, is_answer, in_doubt=False, since=since, confirm=confirm)
    await _require_thread(client, place, is_answer)


async def begin(
    client: SlackClient, name: str, size: int, alt_text: str = "", *, is_snippet: bool = True
) -> tuple[str, str]:
    """Return the address for the upload of a file, and its id. The file is invisible until it is shared.

    `size` in bytes. Text and code become snippets with their language, unless `is_snippet` is False.

    Raises:
        SlackCallFailed: Slack refused.
    """
    arguments: dict[str, Any] = {"filename": name, "length": size}
    language = _SNIPPETS.get(name.rpartition(".")[2].lower())
    if is_snippet and language is not None:
        arguments["snippet_type"] = language
    if alt_text:
        arguments["alt_txt"] = alt_text
    begun = await client.call(_GET_URL, arguments, CallSlot())
    return str(begun["upload_url"]), str(begun["file_id"])


async def complete(  # noqa: PLR0913 - the parts of an upload
    client: SlackClient,
    place: ThreadAddress,
    files: Sequence[SharedFile],
    comment: str,
    *,
    in_doubt: bool,
    since: str,
    confirm: Confirm,
) -> None:
    """Share uploaded files in a conversation in one message, exactly once: they are looked up by their ids.

    `since` and `confirm` as in `SlackClient.post`.

    Raises:
        SlackCallFailed: Slack refused it, or the thread's root was deleted.
    """
    ids = {each.id for each in files}

    def is_shared(file: dict[str, Any]) -> bool:
        return file.get("id") in ids

    if in_doubt and await _shared(client, place, is_shared, since):
        return
    await _require_thread(client, place, is_shared)
    arguments = {"files": json.dumps([{"id": each.id, "title": each.title} for each in files])}
    arguments |= {"initial_comment": comment} if comment else {}
    await _complete(client, place, arguments, is_shared, in_doubt=in_doubt, since=since, confirm=confirm)
    await _require_thread(client, place, is_shared)


async def _complete(  # noqa: PLR0913 - the parts of an upload
    client: SlackClient,
    place: ThreadAddress,
    arguments: dict[str, Any],
    is_ours: IsOurs,
    *,
    in_doubt: bool,
    since: str,
    confirm: Confirm,
) -> None:
    """Share uploaded files; Slack may post the message some seconds after its answer."""

    async def look() -> dict[str, Any] | None:
        return next(iter(await _shared(client, place, is_ours, since)), None)

    def on_doubt() -> None:
        nonlocal in_doubt
        in_doubt = True

    arguments |= {"channel_id": place.channel}
    if place.thread_ts is not None:
        arguments["thread_ts"] = place.thread_ts
    slot = CallSlot(run=place.conversation_id)
    once = PendingCalls(look, confirm=confirm, on_doubt=on_doubt)
    try:
        await client.call(_COMPLETE, arguments, slot, once=once)
    except SlackCallFailed as e:
        # Slack completes an upload once: an earlier attempt has completed this one.
        if e.error != "file_not_found" or not in_doubt:
            raise
        for looked in range(1, _LOOKS + 1):
            await asyncio.sleep(_BETWEEN_LOOKS.delay_s(looked))
            if await look() is not None:
                return
        raise


async def _require_thread(client: SlackClient, place: ThreadAddress, is_ours: IsOurs) -> None:
    """Check that the thread's root exists. If not, delete the file that Slack shared in the channel instead.

    Raises:
        SlackCallFailed: the root was deleted.
    """
    if place.thread_ts is None or await client.history.message(place.channel, place.thread_ts) is not None:
        return
    for file in await _shared(client, replace(place, thread_ts=None), is_ours):
        await delete(client, file["id"])
    raise SlackCallFailed(_COMPLETE, NO_THREAD)


async def _shared(client: SlackClient, place: ThreadAddress, is_ours: IsOurs, since: str = "") -> list[dict[str, Any]]:
    """Return certain files in a conversation; skip deleted ones. `since` as in `ThreadHistory.posts_since`."""
    messages = client.history.posts_since(place, since)
    return [file async for message in messages for file in _files_of(message) if is_ours(file)]


def shared_again(messages: Iterable[dict[str, Any]], digests: AbstractSet[str]) -> list[str]:
    """Return the ids of duplicate uploads whose names have these digests: for each name, all but the earliest.

    A file that a user shares again keeps its id, so it is no duplicate. Files that users upload under such a name are
    ignored.
    """
    named = ((each, file, _NAME.fullmatch(file.get("name") or "")) for each in messages for file in _files_of(each))
    answers = ((each, file) for each, file, name in named if name is not None and name[1] in digests)
    shared = [(float(each["ts"]), str(file["id"]), file) for each, file in answers]
    uploads: dict[str, list[dict[str, Any]]] = {}
    for _, file_id, file in sorted(shared, key=itemgetter(0, 1)):
        same = uploads.setdefault(file["name"], [])
        if file_id not in (str(each["id"]) for each in same):
            same.append(file)
    return [
        str(file["id"])
        for name in sorted(uploads)
        for file in uploads[name][1:]
        if file.get("user") == uploads[name][0].get("user")
    ]


def _files_of(message: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the files of a message, without deleted ones."""
    return [each for each in message.get("files") or () if each.get("mode") != "tombstone"]


async def delete(client: SlackClient, file_id: str) -> None:
    """Delete a file of the bot, if it exists."""
    await client.call(_DELETE, {"file": file_id}, CallSlot(), done=("file_not_found", "file_deleted"))


def _end_of_preview(markdown: str, tokens: Sequence[Token]) -> int:
    """Return the line after the first paragraphs, at most up to the first heading below them."""
    ends = list(accumulate(map(len, markdown.splitlines()), initial=0))
    end = 0
    for token in tokens:
        if token.level or token.map is None:
            continue
        is_next_part = token.type == "heading_open" and end > 0
        if is_next_part or ends[min(end, len(ends) - 1)] > _PREVIEW_CHARS:
            break
        end = token.map[1]
    return end


def _headings(tokens: Sequence[Token], after: int = 0) -> list[str]:
    """Return the headings of the two highest levels from this line on."""
    found = [
        (token.tag, tokens[place + 1].content)
        for place, token in enumerate(tokens)
        if token.type == "heading_open" and token.map is not None and token.map[0] >= after
    ]
    ranks = sorted({tag for tag, _ in found})
    return [text for tag, text in found if tag in ranks[:2] and text.strip()]


def _plain(heading: str) -> str:
    """Return the text of a heading without markup, on one line."""
    (line,) = SyntaxTreeNode(_parser.parseInline(heading[:_PARSED_CHARS])).children
    return one_line(words(line.children), _HEADING_CHARS)


def title_of(markdown: str) -> str:
    """Return the file's title: its first heading."""
    headings = _headings(_outliner.parse(markdown[:_TITLED_CHARS]))
    return (_plain(headings[0]) if headings else "") or "The whole answer"
