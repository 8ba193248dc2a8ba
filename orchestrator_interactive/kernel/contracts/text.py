"""Text that every store and API can encode."""

from __future__ import annotations


def whole(text: str) -> str:
    """Join the halves of characters (surrogates), and replace lone ones, which cannot be encoded, by U+FFFD."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text
