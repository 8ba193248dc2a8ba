"""Links that lead where they say, and nowhere else."""

from __future__ import annotations

import re
import unicodedata

# A link may not be cut: one that is longer than this is written as text.
LONGEST = 1400
_LIVE = ("https://", "http://", "mailto:")
_TELLS_NOTHING = ("#", "data:")
_HOST = re.compile(r"(?:[\w-]+\.)+(?:[^\W\d_]{2,}|xn--[\w-]+)|\d+(?:\.\d+){3}")
_BETWEEN_WORDS = re.compile(r"[\s()\[\]{}<>\"'|,;]+")
_ADDRESS = re.compile(r"https?://[^\s<>|`\"\x00-\x1f]+", re.IGNORECASE)
_AFTER_ADDRESS = ".,;:!?'*_~"
_PERCENT = str.maketrans({"|": "%7C", "<": "%3C", ">": "%3E", "`": "%60"})


def escape(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def link(href: str, label: str) -> str:
    """A live link to the web or a mail address; to anything else, both as text.

    Where the label looks like an address that is not the target's, people see the target too.
    """
    shown = " ".join(label.split())
    if not href.lower().startswith(_LIVE):
        tells = bool(href) and href != shown and not href.startswith(_TELLS_NOTHING)
        return escape(f"{shown} ({href})".lstrip() if tells else shown)
    target, words = escape(href.translate(_PERCENT)), escape(shown)
    if len(target) + len(words) > LONGEST:
        return f"{words} ({target})" if words else target
    if _misleads(shown, href):
        return f"{words} (<{target}>)"
    return f"<{target}|{words}>" if words not in ("", target) else f"<{target}>"


def with_links(text: str) -> str:
    """A text, escaped, with a link for each web address in it: nothing in an address is taken for markup then."""
    out: list[str] = []
    at = 0
    for found in _ADDRESS.finditer(text):
        address = _without_ending(found[0])
        if len(address) <= LONGEST:
            out += [escape(text[at : found.start()]), f"<{escape(address)}>"]
            at = found.start() + len(address)
    return "".join([*out, escape(text[at:])])


def _without_ending(address: str) -> str:
    """An address without the punctuation of the sentence that it stands in."""
    while address:
        shorter = address.rstrip(_AFTER_ADDRESS)
        if shorter.endswith(")") and shorter.count(")") > shorter.count("("):
            shorter = shorter[:-1]
        if shorter.endswith("]") and shorter.count("]") > shorter.count("["):
            shorter = shorter[:-1]
        if shorter == address:
            break
        address = shorter
    return address


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
