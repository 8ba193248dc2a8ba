"""Convert a model's Markdown to Slack's markup."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from markdown_it import MarkdownIt
from markdown_it.token import Token

from connector.formatting.inline import BOLD, NO_SPACE, inline
from connector.formatting.link_definitions import DEFINITION, definition, without_used_definitions
from connector.formatting.links import escape, whole
from connector.formatting.tables import table, whole_table

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from markdown_it.rules_core import StateCore

FENCE = "```"
_RULE = "──────────"
_BULLETS = "•◦▪"
_INDENT = "    "
_TASK = re.compile(r"\[([ xX])\][ \t]+(?=\S)")
_DONE = {" ": "☐", "x": "☑", "X": "☑"}
# At the start of a line `>` begins a quote, and `>>>` quotes the rest of the message.
_WOULD_QUOTE = re.compile(r"^&gt;", re.MULTILINE)
# The parser drops text that is nested deeper than this; a list counts as two levels. Each level of quotes adds one pass
# over its content.
_DEEPEST = 20
# The parser scans from each opening bracket to its closing one, or to the end of the paragraph. This total number of
# characters takes a fifth of a second.
_MOST_BRACKETED_CHARS = 250_000
_BRACKETS = re.compile(r"\\.|\[|\]|\n[ \t]*\n", re.DOTALL)
# This many characters of possible markup take about 50 ms. Code blocks do not count.
_MOST_SIGNS = 3_000
_SIGN = re.compile(r"[*_~`<&\[\]]")


def _parse_inline(state: StateCore) -> None:
    """Parse the content of blocks. The blocks after the first `_MOST_SIGNS` signs become plain text."""
    signs = 0
    for token in state.tokens:
        if token.type != "inline":
            continue
        signs += len(_SIGN.findall(token.content))
        if signs > _MOST_SIGNS:
            token.children = [Token("text", "", 0, content=token.content)]
        else:
            token.children = []
            state.md.inline.parse(token.content, state.md, state.env, token.children)


_parser = MarkdownIt(
    "commonmark", {"html": False, "maxNesting": _DEEPEST, "inline_definitions": True, "store_labels": True}
).enable(["strikethrough", "table"])
_parser.core.ruler.at("inline", _parse_inline)
_parser.block.ruler.at("table", whole_table, {"alt": ["paragraph", "reference"]})


def markdown_to_slack(markdown: str) -> str:
    """Return Slack's markup for a Markdown text.

    Control sequences are escaped, so that a model cannot mention users or notify a channel. A text that is nested too
    deeply, or has too much bracketed text, is shown as written.
    """
    markdown = whole(markdown)
    try:
        tokens = _parser.parse(markdown) if _bracketed_chars(markdown) <= _MOST_BRACKETED_CHARS else None
        if tokens is not None and all(token.level < _DEEPEST - 1 for token in tokens):
            return _joined(_blocks(without_used_definitions(tokens), _Place())).strip()
    except RecursionError:
        pass
    return _WOULD_QUOTE.sub(f"{NO_SPACE}&gt;", _without_fences(escape(markdown))).strip()


def _bracketed_chars(markdown: str) -> int:
    """Sum the characters between each opening bracket and its closing one or the end of its paragraph."""
    chars = 0
    opened: list[int] = []
    for found in _BRACKETS.finditer(markdown):
        match found[0][0]:
            case "[":
                opened.append(found.start())
            case "]" if opened:
                chars += found.start() - opened.pop()
            case "\n":
                chars += found.start() * len(opened) - sum(opened)
                opened.clear()
    return chars + len(markdown) * len(opened) - sum(opened)


@dataclass(frozen=True, slots=True)
class _Place:
    """The context of a block: the number of lists around it, and whether it is inside a quote."""

    lists: int = 0
    is_quoted: bool = False

    @property
    def is_top(self) -> bool:
        return not (self.lists or self.is_quoted)


@dataclass(frozen=True, slots=True)
class _Block:
    """A block of output lines.

    Args:
        is_code: its lines get no prefix.
        follows: no blank line separates it from the block before it.
    """

    text: str
    is_code: bool = False
    follows: bool = False


def _joined(blocks: Sequence[_Block]) -> str:
    return "".join(f"{_gap(block) if number else ''}{block.text}" for number, block in enumerate(blocks))


def _gap(block: _Block) -> str:
    return "\n" if block.follows else "\n\n"


def _blocks(tokens: Sequence[Token], place: _Place) -> list[_Block]:
    """Convert the tokens on this level."""
    out: list[_Block] = []
    before = ""
    for token, inside in _spans(tokens):
        blocks = _block(token, inside, place)
        if token.type == before == DEFINITION:
            blocks = [replace(block, follows=True) for block in blocks]
        out += blocks
        before = token.type
    return [block for block in out if block.text]


def _spans(tokens: Sequence[Token]) -> Iterator[tuple[Token, Sequence[Token]]]:
    """Yield the tokens on this level, each with the tokens inside it."""
    at = 0
    while at < len(tokens):
        end = at
        depth: int = tokens[at].nesting
        while depth and end + 1 < len(tokens):
            end += 1
            depth += tokens[end].nesting
        yield tokens[at], tokens[at + 1 : end]
        at = end + 1


def _block(token: Token, inside: Sequence[Token], place: _Place) -> list[_Block]:  # noqa: PLR0911 - one for each kind
    match token.type:
        case "heading_open":
            return [_Block(_text(inside[0], place, (BOLD,)))]
        case "bullet_list_open" | "ordered_list_open":
            return _list(token, inside, place)
        case "blockquote_open":
            return _quote(_blocks(inside, replace(place, is_quoted=True)), place)
        case "fence" | "code_block":
            # One word after a fence is the language. Several words, or a word before an empty block, are text.
            is_language = len(token.info.split()) < 2 and token.content.strip()
            return [_code(escape(token.content if is_language else f"{token.info.strip()}\n{token.content}"))]
        case "table_open":
            text, is_code = table(inside)
            return [_code(text) if is_code else _Block(_without_fences(text))]
        case "definition":
            return [_Block(_without_fences(definition(token)))]
        case "hr":
            return [_Block(_RULE)]
        case "inline":
            return [_Block(_text(token, place))]
        case _:
            return _blocks(inside, place)


def _text(token: Token, place: _Place, marks: tuple[str, ...] = ()) -> str:
    text = _without_fences(inline(token.children or [], marks))
    return _WOULD_QUOTE.sub(f"{NO_SPACE}&gt;", text) if place.is_top else text


def _code(text: str) -> _Block:
    code = _without_fences(text).rstrip()
    return _Block(f"{FENCE}\n{code}\n{FENCE}" if code.strip() else "", is_code=True)


def _without_fences(text: str) -> str:
    """Separate backticks that Slack would read as the border of a code block."""
    return re.sub(r"`{3,}", lambda run: " ".join(run[0]), text)


def _quote(blocks: Sequence[_Block], place: _Place) -> list[_Block]:
    """Prefix the lines of a quote. Slack has one quote level: nested quotes show `>`; code goes between quotes."""
    sign = "> " if place.is_top else "&gt; "
    out: list[_Block] = []
    for block in blocks:
        if block.is_code:
            out.append(replace(block, follows=bool(out)))
            continue
        text = "\n".join(f"{sign}{line}" for line in block.text.split("\n"))
        if out and not out[-1].is_code and not block.follows:
            text = f"{sign}\n{text}"
        out.append(_Block(text, follows=bool(out)))
    return out


def _list(token: Token, inside: Sequence[Token], place: _Place) -> list[_Block]:
    """Write each item on its own lines. Code in an item is not indented, so that its content is unchanged."""
    number = int(token.attrs.get("start", 1))
    bullet = _BULLETS[min(place.lists, len(_BULLETS) - 1)]
    within = replace(place, lists=place.lists + 1)
    out: list[_Block] = []
    for _, item in _spans(inside):
        mark = f"{number}." if token.type == "ordered_list_open" else bullet
        if box := _box(item):
            mark = box if mark == bullet else f"{mark} {box}"
        out += _item(mark, _blocks(item, within), follows=bool(out))
        number += 1
    return out


def _item(mark: str, blocks: list[_Block], *, follows: bool) -> Iterator[_Block]:
    if not blocks or blocks[0].is_code:
        yield _Block(mark, follows=follows)
        mark, follows = "", True
    for block in blocks:
        if block.is_code:
            yield replace(block, follows=True)
            continue
        first, *others = block.text.split("\n")
        lines = [f"{mark} {first}" if mark else f"{_INDENT}{first}", *(f"{_INDENT}{line}" for line in others)]
        yield _Block("\n".join(lines), follows=follows)
        mark, follows = "", True


def _box(item: Sequence[Token]) -> str:
    """Remove the check box of a task from its text and return it; blank if the item is no task."""
    children = item[1].children if len(item) > 1 and item[1].type == "inline" else None
    if not children or (box := _TASK.match(children[0].content)) is None or children[0].type != "text":
        return ""
    children[0].content = children[0].content[box.end() :]
    return _DONE[box[1]]
