"""Parse the verdict in a reflection agent's answer."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

# `score: 0.8` in a text; a number without "score" is not a verdict.
_SCORE = re.compile(r"\bscore\b\W{0,5}(?P<score>\d+(?:\.\d+)?)(?P<of>\s*(?:/|out of|%))?", re.IGNORECASE)
_MAX_CHARS = 2000


@dataclass(frozen=True, slots=True)
class Verdict:
    """A score from 0 (useless) to 1 (exactly right), and its reason."""

    score: float
    comment: str

    def as_note(self, subject: str) -> str:
        """Return the note for the agent whose call was judged."""
        return f"[Reflection on {subject}: {self.score:g} of 1. {self.comment}".rstrip() + "]"


def verdict_in(answer: str) -> Verdict | None:
    """Parse a JSON object with a `score`, or a text that names a score. Returns None if there is neither."""
    for given in _objects_in(answer):
        if "score" in given:
            return _verdict(given["score"], given.get("comment"))
    named = _SCORE.search(answer)
    return None if named is None or named["of"] else _verdict(named["score"], answer)


def _objects_in(answer: str) -> list[dict[str, Any]]:
    """Return the JSON objects in a text, ten at most."""
    found: list[dict[str, Any]] = []
    decoder, at = json.JSONDecoder(), answer.find("{")
    while at >= 0 and len(found) < 10:
        try:
            given, end = decoder.raw_decode(answer, at)
        except (ValueError, RecursionError):
            end = at + 1
        else:
            found.append(given)
        at = answer.find("{", end)
    return found


def _verdict(score: Any, comment: Any) -> Verdict | None:
    if isinstance(score, bool) or not isinstance(score, int | float | str):
        return None
    try:
        value = float(score)
    except (ValueError, OverflowError):
        return None
    if not 0 <= value <= 1:  # also true for NaN
        return None
    text = comment.strip() if isinstance(comment, str) else ""
    return Verdict(value, text[:_MAX_CHARS])
