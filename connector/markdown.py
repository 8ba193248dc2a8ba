"""Markdown as models write it to the text that Slack shows, and pieces of a size that Slack takes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from markdown_it import MarkdownIt

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from markdown_it.token import Token

PIECE_CHARS = 3900
_FENCE = "```"
_parser = MarkdownIt("commonmark", {"html": False}).enable(["strikethrough", "table"])


def markdown_to_slack(markdown: str) -> str:
    """Slack's markup for a Markdown text.

    Everything that Slack would act on is escaped: no text of a model can mention anyone or call a channel.
    """
    return "\n\n".join(_blocks(_parser.parse(markdown))).strip()


def pieces(text: str, limit: int = PIECE_CHARS) -> list[str]:
    """Cut a text into messages of at most `limit` characters: at paragraphs, then lines; fences are reopened."""
    out: list[str] = []
    current = ""
    for line in _short_lines(text, limit - 2 * len(_FENCE) - 2):
        closing = f"\n{_FENCE}" if _inside_fence(current) else ""
        if current and len(current) + 1 + len(line) + len(_FENCE) + 1 > limit:
            out.append(current + closing)
            current = f"{_FENCE}\n{line}" if closing else line
        else:
            current = f"{current}\n{line}" if current else line
    return [piece for piece in [*out, current] if piece.strip()]


def escape(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _short_lines(text: str, limit: int) -> Iterator[str]:
    for line in text.split("\n"):
        for start in range(0, max(len(line), 1), limit):
            yield line[start : start + limit]


def _inside_fence(text: str) -> bool:
    return text.count(_FENCE) % 2 == 1


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
            return f"{_FENCE}\n{escape(token.content.rstrip()).replace(_FENCE, '` ` `')}\n{_FENCE}"
        case "table_open":
            return _table(inside)
        case "hr":
            return "──────────"
        case "inline":
            return _inline(token.children or [])
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
            rows[-1].append(escape(token.content))
    widths = [max(len(row[i]) for row in rows if i < len(row)) for i in range(len(rows[0]))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=False)).rstrip() for row in rows]
    return "\n".join([_FENCE, *lines, _FENCE])


_MARKS = {"strong_open": "*", "strong_close": "*", "em_open": "_", "em_close": "_", "s_open": "~", "s_close": "~"}


def _inline(children: Sequence[Token]) -> str:
    out: list[str] = []
    target: str | None = None
    for token in children:
        match token.type:
            case "text":
                out.append(escape(token.content))
            case "code_inline":
                out.append(f"`{escape(token.content)}`")
            case "softbreak" | "hardbreak":
                out.append("\n")
            case "link_open":
                target = _target(str(token.attrs.get("href", "")))
                out.append(f"<{target}|" if target else "")
            case "link_close":
                out.append(">" if target else "")
            case "image":
                out.append(escape(token.content or str(token.attrs.get("src", ""))))
            case _:
                out.append(_MARKS.get(token.type, escape(token.content)))
    return "".join(out)


def _target(href: str) -> str | None:
    """A link that may be live: to the web or a mail address; anything else stays text."""
    if not href.startswith(("https://", "http://", "mailto:")):
        return None
    return escape(href.replace("|", "%7C").replace("<", "%3C").replace(">", "%3E"))


def _plain(token: Token) -> str:
    """A heading's text: it is bold as a whole, so marks inside it go."""
    return "".join(escape(child.content) for child in token.children or [] if child.content)
