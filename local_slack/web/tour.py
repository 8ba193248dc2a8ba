"""The guided tour that the page offers: a file of steps."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from local_slack.workspace.errors import LocalSlackError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from local_slack.json_limits import Json

_TEXTS = ("title", "text", "say", "channel", "do")
_DO = ("stop", "kill")
# A step waits for a status of the agent session, a reaction of the app, or words of its message.
_UNTIL = ("status", "reaction", "words")
_STATUSES = ("processing", "suspended", "active", "closed")
_FORM = 'A tour is {"title", "text", "end", "steps": [{"title", "text", "until": {"words": "…"}, "say": "…"}]}'


def read_tour(path: Path) -> Json:
    """Read a tour from a JSON file.

    Raises:
        LocalSlackError: it cannot be read, or is not a tour; its text names the step.
    """
    try:
        tour = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as e:
        raise LocalSlackError(f"cannot read the tour {path}: {e}. {_FORM}.") from e
    if problem := _problem_of(tour):
        raise LocalSlackError(f"the tour {path} cannot be used: {problem}. {_FORM}.")
    found: Json = tour
    return found


def _problem_of(tour: object) -> str:
    if not isinstance(tour, dict) or not isinstance(tour.get("steps"), list) or not tour["steps"]:
        return "it has no list of steps"
    if missing := [key for key in ("title", "text", "end") if not isinstance(tour.get(key), str)]:
        return f"it has no text `{missing[0]}`"
    found = (
        (at, problem) for at, step in enumerate(tour["steps"], 1) for problem in _problems_of(step, is_first=at == 1)
    )
    return next((f"step {at}: {problem}" for at, problem in found), "")


def _problems_of(step: object, *, is_first: bool) -> Iterator[str]:
    if not isinstance(step, dict) or not {"title", "text", "until"} <= step.keys():
        yield "it needs `title`, `text` and `until`"
        return
    until = step["until"]
    yield from (f"unknown field `{key}`" for key in sorted(step.keys() - {*_TEXTS, "until"}))
    yield from (f"`{key}` is not a text" for key in _TEXTS if not isinstance(step.get(key, ""), str))
    if step.get("do", _DO[0]) not in _DO:
        yield f"`do` must be one of {', '.join(_DO)}"
    if is_first and not {"say", "channel"} <= step.keys():
        yield "the first one needs `say` and `channel`"
    if not isinstance(until, dict) or len(until) != 1 or not until.keys() <= set(_UNTIL):
        yield f"`until` needs one of {', '.join(_UNTIL)}"
    elif until.get("status", _STATUSES[0]) not in _STATUSES:
        yield f"`status` must be one of {', '.join(_STATUSES)}"
    elif not all(isinstance(value, str) and value for value in until.values()):
        yield "`until` waits for nothing"
