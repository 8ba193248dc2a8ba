"""Link definitions such as `[1]: https://example.org`. Definitions that no link uses are shown as text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from markdown_it.common.normalize_url import normalizeLinkText

from connector.formatting.links import escape, is_live, link

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from markdown_it.token import Token

DEFINITION = "definition"


def without_used_definitions(tokens: Sequence[Token]) -> list[Token]:
    """Remove the definitions that links use. Of two definitions with the same label, the first is the used one."""
    used = set(_used(tokens))
    out: list[Token] = []
    for token in tokens:
        if token.type == DEFINITION and token.meta["id"] in used:
            used.remove(token.meta["id"])
        else:
            out.append(token)
    return out


def definition(token: Token) -> str:
    """Return a definition as written, escaped, with its target as a live link."""
    label, title, url = " ".join(token.meta["label"].split()), token.meta["title"], token.meta["url"]
    target = link(url, "") if is_live(url) else escape(normalizeLinkText(url))
    more = f' "{escape(title)}"' if title else ""
    return f"[{escape(label)}]: {target}{more}"


def _used(tokens: Sequence[Token]) -> Iterator[str]:
    for token in tokens:
        if label := token.meta.get("label") if token.type in ("link_open", "image") else None:
            yield label
        if token.children:
            yield from _used(token.children)
