"""How each generation of Claude wants to be told about thinking and effort.

Source: "Troubleshooting thinking" and "What's new in Claude Sonnet 5.5" on platform.claude.com. Up to 4.5 a model takes
`enabled` with a budget only; from 4.6 on `adaptive`, from 4.7 on nothing else. Without the field the models up to 4.8
do not think; of the later ones Sonnet 5 can be told `disabled` and Sonnet 5.5 `between_tools`, the others always think.
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
    """The `thinking` parameter; `None` leaves it out. `budget_tokens=None` asks for no thinking."""
    family, version = generation(model)
    if budget_tokens is None:
        return None if effort in _EFFORT_THAT_NEEDS_THINKING else _WITHOUT_THINKING.get((family, version))
    if version < _FIRST_ADAPTIVE:
        return {"type": "enabled", "budget_tokens": budget_tokens}
    return {"type": "adaptive", "display": "summarized"}


def effort_for(model: str, reasoning_effort: str | None) -> str | None:
    """`output_config.effort`, where the model has it."""
    family, version = generation(model)
    if version < _FIRST_ADAPTIVE and (family, version) != ("opus", (4, 5)):
        return None
    return _EFFORT.get(reasoning_effort or "")


def generation(model: str) -> tuple[str, tuple[int, int]]:
    """Family and version; a name that says nothing counts as newer than all that are known."""
    if found := _NAME.fullmatch(model):
        return found[1], (int(found[2]), int(found[3] or 0))
    if found := _OLD_NAME.fullmatch(model):
        return found[3], (int(found[1]), int(found[2] or 0))
    return "", (99, 0)
