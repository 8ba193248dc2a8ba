"""Markdown texts as a hostile model may write them, and the links in Markdown."""

from __future__ import annotations

import re

from hypothesis import settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from markdown_it.tree import SyntaxTreeNode

from connector.formatting.inline import words

MARKUP = [*"*_~`#>|-[]()!&<\n ", "**", "~~", "```", "\n```\n", "\n\n", "> ", "- ", "1. ", "- [x] ", "    ", "|---|\n"]
MARKUP += ["\\", "<br>"]
ENTITIES = [
    "<!channel>",
    "<@U0ANA>",
    "<#C1>",
    "<!subteam^S1>",
    "<https://a.b|c>",
    "[x](",
    "](https://a.b)",
    "&lt;!here&gt;",
]
TEXTS = st.lists(st.one_of(st.text(max_size=8), st.sampled_from(MARKUP), st.sampled_from(ENTITIES)), max_size=40).map(
    "".join
)
quickly = settings(max_examples=80, deadline=None)

WORD = re.compile(r"w\d+w")
# The language of a code block, the title of a link, and the target of a link within the answer.
HIDDEN = re.compile(r"^[\W\d]*(?:```|~~~).*$|\]\([^)]*\s\([^)]*\)|\]\(\s*<?#\S*", re.MULTILINE)
MARKUP_OR_WORD = st.one_of(st.sampled_from([*MARKUP, *ENTITIES, "[1]: ", "](", "\n[1]: https://a.b/"]), st.none())


def links_of(markdown: str) -> list[tuple[str, str]]:
    """Return target and label of each link, as a reader of Markdown finds them, without the marks in labels."""
    tree = SyntaxTreeNode(MarkdownIt("commonmark", {"html": False}).enable("table").parse(markdown))
    return [(str(each.attrs["href"]), words(each.children)) for each in tree.walk() if each.type == "link"]
