"""Read a whole Slack message: its text, blocks, attachments and code snippets.

Text and blocks are the message's own text. Attachments (forwarded messages, alerts of other apps) and code
snippets are quoted: each has a line that names it, and every line of its content begins with `>`. Both are in Slack's
markup. Payloads are untrusted: malformed parts are skipped.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

MOST_CHARS = 40_000
_MOST_PARTS = 100
_MAX_DEPTH = 12
_MAX_QUOTES = 4
_NAME_CHARS = 80

_WORD = re.compile(r"[^\W_]+")
_LIST_MARK = re.compile(r"^ *(?:•|\d+\.) ", re.MULTILINE)
_ENTITY_NAME = re.compile(r"&(?:amp|lt|gt);")
_ID = re.compile(r"[A-Za-z0-9]{1,40}")
_TS = re.compile(r"\d{1,11}(?:\.\d{1,9})?")
_CHANNEL_IN_FOOTER = re.compile(r"#([\w-]{1,80})")
_STYLES = {"code": "`", "strike": "~", "italic": "_", "bold": "*"}
_ENTITIES = {
    "user": ("@", "user_id"),
    "channel": ("#", "channel_id"),
    "usergroup": ("!subteam^", "usergroup_id"),
    "broadcast": ("!", "range"),
}
# The fallback of an attachment without one, and the beginning of the fallback of a forward.
_NO_PREVIEW = re.compile(r"\[no preview available\]|^\[\w+ \d+[^\]]{0,40}\] [^:]{0,80}:\s*")
# Slack's text of a message that has blocks only.
_NOT_DISPLAYED = "This content can't be displayed."
# Elements that a person presses or fills in.
_INTERACTIVE = re.compile(r"actions|button|select|picker|checkboxes|overflow|input")
# Where blocks keep their text, in the order of display.
_PARTS = (
    *("rich_text_title", "title", "subtitle", "author_name", "provider_name", "caption", "text", "body"),
    *("description", "fields", "elements", "accessory", "details", "output", "sources", "tasks", "child_blocks"),
    *("blocks", "alt_text"),
)
_FILE = "a file without a name"
_DELETED_FILE = "a deleted file"
_IMAGE = "an image without a description"
_BLOCK = "a block without text"
_FORWARD = "a forwarded message without text"
_ATTACHMENT = "an attachment without text"


@dataclass(frozen=True, slots=True)
class SlackFile:
    """A file of a message.

    Args:
        id: blank: Slack does not name it.
        size: in bytes, as Slack tells; 0: unknown.
        mimetype: as Slack tells; blank: unknown.
        url: where it can be downloaded; blank: ask Slack.
        is_elsewhere: whether Slack has only a link to it.
        is_quoted: whether the whole content is a quote in the message.
    """

    id: str
    name: str
    size: int = 0
    mimetype: str = ""
    url: str = ""
    is_elsewhere: bool = False
    is_quoted: bool = False

    def completed(self, found: dict[str, Any]) -> SlackFile:
        """Return the file with what Slack tells about it elsewhere."""
        return _slack_file(found) or self


@dataclass(frozen=True, slots=True)
class MessageText:
    """The content of a message. `own` and `quoted` have at most `MOST_CHARS` characters together.

    Args:
        own: written by the author; mentions, instance names and commands count here only.
        quoted: forwarded messages, attachments and code snippets, marked as quotes.
        files: the files.
        unreadable: parts without text, in words for people.
        app: name of the app that posted it; blank: a person did.
    """

    own: str
    quoted: str = ""
    files: tuple[SlackFile, ...] = ()
    unreadable: tuple[str, ...] = ()
    app: str = ""


def read(found: dict[str, Any]) -> MessageText:
    """Read a message event or a message of the history, by a person or an app. Never raises an error."""
    unreadable: list[str] = []
    own = _cut(_with_blocks(_str(found.get("text")), _dicts(found.get("blocks")), unreadable), MOST_CHARS)
    files, quotes = list[SlackFile](), [""]
    for attachment in _dicts(found.get("attachments")):
        if sum(map(len, quotes)) > MOST_CHARS:
            break
        if not own.strip() or not _is_unfurl(attachment) or _is_forward(attachment):
            quotes.append(_attachment(attachment, unreadable))
    for file in _dicts(found.get("files")):
        if (shared := _slack_file(file)) is not None:
            files.append(shared)
            quotes.append(_snippet(file))
        else:
            unreadable.append(_DELETED_FILE if file.get("mode") == "tombstone" else _FILE)
    quoted = _cut("\n".join(filter(None, quotes)), MOST_CHARS - len(own))
    app = _name(found.get("username")) or _name(_dict(found.get("bot_profile")).get("name"))
    return MessageText(own, quoted, tuple(files), tuple(dict.fromkeys(unreadable)), app)


def quote(found: dict[str, Any], channel: str) -> str:
    """Return a message of a channel's history as a quote, in the form of a forward. Never raises an error."""
    app = _name(found.get("username")) or _name(_dict(found.get("bot_profile")).get("name")) or "unnamed"
    share = {
        **{name: found.get(name) for name in ("text", "blocks", "files", "attachments", "ts")},
        "is_share": True,
        "author_id": found.get("user"),
        # Of a person the id, because names are not unique.
        "author_name": f"{app} · app" if found.get("bot_id") else "",
        "channel_id": channel,
    }
    unreadable: list[str] = []
    text = _attachment(share, unreadable) or f"{_origin(share)}: it is {', '.join(dict.fromkeys(unreadable))}."
    return _cut(text, MOST_CHARS)


def read_for_edits(found: dict[str, Any]) -> tuple[str, str, tuple[str, ...]]:
    """Return the own and the quoted text, and the ids of the files.

    Without what Slack itself adds later: unfurled links, previews of files.
    """
    attachments = [each for each in _dicts(found.get("attachments")) if not _is_unfurl(each)]
    text = read({**found, "attachments": attachments, "files": ()})
    files = (_slack_file(each) for each in _dicts(found.get("files")))
    return text.own, text.quoted, tuple(each.id for each in files if each is not None)


def _is_forward(attachment: dict[str, Any]) -> bool:
    return any(attachment.get(name) for name in ("is_share", "is_msg_unfurl", "message_blocks"))


def _is_unfurl(attachment: dict[str, Any]) -> bool:
    """Return whether Slack made the attachment of a link in the text."""
    of_link = any(attachment.get(name) for name in ("from_url", "original_url", "app_unfurl_url", "is_app_unfurl"))
    return of_link and not attachment.get("is_share")


def _with_blocks(text: str, blocks: list[dict[str, Any]], unreadable: list[str], depth: int = 0) -> str:
    """Add to a text the blocks that say more. Slack repeats `rich_text` blocks in the text, and apps a summary."""
    words, added, seen_chars = _words(text), [], 0
    for block in blocks:
        said = _text(block, depth)[:MOST_CHARS]
        seen_chars += len(said)
        if seen_chars > 2 * MOST_CHARS:
            break
        kind = _str(block.get("type"))
        if not said.strip() and kind not in ("divider", "rich_text", "") and not _INTERACTIVE.search(kind):
            unreadable.append(_IMAGE if kind == "image" else _BLOCK)
        elif not _says(text, words, said):
            added.append(said)
    joined = "\n".join(added)
    return (
        joined
        if text == _NOT_DISPLAYED or _says(joined, _words(joined), text)
        else "\n".join(filter(None, (text, joined)))
    )


def _words(text: str) -> list[str]:
    return _WORD.findall(_ENTITY_NAME.sub(" ", text))


def _says(whole: str, words: list[str], part: str) -> bool:
    """Return whether the words of a part occur in those of the whole, in this order, without list marks and styles."""
    wanted, rest = _words(_LIST_MARK.sub("", part)), iter(words)
    # `in` consumes the words up to the one found.
    return all(word in rest for word in wanted) if wanted else part.strip() in whole


def _text(node: Any, depth: int = 0) -> str:  # noqa: C901, PLR0911, PLR0912 - a case for each kind
    """Return the text of a block, its part or a list of parts; blank for buttons and inputs."""
    if isinstance(node, str | float | int):
        return _escape(_str(str(node)))
    if depth > _MAX_DEPTH:
        return ""
    if isinstance(node, list):
        return "\n".join(filter(None, (_text(each, depth + 1) for each in node)))
    if not isinstance(node, dict):
        return ""
    kind, elements = _str(node.get("type")), node.get("elements")
    match kind:
        case "mrkdwn" | "markdown":
            return _str(node.get("text"))
        case "raw_number":
            return _text(node.get("text") or node.get("value"), _MAX_DEPTH)
        case "rich_text_section":
            return _inline(elements)
        case "rich_text_preformatted":
            return f"```\n{_inline(elements)}\n```"
        case "rich_text_quote":
            return _prefixed(_inline(elements))
        case "rich_text_list":
            return _list(node, depth)
        case "table" | "data_table":
            rows = [each for each in _items(node.get("rows")) if isinstance(each, list)]
            lines = (" | ".join(" ".join(_text(cell, depth + 1).split()) for cell in row) for row in rows)
            return "\n".join(filter(None, (_text(node.get("caption"), depth + 1), *lines)))
        case "url":
            return _link(node.get("url"), node.get("text"))
        case "context":
            return " ".join(filter(None, (_text(each, depth + 1) for each in _items(elements))))
    if _INTERACTIVE.search(kind):
        return ""
    parts = {name: _text(node[name], depth + 1) for name in _PARTS if node.get(name)}
    if parts.get("title") and node.get("title_url"):
        parts["title"] = _link(node["title_url"], _dict(node["title"]).get("text"))
    return "\n".join(dict.fromkeys(filter(None, parts.values())))


def _list(node: dict[str, Any], depth: int) -> str:
    indent, offset = (max(0, min(_int(node.get(name)), 99)) for name in ("indent", "offset"))
    lines = []
    for number, each in enumerate(_items(node.get("elements")), offset + 1):
        mark = f"{number}." if node.get("style") == "ordered" else "•"
        lines.append(f"{'    ' * min(indent, _MAX_DEPTH)}{mark} {_text(each, depth + 1)}")
    return "\n".join(lines)


def _inline(elements: Any) -> str:
    return "".join(_leaf(each) for each in _items(elements) if isinstance(each, dict))


def _leaf(element: dict[str, Any]) -> str:
    """Return an element of a rich text in Slack's markup."""
    match kind := _str(element.get("type")):
        case "user" | "channel" | "usergroup" | "broadcast":
            sign, name = _ENTITIES[kind]
            value = _str(element.get(name))
            text = f"<{sign}{value}>" if _ID.fullmatch(value) else _escape(value)
        case "link":
            text = _link(element.get("url"), element.get("text"))
        case "emoji":
            text = f":{_escape(_str(element.get('name')))}:"
        case "date":
            text = _escape(_str(element.get("fallback")) or str(_int(element.get("timestamp"))))
        case _:
            text = _escape(_str(element.get("text")) or _str(element.get("value")))
    style = _dict(element.get("style"))
    for name in (name for name in _STYLES if style.get(name) and text.strip()):
        text = f"{_STYLES[name]}{text}{_STYLES[name]}"
    return text


def _attachment(attachment: dict[str, Any], unreadable: list[str], depth: int = 0) -> str:
    """Return an attachment as a quote; blank if it has no text."""
    if depth == _MAX_QUOTES:
        return ""
    forwarded = (_dict(each.get("message")) for each in _dicts(attachment.get("message_blocks")))
    is_forward, inner = _is_forward(attachment), [attachment, *forwarded]
    blocks = [block for each in inner for block in _dicts(each.get("blocks"))]
    lacks: list[str] = []
    body = _with_blocks(_str(attachment.get("text")), blocks, lacks, depth)
    around = [] if is_forward else [_str(attachment.get(name)) for name in ("pretext", "author_name")]
    title, url = _str(attachment.get("title")), attachment.get("title_link")
    around.append(_link(url, title, is_markup=True) if title and url else title)
    fields = [
        ": ".join(filter(None, (_str(field.get("title")), _str(field.get("value")))))
        for field in _dicts(attachment.get("fields"))
    ]
    files = [file for each in inner for file in _dicts(each.get("files"))]
    files_inside = [_snippet(file) or f"File {_name(name)}" for file in files if (name := _file_name(file))]
    deeper = [more for each in inner for more in _dicts(each.get("attachments"))]
    nested = [_attachment(more, lacks, depth + 1) for more in deeper if _is_forward(more) or not _is_unfurl(more)]
    footer = "" if is_forward else _str(attachment.get("footer"))
    said = [part for part in (*around, body, *fields, *files_inside, *nested) if part.strip()]
    fallback = _NO_PREVIEW.sub("", _str(attachment.get("fallback")))
    lines = "\n".join([*said, footer] if said and footer else said) or fallback
    if not lines.strip():
        has_image = attachment.get("image_url") or attachment.get("thumb_url")
        unreadable.append(_FORWARD if is_forward else _IMAGE if has_image else _ATTACHMENT)
        return ""
    unreadable += lacks
    if depth and not is_forward:
        return lines
    return f"{_origin(attachment) if is_forward else 'Attachment'}:\n{_prefixed(lines)}"


def _origin(attachment: dict[str, Any]) -> str:
    """Return the line that introduces a forward: its author, and its channel and time where given."""
    author, channel = _str(attachment.get("author_id")), _str(attachment.get("channel_id"))
    name = _name(attachment.get("author_name")) or _name(attachment.get("author_subname"))
    who = name or (f"<@{author}>" if _ID.fullmatch(author) else "someone")
    in_footer = _CHANNEL_IN_FOOTER.search(_str(attachment.get("footer")))
    place = _name(attachment.get("channel_name")).removeprefix("#") or (in_footer[1] if in_footer else "")
    if place == "Direct Message" or channel.startswith("D"):
        where = " in a direct message"
    elif place or _ID.fullmatch(channel):
        where = f" in #{place}" if place else f" in <#{channel}>"
    else:
        where = ""
    sent = attachment.get("ts")
    ts = _TS.fullmatch(str(sent)) if isinstance(sent, str | float | int) else None
    when = f", {datetime.fromtimestamp(float(ts[0]), UTC):%Y-%m-%d %H:%M} UTC" if ts else ""
    return f"Forwarded message of {who}{where}{when}"


def _slack_file(file: dict[str, Any]) -> SlackFile | None:
    """Parse a file; `None`: it was deleted, or Slack tells nothing about it."""
    file_id, name = _str(file.get("id")), _file_name(file)
    file_id = file_id if _ID.fullmatch(file_id) else ""
    if file.get("mode") == "tombstone" or not (name or (file_id and file.get("file_access") == "check_file_info")):
        return None
    url = _str(file.get("url_private_download")) or _str(file.get("url_private"))
    return SlackFile(
        file_id,
        name or f"file {file_id}",
        max(_int(file.get("size")), 0),
        _str(file.get("mimetype")),
        url,
        is_elsewhere=file.get("is_external") is True or file.get("mode") == "external",
        is_quoted=bool(_snippet(file)) and _int(file.get("lines_more")) <= 0,
    )


def _file_name(file: dict[str, Any]) -> str:
    return _str(file.get("name")).strip() or _str(file.get("title")).strip()


def _snippet(file: dict[str, Any]) -> str:
    """Return the preview of a code snippet as a quote; blank for other files."""
    preview = _str(file.get("preview"))
    if file.get("mode") != "snippet" or not preview.strip():
        return ""
    more = _int(file.get("lines_more"))
    rest = f"\n(The file has {more} more {'line' if more == 1 else 'lines'}.)" if more > 0 else ""
    code = _prefixed(f"```\n{_escape(preview)}\n```{rest}")
    return f"File {_name(_file_name(file))}:\n{code}"


def _prefixed(text: str) -> str:
    """Mark each line as quoted.

    The mark is escaped, as Slack escapes a typed one: a raw `>` could close a `<` in the text.
    """
    return "\n".join(f"&gt; {line}" for line in text.splitlines())


def _link(url: Any, label: Any, *, is_markup: bool = False) -> str:
    target, text = _escape(_str(url)), _str(label) if is_markup else _escape(_str(label))
    if not re.match(r"https?:|mailto:", target) or "|" in target:
        return text or target
    return f"<{target}|{re.sub('[<>|]', ' ', text)}>" if text else f"<{target}>"


def _name(value: Any) -> str:
    """Return a name on one line, without characters that begin or end an entity."""
    return " ".join(re.sub("[<>|`]", " ", _str(value)).split())[:_NAME_CHARS]


def _escape(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"[:most]


def _str(value: Any) -> str:
    """Return a text whose lone surrogates, which cannot be encoded as UTF-8, are question marks; otherwise blank."""
    return value.encode("utf-8", "replace").decode() if isinstance(value, str) else ""


def _int(value: Any) -> int:
    return value if isinstance(value, int) else 0


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _items(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _dicts(value: Any) -> list[dict[str, Any]]:
    """Return the objects of a list, at most `_MOST_PARTS`."""
    return [each for each in _items(value)[:_MOST_PARTS] if isinstance(each, dict)]
