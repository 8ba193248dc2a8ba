"""The model reads the result of each call: once, its own, and no more of it than it may."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from simulated.posts import text_of

if TYPE_CHECKING:
    from simulated.scenario import Scenario

    from .loop_options import Terms
    from .runs import RunRecord
    from .tool_executions import Uses

    Row = dict[str, Any]

_MARK = re.compile(r"<r (use-\d+)>")
_MARKER = re.compile(r"\[… \d+ characters are left out here …\]")
_MARKER_CHARS = 60
# What a row with late results says besides: of each call, and first of all.
_LATE_CHARS = 80
# A hook may say more, or something else.
_MEDDLING = {
    "denying hooks",
    "modifying hooks",
    "asking hooks",
    "broken hooks",
    "slow hooks",
    "hanging hooks",
    "deaf hooks",
}


def mark_of(mark: str) -> str:
    """By which the result of this use is known."""
    return f"<r {mark}>"


class Results:
    """Compares what tools returned with the rows of their calls."""

    def __init__(self, scene: Scenario, terms: Terms, uses: Uses) -> None:
        self._scene = scene
        self._terms = terms
        self._uses = uses
        self._known: list[str] = []

    def row_added(self, row: Row) -> None:
        late = (row.get("metadata") or {}).get("results")
        if row["role"] != "tool" and late is None:
            return
        self._check_size(row, late)
        found = _MARK.findall(text_of(row))
        ids = late or [row["tool_call_id"]]
        for mark in found:
            use = self._uses.of(mark)
            if use is None or use.call_id not in ids:
                self._scene.blame(f"The result of {mark} is in the row of {', '.join(ids)}.")
            if mark in self._known:
                self._scene.blame(f"The result of {mark} was told twice.")
            self._known.append(mark)

    def returned(self, run: RunRecord) -> None:
        if run.ended_by_itself and not _MEDDLING & self._scene.features and not self._uses.store_failed:
            for use in self._uses.finished():
                if use.mark not in self._known:
                    self._scene.blame(f"The tool '{use.tool}' has a result, and the model cannot read it.")

    def _check_size(self, row: Row, late: list[str] | None) -> None:
        text, whole = text_of(row), (row.get("metadata") or {}).get("whole", {})
        wholes = list(whole.values()) if isinstance(whole, dict) else [whole]
        most = self._terms.max_result_chars + _MARKER_CHARS
        if late is not None:
            most = (most + _LATE_CHARS) * len(late) + _LATE_CHARS
        if len(text) > most:
            self._scene.blame(f"The row of a result has {len(text)} characters; the most is {most}.")
        if len(_MARKER.findall(text)) != len(wholes):
            self._scene.blame("A result was capped, and the model cannot see that.")
        if wholes:
            self._scene.count("result capped")
        if any(isinstance(each, str) and len(each) <= self._terms.max_result_chars for each in wholes):
            self._scene.blame("The whole of a capped result is no longer than what is shown of it.")
