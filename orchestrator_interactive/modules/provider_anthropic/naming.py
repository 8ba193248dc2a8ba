"""Convert tool names and call ids to the API's character set; valid ones stay unchanged."""

from __future__ import annotations

import re
from hashlib import sha256

_VALID = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_INVALID = re.compile(r"[^a-zA-Z0-9_-]")
_MAX_STEM = 55


def api_name(name: str) -> str:
    """Return a valid name or id; deterministic, and distinct for distinct inputs."""
    if _VALID.fullmatch(name):
        return name
    digest = sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    return f"{_INVALID.sub('_', name)[:_MAX_STEM]}_{digest}"
