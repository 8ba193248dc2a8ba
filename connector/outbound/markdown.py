"""Markdown as models write it to the text that Slack shows, and pieces of a size that Slack takes."""

from __future__ import annotations

import re
import unicodedata
from typing import TYPE_CHECKING

from markdown_it import MarkdownIt

if TYPE_CHECKING:
    from collections.abc import Sequence

    from markdown_it.token import Token

PIECE_CHARS = 3900
_FENCE = "```"
_OPENING, _CLOSING = f"{_FENCE}\n", f"\n{_FENCE}"
_BEGINNING, _ENDING = re.compile(rf"{_FENCE}\s*\Z"), re.compile(rf"\s*{_FENCE}")
_START, _WITHIN = "\x01", "\x00"
_ATOM = re.compile(rf"{_FENCE}|&#?\w{{1,8}};")
_WHOLE = re.compile(rf"{_FENCE}.*?(?:{_FENCE}|\Z)|<[^<>\n]*>|{_ATOM.pattern}", re.DOTALL)
# A link may not be cut: one that is longer than this is written as text.
_LINK_CHARS = 3000
_HOST = re.compile(r"(?:[\w-]+\.)+(?:[^\W\d_]{2,}|xn--[\w-]+)|\d+(?:\.\d+){3}")
_BETWEEN_WORDS = re.compile(r"[\s()\[\]{}<>\"'|,;]+")
_parser = MarkdownIt("commonmark", {"html": False}).enable(["strikethrough", "table"])


def markdown_to_slack(markdown: str) -> str:
    """Slack's markup for a Markdown text.

    Everything that Slack would act on is escaped: no text of a model can mention anyone or call a channel.
    """
    return "\n\n".join(_blocks(_parser.parse(markdown))).strip()


def pieces(text: str, limit: int = PIECE_CHARS) -> list[str]:
    """Cut a text into messages of at most `limit` characters (40 or more).

    A cut goes between paragraphs, else lines, else words, as long as the piece gets half full; never through an escaped
    character, a link or a code block, unless that is longer than a piece. A code block is then closed at the cut and
    opened again after it; anything else is cut wherever the piece is full.
    """
    out: list[str] = []
    while len(text) > limit:
        piece, text = _first_piece(text, limit - len(_CLOSING))
        out.append(piece)
    return [piece.strip("\n") for piece in [*out, text] if piece.strip()]


def escape(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _first_piece(text: str, room: int) -> tuple[str, str]:
    """A piece of at most `room` characters, or `room` and a closing fence; and the text after it."""
    at, gap = _cut(text, room)
    piece, rest = text[:at], text[at + gap :]
    if piece.count(_FENCE) % 2 == 0:
        return piece, rest
    if begun := _BEGINNING.search(piece):  # nothing of the code is in this piece: it begins in the next one
        return piece[: begun.start()], f"{_OPENING}{rest}"
    if ended := _ENDING.match(rest):
        return f"{piece}{_CLOSING}", rest[ended.end() :]
    return f"{piece}{_CLOSING}", f"{_OPENING}{rest}"


def _cut(text: str, room: int) -> tuple[int, int]:
    """Where to cut a text that is too long, and how many characters of separation are there."""
    # Twice the room shows the whole of everything that begins inside and fits.
    masked = _masked(text[: 2 * room + 1], room)
    # After a fence it takes more than the fence, so that every cut comes forward.
    lowest = len(_OPENING) + 1 if text.startswith(_FENCE) else 1
    for least in (room // 2, lowest):
        for separation in ("\n\n", "\n", " "):
            at = masked.rfind(separation, least, room + len(separation))
            if at >= 0:
                return at, len(separation)
    at = room
    while at > lowest and masked[at] == _WITHIN:
        at -= 1
    return at, 0


def _masked(text: str, room: int) -> str:
    """The text, as long as before, with marks in the place of what is to stay in one piece."""

    def mask(match: re.Match[str]) -> str:
        return _START + _WITHIN * (len(match[0]) - 1)

    def mask_if_it_fits(match: re.Match[str]) -> str:
        return mask(match) if len(match[0]) <= room else _ATOM.sub(mask, match[0])

    return _WHOLE.sub(mask_if_it_fits, text.replace(_WITHIN, _START))


def _blocks(tokens: Sequence[Token]) -> list[str]:
    """One string per block on this level."""
    out: list[str] = []
    at = 0
    while at < len(tokens):
        end = _end_of(tokens, at)
        out.append(_block(tokens[at], tokens[at + 1 : end]))
        at = end + 1
    return [block for block in out if block]


def _end_of(tokens: Sequence[Token], at: int) -> int:
    """Where the block that begins here ends: its closing token, or itself."""
    depth = 0
    for index in range(at, len(tokens)):
        depth += tokens[index].nesting
        if depth == 0:
            return index
    return len(tokens) - 1


def _block(token: Token, inside: Sequence[Token]) -> str:  # noqa: PLR0911 - one for each kind of block
    match token.type:
        case "heading_open":
            return f"*{_plain(inside[0])}*"
        case "bullet_list_open" | "ordered_list_open":
            return _list(token, inside)
        case "blockquote_open":
            return "\n".join(f"> {line}" for line in "\n\n".join(_blocks(inside)).split("\n"))
        case "fence" | "code_block":
            return _code_block(token.content.rstrip())
        case "table_open":
            return _table(inside)
        case "hr":
            return "──────────"
        case "inline":
            return _without_fences(_inline(token.children or []))
        case _:
            return "\n\n".join(_blocks(inside))


def _list(token: Token, inside: Sequence[Token]) -> str:
    number = int(token.attrs.get("start", 1)) if token.type == "ordered_list_open" else None
    lines: list[str] = []
    at = 0
    while at < len(inside):
        end = _end_of(inside, at)
        mark = "•" if number is None else f"{number}."
        body = "\n".join(_blocks(inside[at + 1 : end])).split("\n")
        lines += [f"{mark} {body[0]}", *(f"    {line}" for line in body[1:])]
        number = None if number is None else number + 1
        at = end + 1
    return "\n".join(lines)


def _table(inside: Sequence[Token]) -> str:
    rows: list[list[str]] = []
    for token in inside:
        if token.type == "tr_open":
            rows.append([])
        elif token.type == "inline":
            rows[-1].append(token.content)
    widths = [max(len(row[i]) for row in rows if i < len(row)) for i in range(len(rows[0]))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=False)).rstrip() for row in rows]
    return _code_block("\n".join(lines))


def _code_block(code: str) -> str:
    return f"{_OPENING}{_without_fences(escape(code))}{_CLOSING}"


def _without_fences(text: str) -> str:
    """Backticks that Slack would take for the border of a code block, spread out."""
    return re.sub(r"`{3,}", lambda run: " ".join(run[0]), text)


_MARKS = {"strong_open": "*", "em_open": "_", "s_open": "~"}


def _inline(tokens: Sequence[Token]) -> str:
    out: list[str] = []
    at = 0
    while at < len(tokens):
        end = _end_of(tokens, at)
        out.append(_span(tokens[at], tokens[at + 1 : end]))
        at = end + 1
    return "".join(out)


def _span(token: Token, inside: Sequence[Token]) -> str:
    match token.type:
        case "code_inline":
            return f"`{escape(token.content)}`"
        case "softbreak" | "hardbreak":
            return "\n"
        case "link_open":
            return _link(str(token.attrs.get("href", "")), inside)
        case "image":
            return escape(token.content or str(token.attrs.get("src", "")))
        case kind if kind in _MARKS:
            return f"{_MARKS[kind]}{_inline(inside)}{_MARKS[kind]}"
        case _:
            return escape(token.content)


def _link(href: str, inside: Sequence[Token]) -> str:
    """A live link to the web or a mail address; any other stays text.

    Where the label looks like an address that is not the target's, people see the target too.
    """
    label = _inline(inside).replace("\n", " ")
    if not href.startswith(("https://", "http://", "mailto:")):
        return label
    target = escape(href.replace("|", "%7C").replace("<", "%3C").replace(">", "%3E"))
    if len(target) + len(label) > _LINK_CHARS:
        return f"{label} ({target})"
    if _misleads(_words(inside), href):
        return f"{label} (<{target}>)"
    return f"<{target}|{label}>" if label.strip() else f"<{target}>"


def _misleads(label: str, href: str) -> bool:
    """Whether a label names a host that the link does not lead to."""
    # What looks like a dot is one, and what cannot be seen is not there.
    shown = "".join(c for c in unicodedata.normalize("NFKC", label) if c.isprintable())
    named = [host for word in _BETWEEN_WORDS.split(shown) for host in _hosts(word)]
    return shown != href.removeprefix("mailto:") and not set(named) <= set(_hosts(href)[-1:])


def _hosts(word: str) -> list[str]:
    """The hosts in a word that may be an address. The last one counts; those before an @ may be there to mislead."""
    address = word.removeprefix("mailto:")
    authority = re.split(r"[/?#\\]", address.split("://", 1)[-1].lstrip("/"), maxsplit=1)[0]
    whole = "://" in address
    found = [match[0] if (match := _HOST.search(part)) else part * whole for part in authority.split("@")]
    return [host.lower().removeprefix("www.") for host in found if host]


def _words(tokens: Sequence[Token]) -> str:
    return "".join(token.content or (" " if token.type.endswith("break") else "") for token in tokens)


def _plain(token: Token) -> str:
    """A heading's text: it is bold as a whole, so marks inside it go."""
    return _without_fences(escape(_words(token.children or [])))
