"""Parse JSON from outside with a limit on nesting, so that no later code exhausts the stack."""

from __future__ import annotations

import json
from typing import Any

Json = dict[str, Any]

# Levels of lists and objects in one frame, body or argument. Valid Slack payloads have fewer than 20.
MAX_NESTING = 100


def parse_json(text: str) -> Any:
    """Parse JSON.

    Raises:
        ValueError: it is not JSON, or nested more than MAX_NESTING levels deep.
    """
    try:
        value = json.loads(text)
    except RecursionError as e:
        raise ValueError("it is nested too deeply") from e
    if text.count("[") + text.count("{") > MAX_NESTING and _is_deeper(value):
        raise ValueError(f"it is nested more than {MAX_NESTING} levels deep")
    return value


def _is_deeper(value: Any) -> bool:
    level = [value]
    for _ in range(MAX_NESTING + 1):
        inside = (each.values() if isinstance(each, dict) else each for each in level if isinstance(each, dict | list))
        level = [child for children in inside for child in children]
    return bool(level)
