"""Convert inline Markdown: emphasis, code and links.

A link whose label names another host shows its target. Link definitions such as `[1]: https://example.org` that no link
uses are shown as text.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass, field
from itertools import takewhile
from operator import eq
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import unquote

from markdown_it.common.normalize_url import normalizeLinkText

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from markdown_it.tree import SyntaxTreeNode

    Nodes = Sequence[SyntaxTreeNode]

BOLD = "*"
# Zero-width space. Slack recognizes markup only at word boundaries; this creates one inside a word.
NO_SPACE = "\u200b"
_CODE = "`"
_MARKS = {"strong": BOLD, "em": "_", "s": "~"}
_BEFORE_A_MARK = frozenset("([{\"'-,.:!?=/—")
_AFTER_A_MARK = frozenset(")]}\"'-,.:;!?=/—…")
# Slack cannot escape a backtick in code: this look-alike replaces it.
_LIKE_A_BACKTICK = "\u02cb"

# Links are never split: a longer link is written as text.
LONGEST = 1400
_LIVE = ("https://", "http://", "mailto:")
_TELLS_NOTHING = ("#", "data:")
_HOST = re.compile(r"(?:[\w-]+\.)+(?:[^\W\d_]{2,}|xn--[\w-]+)|\d+(?:\.\d+){3}")
_PLAIN_HOST = re.compile(r"[\w.-]+")
_BETWEEN_WORDS = re.compile(r"[\s()\[\]{}<>\"'|,;]+")
_AFTER_AUTHORITY = re.compile(r"[/?#\\]")
_PORT = re.compile(r":\d*\Z")
# Browsers treat it as a dot.
_DOT = "\u3002"
_ADDRESS = re.compile(r"https?://[^\s<>|`\"\x00-\x1f]+", re.IGNORECASE)
_AFTER_ADDRESS = ".,;:!?'*_~"
_NUMBER = re.compile(r"\^?\d{1,3}")
_SCHEME = re.compile(r"\Ahttps?://(?:www\.)?", re.IGNORECASE)
_SOURCE_CHARS = 60
_BRACKETS = {")": "(", "]": "["}
_PERCENT = str.maketrans({"|": "%7C", "<": "%3C", ">": "%3E", "`": "%60"})

Marks = tuple[str, ...]


def inline(nodes: Nodes, marks: Marks = ()) -> str:
    """Return Slack's markup for the inline nodes of a block, with `marks` around all of it."""
    line = _Line()
    for text, around in _runs(nodes, marks):
        line.add(text, around)
    line.change(())
    return "".join(line.out)


def words(nodes: Nodes) -> str:
    """Return the text of inline nodes without markup, not escaped."""
    return "".join(
        node.content or (" " if node.type in ("softbreak", "hardbreak") else words(node.children)) for node in nodes
    )


def _runs(nodes: Nodes, marks: Marks) -> Iterator[tuple[str, Marks]]:
    """Yield the escaped texts, each with the marks around it."""
    for node in nodes:
        match node.type:
            case "softbreak" | "hardbreak":
                yield "\n", ()
            case "code_inline" | "math":
                yield escape(node.content.replace(_CODE, _LIKE_A_BACKTICK)), (*marks, _CODE)
            case "image":
                yield link(str(node.attrs.get("src", "")), words(node.children)), marks
            case "link":
                yield _linked(node, marks)
            case kind if node.is_nested:
                yield from _runs(node.children, _with(marks, _MARKS.get(kind, "")))
            case _:
                yield with_links(node.content), marks


def _linked(node: SyntaxTreeNode, marks: Marks) -> tuple[str, Marks]:
    """Return a link and its marks. Slack shows no marks in a label: marks around the whole label go around the link."""
    inside: Nodes = (node,)
    while len(inside) == 1 and inside[0].is_nested:
        marks = _with(marks, _MARKS.get(inside[0].type, ""))
        inside = [child for child in inside[0].children if child.content or child.type != "text"]
    return link(str(node.attrs.get("href", "")), words(inside)), marks


def _with(marks: Marks, mark: str) -> Marks:
    return (*marks, mark) if mark and mark not in marks else marks


@dataclass(slots=True)
class _Line:
    """Places marks where Slack recognizes them: not next to spaces, within one line, and at word boundaries."""

    out: list[str] = field(default_factory=list)
    _open: Marks = ()
    _space: str = ""
    _has_closed: bool = False

    def add(self, text: str, marks: Marks) -> None:
        core = text.strip()
        before, _, after = text.partition(core) if core else (text, "", "")
        self._space += before
        if core:
            self.change(marks)
            if self._has_closed and core[0] not in _AFTER_A_MARK:
                self.out.append(NO_SPACE)
            self.out.append(core)
            self._has_closed = False
        self._space += after

    def change(self, marks: Marks) -> None:
        """Close the marks that end here, write the pending space, open the marks that begin here."""
        stay = 0 if "\n" in self._space else sum(1 for _ in takewhile(bool, map(eq, self._open, marks)))
        closed = "".join(reversed(self._open[stay:]))
        opened = "".join(marks[stay:])
        self._has_closed = (self._has_closed or bool(closed)) and not self._space
        is_inside = bool(self._open[:stay]) and self.out[-1] == self._open[stay - 1]
        self.out += [part for part in (closed, self._space) if part]
        if opened:
            last = self.out[-1][-1] if self.out else " "
            if not (last.isspace() or last in _BEFORE_A_MARK or is_inside):
                self.out.append(NO_SPACE)
            self.out += opened
            self._has_closed = False
        self._open, self._space = marks, ""


def whole(text: str) -> str:
    """Replace lone surrogates, which cannot be encoded."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def escape(text: str) -> str:
    return whole(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def is_live(href: str) -> bool:
    """Return whether an address becomes a live link."""
    return href.lower().startswith(_LIVE)


class Notation(NamedTuple):
    """How texts are written: `escape` writes one without markup, `live` a link with target and label."""

    escape: Callable[[str], str]
    live: Callable[[str, str], str]


def _live(href: str, label: str) -> str:
    target, words = escape(href), escape(label)
    return f"<{target}|{words}>" if words not in ("", target) else f"<{target}>"


MRKDWN = Notation(escape, _live)


def link(href: str, label: str, notation: Notation = MRKDWN) -> str:
    """Return a live link to a web or mail address; for any other target, label and target as text.

    If the label looks like an address other than the target, the target is shown too.
    """
    shown = " ".join(label.split())
    if not is_live(href):
        tells = bool(href) and href != shown and not href.startswith(_TELLS_NOTHING)
        return notation.escape(f"{shown} ({href})".lstrip() if tells else shown)
    target = href.translate(_PERCENT)
    if len(escape(target)) + len(escape(shown)) > LONGEST:
        return notation.escape(f"{shown} ({target})" if shown else target)
    if _misleads(shown, href):
        return f"{notation.escape(shown)} ({notation.live(target, '')})"
    return notation.live(target, shown)


def with_links(text: str, notation: Notation = MRKDWN) -> str:
    """Escape a text and link each web address in it, so that Slack finds no markup inside an address."""
    out: list[str] = []
    at = 0
    for found in _ADDRESS.finditer(text):
        address = _without_ending(found[0])
        if len(escape(address)) <= LONGEST:
            out += [notation.escape(text[at : found.start()]), notation.live(address, "")]
            at = found.start() + len(address)
    return "".join([*out, notation.escape(text[at:])])


def hide_used_definitions(root: SyntaxTreeNode) -> None:
    """Hide the definitions that links use, apart from sources: those with a number, such as `[1]` or `[^1]`.

    Of two definitions with the same label, the first is the used one.
    """
    nodes = list(root.walk())
    used = {node.meta.get("label") for node in nodes if node.type in ("link", "image")}
    for node in nodes:
        if node.type == "definition" and node.meta["id"] in used and node.token is not None:
            used.remove(node.meta["id"])
            node.token.hidden = True
            node.meta["is_source"] = _NUMBER.fullmatch(node.meta["label"]) is not None


def is_source(node: SyntaxTreeNode) -> bool:
    """Return whether a node is the source of a citation in the text."""
    return node.type == "definition" and node.meta.get("is_source") is True


def sources(nodes: Nodes, notation: Notation = MRKDWN) -> str:
    """Return one line with the numbers of sources and links to them; blank: there are none."""
    found = [f"{node.meta['label'].strip('^')} {_source(node, notation)}" for node in nodes if is_source(node)]
    return f"Sources: {' · '.join(found)}" if found else ""


def _source(node: SyntaxTreeNode, notation: Notation) -> str:
    url = node.meta["url"]
    place = _SCHEME.sub("", url).rstrip("/")
    short = place if len(place) <= _SOURCE_CHARS else f"{place[: _SOURCE_CHARS - 1]}…"
    return link(url, node.meta["title"] or short, notation)


def definition(node: SyntaxTreeNode, notation: Notation = MRKDWN) -> str:
    """Return a definition as written, escaped, with its target as a live link."""
    label, title, url = " ".join(node.meta["label"].split()), node.meta["title"], node.meta["url"]
    target = link(url, "", notation) if is_live(url) else notation.escape(normalizeLinkText(url))
    more = notation.escape(f' "{title}"') if title else ""
    return f"{notation.escape(f'[{label}]: ')}{target}{more}"


def _without_ending(address: str) -> str:
    """Strip the punctuation of the surrounding sentence from an address."""
    surplus = {closing: address.count(closing) - address.count(opening) for closing, opening in _BRACKETS.items()}
    end = len(address)
    while end and ((last := address[end - 1]) in _AFTER_ADDRESS or surplus.get(last, 0) > 0):
        if last in surplus:
            surplus[last] -= 1
        end -= 1
    return address[:end]


def _misleads(label: str, href: str) -> bool:
    """Return whether a label names a host or mail address other than the link's target."""
    shown = "".join(c for c in _as_read(label) if c.isprintable())
    if shown == href.removeprefix("mailto:"):
        return False
    words = [word.removeprefix("mailto:") for word in _BETWEEN_WORDS.split(shown)]
    hosts = {host for word in words for host in _hosts(word)}
    if not href.lower().startswith("mailto:"):
        return bool(hosts) and hosts != {_target(href)}
    address = href[len("mailto:") :].lower()
    mailboxes = {word.lower() for word in words if "@" in word.strip("@")}
    return not mailboxes <= {address} or (bool(hosts) and hosts != {_mail_host(address)})


def _as_read(text: str) -> str:
    """Replace look-alikes of dots and plain letters (NFKC)."""
    return unicodedata.normalize("NFKC", text).replace(_DOT, ".")


def _hosts(word: str) -> list[str]:
    """Return all hosts in a word that may be an address, also before an @, where they can mislead."""
    authority = _AFTER_AUTHORITY.split(word.split("://", 1)[-1].lstrip("/"), maxsplit=1)[0]
    is_whole = "://" in word
    parts = [_PORT.sub("", part) for part in authority.split("@")]
    found = [host for part in parts for host in _HOST.findall(part) or [part * is_whole]]
    return [_plain(host) for host in found if host]


def _target(href: str) -> str:
    """Return the host of a web address; blank if browsers may disagree on it."""
    authority = _AFTER_AUTHORITY.split(href.split("://", 1)[1].lstrip("/\\"), maxsplit=1)[0]
    host = _as_read(unquote(_PORT.sub("", authority.rpartition("@")[2])))
    return _plain(host) if _PLAIN_HOST.fullmatch(host) else ""


def _mail_host(address: str) -> str:
    """Return the host of a mail address; blank if the address has more parts, such as copies."""
    host = _as_read(unquote(address)).partition("@")[2]
    return _plain(host) if _PLAIN_HOST.fullmatch(host) else ""


def _plain(host: str) -> str:
    return host.lower().removeprefix("www.").rstrip(".")
