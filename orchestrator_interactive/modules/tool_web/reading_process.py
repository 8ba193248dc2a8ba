"""Turn pages into Markdown in a separate process.

The parsers run for minutes on some pages, do not release the interpreter lock, and need more than a gigabyte. A process
can be killed, and its memory is limited.

`argv[1]` is the descriptor of a Unix socket. Each request is a line of JSON, a `Job`, and the `size` bytes of the body.
The replies are lines of JSON: `{"begun": true}`, then one `Reading`, `{"allowed": bool}`, or `{"error": kind}`.
"""

from __future__ import annotations

import codecs
import json
import os
import re
import resource
import signal
import socket
import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypedDict

if TYPE_CHECKING:
    from collections.abc import Iterator

# After this time the plain text of a page is returned. The parent kills the process later, see `reading`.
_EXTRACTED_WITHIN_S = 4.0
_MAX_CPU_S = 30
_MAX_MEMORY_BYTES = 1_500_000_000
# A process that has used more ends after the reply: it would keep it.
_MAX_KEPT_KB = 400_000
_IDLE_S = 60.0
_NICENESS = 5
_MAX_NAME_CHARS = 300
_META_BYTES = 2_048
_GUESSED_BYTES = 20_000

# Encodings of pages. Others of Python are no encodings of texts, or take quadratic time.
_ENCODINGS = re.compile(
    r"utf-(?:8|16|16-le|16-be)|ascii|iso8859-\d{1,2}|cp(?:125\d|866|874|932|949|950)|koi8-[ru]|mac-(?:roman|cyrillic)"
    r"|shift_jis|euc_(?:jp|kr)|iso2022_jp|gb(?:2312|k|18030)|big5|tis-620"
)
# As browsers read them.
_READ_AS = {"ascii": "cp1252", "iso8859-1": "cp1252", "gb2312": "gb18030", "gbk": "gb18030"}
_BOMS = {codecs.BOM_UTF8: "utf-8-sig", codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16"}
_META = re.compile(
    rb"(?i)<meta[^>]{0,200}?charset\s*=\s*[\"']?([\w.:-]{1,40})"
    rb"|<\?xml[^>]{0,100}?encoding\s*=\s*[\"']([\w.:-]{1,40})"
)
_CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")
# Characters that no one sees: marks of direction, selectors, and tags, which can spell a whole text.
INVISIBLE = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b\u200e\u200f\u202a-\u202e\u2060-\u206f\u3164\ufeff"
    "\uffa0\ufff9-\ufffb\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)
_HIDING = re.compile(
    r"(?i)display\s*:\s*none|visibility\s*:\s*hidden|(?:opacity|font-size)\s*:\s*0(?:px|em|rem|pt|%)?\s*(?:;|!|$)"
)
_BLOCKS = frozenset(
    [
        *("address", "article", "aside", "blockquote", "br", "dd", "details", "div", "dl", "dt", "fieldset"),
        *("figcaption", "figure", "footer", "form", "h1", "h2", "h3", "h4", "h5", "h6", "header", "hr", "li", "main"),
        *("nav", "ol", "option", "p", "pre", "section", "summary", "table", "td", "th", "title", "tr", "ul"),
    ]
)


class Job(TypedDict):
    """A request. `kind` is `html`, `text` or `robots`; `agent` is the name for rules of `robots`.

    `charset` is the declared one, or blank; `is_cut`: the end of the body is missing.
    """

    kind: str
    url: str
    charset: str
    agent: str
    is_cut: bool
    size: int


class Reading(TypedDict):
    """The text of a page, as Markdown, with its title and date, which may be blank."""

    title: str
    date: str
    text: str


class _TooLong(BaseException):
    """The time for the extraction is over. No `Exception`, which the library would catch."""


def decoded(body: bytes, charset: str, *, is_html: bool, is_cut: bool) -> str:
    """Decode a body by its byte order mark, its declared encoding, as UTF-8, or by a guess."""
    for encoding in _encodings(body, charset, is_html=is_html):
        with suppress(UnicodeError):
            return codecs.getincrementaldecoder(encoding)("strict").decode(body, final=not is_cut)
    return body.decode("utf-8", "replace")


def _encodings(body: bytes, charset: str, *, is_html: bool) -> Iterator[str]:
    yield from (name for mark, name in _BOMS.items() if body.startswith(mark))
    meta = _META.search(body[:_META_BYTES]) if is_html else None
    for label in (charset, (meta[1] or meta[2]).decode() if meta else ""):
        with suppress(LookupError, ValueError):
            name = codecs.lookup(label).name
            if _ENCODINGS.fullmatch(name):
                yield _READ_AS.get(name, name)
    yield "utf-8"
    from charset_normalizer import from_bytes  # noqa: PLC0415 - takes long, and few pages need it

    guess = from_bytes(body[:_GUESSED_BYTES]).best()
    if guess is not None and _ENCODINGS.fullmatch(name := codecs.lookup(guess.encoding).name):
        yield name
    yield "cp1252"


def read_html(source: str, url: str) -> Reading:
    """Return the main text of a page, or else all its visible text."""
    import trafilatura  # noqa: PLC0415 - takes long; other texts do not need it
    from lxml import etree, html  # noqa: PLC0415

    began_s = time.monotonic()
    parser = html.HTMLParser(encoding="utf-8", remove_comments=True, remove_pis=True, no_network=True)
    try:
        tree = html.fromstring(source.encode("utf-8", "replace") or b"<html/>", parser=parser)
    except etree.ParserError:  # there are no elements
        return {"title": "", "date": "", "text": ""}
    for element in list(tree.iter()):
        if _is_hidden(element) and element.getparent() is not None:
            element.drop_tree()
    tree.make_links_absolute(url, handle_failures="ignore")  # the library takes all for relative to the host
    for link in tree.iter("a"):
        if not link.get("href", "").startswith(("http://", "https://", "mailto:")):
            link.attrib.pop("href", None)
    title, date, text = " ".join(tree.findtext(".//title", "").split()), "", ""
    signal.signal(signal.SIGALRM, _raise_too_long)
    try:
        signal.setitimer(signal.ITIMER_REAL, max(0.1, began_s + _EXTRACTED_WITHIN_S - time.monotonic()))
        found: Any = trafilatura.bare_extraction(
            tree, url=url, include_links=True, include_formatting=True, with_metadata=True
        )
        if found is not None:
            title, date = found.title or title, found.date or ""
            text = "\n\n".join(filter(None, (found.text, found.comments)))
    except (_TooLong, Exception):  # noqa: BLE001 - the plain text has to do
        text = ""
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    return {"title": title, "date": date, "text": text if text.strip() else _plain(tree)}


def _raise_too_long(*_: object) -> None:
    raise _TooLong


def _is_hidden(element: Any) -> bool:
    if element.tag in {"script", "style", "template"} or not isinstance(element.tag, str):
        return True
    if element.tag in {"html", "body"}:  # shown by a script
        return False
    return "hidden" in element.attrib or bool(_HIDING.search(element.get("style", "")))


def _plain(tree: Any) -> str:
    """Return the text of all elements, with a line for each block."""
    from lxml import etree  # noqa: PLC0415

    parts: list[str] = []
    for event, element in etree.iterwalk(tree, events=("start", "end")):
        if element.tag in _BLOCKS:
            parts.append("\n")
        parts.append((element.text if event == "start" else element.tail) or "")
    lines = (" ".join(line.split()) for line in "".join(parts).split("\n"))
    return "\n".join(filter(None, lines))


def robots_allow(text: str, url: str, agent: str) -> bool:
    """Return whether the rules of a robots.txt allow an address."""
    from protego import Protego  # noqa: PLC0415 - only this kind of job needs it

    return bool(Protego.parse(text).can_fetch(url, agent))


def _done(job: Job, body: bytes) -> Any:
    if job["kind"] == "robots":
        return {"allowed": robots_allow(body.decode(errors="replace"), job["url"], job["agent"])}
    is_html = job["kind"] == "html"
    text = _CONTROL.sub("", decoded(body, job["charset"], is_html=is_html, is_cut=job["is_cut"]))
    reading: Reading = read_html(text, job["url"]) if is_html else {"title": "", "date": "", "text": text}
    return {
        "title": INVISIBLE.sub("", reading["title"])[:_MAX_NAME_CHARS],
        "date": reading["date"],
        "text": INVISIBLE.sub("", reading["text"]).strip("\n"),
    }


def _limit(what: int, limit: int) -> None:
    _, hard = resource.getrlimit(what)
    with suppress(ValueError, OSError):  # not on this system
        resource.setrlimit(what, (limit if hard == resource.RLIM_INFINITY else min(limit, hard), hard))


def main() -> None:
    os.nice(_NICENESS)
    _limit(resource.RLIMIT_AS, _MAX_MEMORY_BYTES)
    with socket.socket(fileno=int(sys.argv[1])) as parent, parent.makefile("rb") as requests:
        parent.settimeout(_IDLE_S)

        def send(reply: Any) -> None:
            parent.sendall(json.dumps(reply).encode() + b"\n")

        while line := requests.readline():
            job: Job = json.loads(line)
            body = requests.read(job["size"])
            if job["kind"] == "html":
                import trafilatura  # noqa: F401, PLC0415 - takes long: the time begins after this
            send({"begun": True})
            usage = resource.getrusage(resource.RUSAGE_SELF)
            # Ends the process if the parent has died.
            _limit(resource.RLIMIT_CPU, int(usage.ru_utime + usage.ru_stime) + _MAX_CPU_S)
            try:
                send(_done(job, body))
            except (MemoryError, RecursionError, ValueError) as e:
                send({"error": type(e).__name__})
            if resource.getrusage(resource.RUSAGE_SELF).ru_maxrss > _MAX_KEPT_KB:
                return


if __name__ == "__main__":
    with suppress(OSError):  # idle for too long, or the parent has ended
        main()
