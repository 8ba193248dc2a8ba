"""Thinking and effort parameters by model generation.

Source: "Troubleshooting thinking" and "What's new in Claude Sonnet 5.5" on platform.claude.com. Models up to 4.5 only
accept `enabled` with a budget, 4.6 also `adaptive`, and later ones only `adaptive`. Without the field, models up to 4.8
do not think. Of the later models, Sonnet 5 accepts `disabled` and Sonnet 5.5 `between_tools`; the others always think.
"""

from __future__ import annotations

import re
from typing import Any

_NAME = re.compile(r"claude-([a-z]+)-(\d+)(?:-(\d{1,2}))?(?:-\d{8})?")
_OLD_NAME = re.compile(r"claude-(\d)(?:-(\d))?-([a-z]+)(?:-\d{8}|-latest)?")

_FIRST_ADAPTIVE = (4, 6)
_WITHOUT_THINKING: dict[tuple[str, tuple[int, int]], dict[str, Any]] = {
    ("sonnet", (5, 0)): {"type": "disabled"},
    ("sonnet", (5, 5)): {"type": "between_tools"},
}
_EFFORT = {"minimal": "low", "low": "low", "medium": "medium", "high": "high", "xhigh": "xhigh", "max": "max"}
_EFFORT_THAT_NEEDS_THINKING = ("xhigh", "max")


def thinking_for(model: str, budget_tokens: int | None, effort: str | None) -> dict[str, Any] | None:
    """Return the `thinking` parameter; `None` to omit it. `budget_tokens=None` requests no thinking."""
    family, version = generation(model)
    if budget_tokens is None:
        return None if effort in _EFFORT_THAT_NEEDS_THINKING else _WITHOUT_THINKING.get((family, version))
    if version < _FIRST_ADAPTIVE:
        return {"type": "enabled", "budget_tokens": budget_tokens}
    return {"type": "adaptive", "display": "summarized"}


def effort_for(model: str, reasoning_effort: str | None) -> str | None:
    """Return `output_config.effort`; `None` if the model does not support it."""
    family, version = generation(model)
    if version < _FIRST_ADAPTIVE and (family, version) != ("opus", (4, 5)):
        return None
    return _EFFORT.get(reasoning_effort or "")


def generation(model: str) -> tuple[str, tuple[int, int]]:
    """Return family and version; an unknown name counts as newer than all known models."""
    if found := _NAME.fullmatch(model):
        return found[1], (int(found[2]), int(found[3] or 0))
    if found := _OLD_NAME.fullmatch(model):
        return found[3], (int(found[1]), int(found[2] or 0))
    return "", (99, 0)
