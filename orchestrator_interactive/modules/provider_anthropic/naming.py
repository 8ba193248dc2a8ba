"""Tool names and call ids that the API takes. What it takes already stays as it is."""

from __future__ import annotations

import re
from hashlib import sha256

_TAKEN = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_REFUSED = re.compile(r"[^a-zA-Z0-9_-]")
_LONGEST_STEM = 55


def wire_name(name: str) -> str:
    """A name or id as the API takes it: the same for the same input, and different for different ones."""
    if _TAKEN.fullmatch(name):
        return name
    digest = sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    return f"{_REFUSED.sub('_', name)[:_LONGEST_STEM]}_{digest}"
