"""Write a model's Markdown as the Markdown that Slack's `markdown` blocks and streams render.

The text is parsed and written anew, so that only the markup which the parser recognized remains. Slack also reads
`<...>` in it: all such signs of the model are escaped.
"""

from __future__ import annotations

import re
import unicodedata
from contextlib import suppress
from typing import TYPE_CHECKING

from connector.formatting.inline import NO_SPACE, Notation, definition, link, sources, whole, with_links, words
from connector.formatting.markdown import FENCE, box_of, formula_of, is_wide, last_block, parsed
from connector.formatting.splitting import complete_sentences

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from markdown_it.tree import SyntaxTreeNode

# Slack accepts 12,000 characters in all `markdown` blocks of a message, and in one call of a stream.
MOST_CHARS = 12_000
_MARKS = {"strong": "**", "em": "*", "s": "~~"}
# An entity would be shown as the character that it stands for.
_ENTITY = re.compile(r"&(?=#?\w+;)")
# Signs that are markup everywhere, a backslash before a sign, and an underscore at the edge of a word.
_SIGN = re.compile(r"[*~`\[\]]|\\(?=[!-/:-@\[-`{-~]|\Z)|!(?=\[|\Z)|(?<![^\W_])_|_(?![^\W_])")
# What begins a block at the start of a line.
_BLOCK_SIGN = re.compile(r"^(\s*)(?:([#+=-])|(\d{1,9})([.)])(?=\s|$))", re.MULTILINE)
_LANGUAGE = re.compile(r"[\w+#.-]{1,30}")
_BACKTICKS = re.compile(r"`+")
_BALANCED = re.compile(r"[^()]*(?:\([^()]*\)[^()]*)*")
_PARENTHESES = str.maketrans({"(": "%28", ")": "%29"})
# In a `markdown` block they are shown better than in Slack's older markup.
_RICH = ("heading", "table")
# Without such a sign, a text has no heading, table or task list.
_MAY_BE_RICH = re.compile(r"^[ >]*(?:#|[=-]+[ \t]*$)|\||\[[ xX]\]", re.MULTILINE)


def native_markdown(markdown: str, *, only_rich: bool = False) -> str:
    """Return the Markdown for a `markdown` block or a stream; blank: the text cannot be written so.

    With `only_rich`, it is also blank if the text has no heading, table or task list.
    """
    if only_rich and _MAY_BE_RICH.search(markdown) is None:
        return ""
    with suppress(RecursionError):
        root = parsed(whole(markdown))
        if root is not None and (not only_rich or _is_rich(root)):
            return _joined(_blocks(root.children))
    return ""


class GrowingText:
    """The visible part of a text that is being written; it stays when the text grows.

    It ends with a sentence or a line. Blocks that another one follows are converted once.
    """

    def __init__(self) -> None:
        self._settled = ""
        # Where the block begins that may still change, in characters.
        self._at = 0

    def visible(self, markdown: str) -> str:
        """Return the visible part of the text so far, which extends the text of the call before."""
        if at := last_block(markdown[self._at :]):
            settled = native_markdown(markdown[self._at : self._at + at])
            self._settled, self._at = _joined([self._settled, settled]), self._at + at
        return _joined([self._settled, _begun(markdown[self._at :])])


def _begun(markdown: str) -> str:
    """Return the visible part of a block; within a code block, it ends with a line, and without a fence."""
    complete = complete_sentences(markdown)
    if (opened := markdown.rfind(f"\n{FENCE}", len(complete.rstrip()) - 1)) < 0 and not markdown.startswith(FENCE):
        return native_markdown(complete)
    code = markdown[: markdown.rfind("\n") + 1]
    written = native_markdown(code).rstrip("\n") if code.count("\n") > markdown.count("\n", 0, opened + 1) + 1 else ""
    ended = written.rpartition("\n")
    return ended[0] if written and set(ended[2]) == {"`"} else native_markdown(complete)


def _is_rich(root: SyntaxTreeNode) -> bool:
    return any(node.type in _RICH or (node.type == "list_item" and box_of(node, strip=False)) for node in root.walk())


def _joined(blocks: Sequence[str]) -> str:
    return "\n\n".join(block for block in blocks if block)


def _blocks(nodes: Sequence[SyntaxTreeNode]) -> list[str]:
    shown = [node for node in nodes if not (node.hidden and node.type == "definition")]
    return [*(text for node in shown for text in _block(node)), sources(nodes, _NATIVE)]


def _block(node: SyntaxTreeNode) -> list[str]:  # noqa: PLR0911 - one for each kind
    match node.type:
        case "heading":
            return [f"{'#' * int(node.tag[1:])} {' '.join(_inline(node.children[0].children).split())}"]
        case "bullet_list" | "ordered_list":
            return ["\n".join(_items(node))]
        case "blockquote":
            return ["\n".join(f"> {line}".rstrip() for line in _joined(_blocks(node.children)).split("\n"))]
        case "fence" | "code_block":
            return [_code(node.content, node.info.strip())]
        case "table":
            return [_table(node)]
        case "definition":
            return [_line_safe(definition(node, _NATIVE))]
        case "hr":
            return ["---"]
        case "inline" if formula := formula_of(node):
            return [_code(formula, "")]
        case "inline":
            return [_line_safe(_inline(node.children))]
        case _:
            return _blocks(node.children)


def _items(node: SyntaxTreeNode) -> Iterator[str]:
    number = int(node.attrs.get("start", 1))
    for item in node.children:
        box = box_of(item)
        mark = f"{number}. " if node.type == "ordered_list" else "- "
        first, *others = [block for block in _blocks(item.children) if block] or [""]
        # A list, or code, follows its line at once: a blank line would set the items of the list apart.
        text = "".join([first, *(f"\n{each}" if _follows(each) else f"\n\n{each}" for each in others)])
        lines = f"{f'[{box}] ' if box else ''}{text}".split("\n")
        yield "\n".join([f"{mark}{lines[0]}".rstrip(), *(f"{' ' * len(mark)}{line}".rstrip() for line in lines[1:])])
        number += 1


def _follows(block: str) -> bool:
    return block.startswith(("- ", FENCE)) or re.match(r"\d{1,9}\. ", block) is not None


def fenced(content: str) -> str:
    """Return a text as a code block."""
    fence = _fence(content)
    return f"{fence}\n{content}\n{fence}"


def _fence(content: str) -> str:
    return "`" * max(3, 1 + max(map(len, _BACKTICKS.findall(content)), default=0))


def _code(content: str, info: str) -> str:
    fence = _fence(content)
    # One word after a fence is the language. Several words, or a word before an empty block, are text.
    if len(info.split()) > 1 or not content.strip():
        content, info = f"{info}\n{content}", ""
    language = info if _LANGUAGE.fullmatch(info) else ""
    code = _entities(content).rstrip()
    return f"{fence}{language}\n{code}\n{fence}" if code else ""


def _table(node: SyntaxTreeNode) -> str:
    rows = [row for part in node.children for row in part.children]
    lines = [f"| {' | '.join(_cell(cell) for cell in row.children)} |" for row in rows]
    edges = {"right": "--:", "center": ":-:"}
    styles = [str(cell.attrs.get("style", "")).removeprefix("text-align:") for cell in rows[0].children]
    lines.insert(1, f"|{'|'.join(edges.get(style, '---') for style in styles)}|")
    return "\n".join(lines)


def _cell(node: SyntaxTreeNode) -> str:
    return " ".join(_inline(node.children[0].children).split()).replace("|", "\\|")


def _inline(nodes: Sequence[SyntaxTreeNode]) -> str:
    out: list[str] = []
    texts = ["", *map(_span, nodes), ""]
    for node, before, text, after in zip(nodes, texts, texts[1:], texts[2:], strict=False):
        written = _marked(text, _MARKS.get(node.type, ""), f"{before[-1:]}{text}{after[:1]}")
        joins = out and written[:1] in ("*", "~") and out[-1][-1] == written[0]
        out += [NO_SPACE, written] if joins else [written] if written else []
    return "".join(out)


def _span(node: SyntaxTreeNode) -> str:
    match node.type:
        case "softbreak" | "hardbreak":
            return "\n"
        case "code_inline" | "math":
            return _code_span(node.content)
        case "image":
            return link(str(node.attrs.get("src", "")), words(node.children), _NATIVE)
        case "link":
            return link(str(node.attrs.get("href", "")), words(node.children), _NATIVE)
        case _ if node.is_nested:
            return _inline(node.children)
        case _:
            return with_links(node.content, _NATIVE)


def _marked(text: str, mark: str, between: str) -> str:
    """Put marks around a text; `between` is the text with its neighbours.

    Among characters without spaces, marks are not recognized next to punctuation marks.
    """
    if not mark or text.strip() != text or not text:
        return text
    is_unspaced = any(map(is_wide, between))
    edges = (is_unspaced and unicodedata.category(each)[0] in "PS" for each in (text[0], text[-1]))
    begin, end = (NO_SPACE if each else "" for each in edges)
    return f"{mark}{begin}{text}{end}{mark}"


def _code_span(content: str) -> str:
    mark = "`" * (1 + max(map(len, _BACKTICKS.findall(content)), default=0))
    space = " " if content[:1] == "`" or content[-1:] == "`" else ""
    return f"{mark}{space}{_entities(' '.join(content.split(chr(10))))}{space}{mark}"


def _entities(text: str) -> str:
    """Escape what Slack reads in a `markdown` block, also in code: it shows these entities as characters."""
    return _ENTITY.sub("&amp;", text).replace("<", "&lt;").replace(">", "&gt;")


def _escape(text: str) -> str:
    return _SIGN.sub(r"\\\g<0>", _entities(whole(text)))


def _line_safe(text: str) -> str:
    return _BLOCK_SIGN.sub(lambda sign: f"{sign[1]}\\{sign[2]}" if sign[2] else f"{sign[1]}{sign[3]}\\{sign[4]}", text)


def _live(href: str, label: str) -> str:
    target = href if _BALANCED.fullmatch(href) else href.translate(_PARENTHESES)
    target = target.replace("\x7f", "%7F")  # a target has no control character
    return f"[{_escape(label or href)}]({target})"


_NATIVE = Notation(_escape, _live)
