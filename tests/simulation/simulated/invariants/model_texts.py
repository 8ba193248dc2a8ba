"""What the model says reaches the people once: as an interim text, or as the answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .tool_executions import INTERRUPTED

if TYPE_CHECKING:
    from simulated.invariants.runs import RunRecord
    from simulated.scenario import Scenario

# Stands in the log where a model refused to answer without a word.
_DECLINED = "[No answer: the request was refused.]"


class Said:
    """Compares the rows of the model with what was shown of them.

    An answer that was cut at its length limit, and what the model went on with, are one text for people; whatever else
    comes between two answers parts them.
    """

    def __init__(self, scene: Scenario) -> None:
        self._scene = scene
        self.begin()

    def begin(self) -> None:
        self._texts: list[str] = [""]
        self._shown: list[str] = []
        self._finish_reason: str | None = None
        self._store_failed = False

    def excuse(self) -> None:
        """The store failed; people may be shown what it did not keep."""
        self._store_failed = True

    def answered(self, finish_reason: str | None) -> None:
        """The agent has told of an answer; its row follows."""
        self._finish_reason = finish_reason

    def row_added(self, row: dict[str, Any]) -> None:
        metadata = row.get("metadata") or {}
        if row["role"] == "assistant" and metadata.get("source") != "hook":
            has_calls = bool(row.get("tool_calls"))
            if has_calls:
                self._texts.append("")
            if not has_calls or self._finish_reason == INTERRUPTED:
                self._texts[-1] += _spoken(row)
        elif "injections" in metadata or "results" in metadata:
            self._texts.append("")

    def shown(self, text: str) -> None:
        self._shown.append(text)

    def end(self, run: RunRecord) -> None:
        if run.cancelled_s is not None or run.was_denied or run.was_abandoned:
            return
        if run.error is not None and self._store_failed:
            return
        shown = [_bare(text) for text in (*self._shown, run.answer or "") if text.strip()]
        said = [_bare(text) for text in self._texts if text.strip()]
        if shown != said:
            self._scene.blame(f"The model said {said}; people were shown {shown}.")


def _spoken(row: dict[str, Any]) -> str:
    content = row["content"]
    text = content if isinstance(content, str) else "".join(block.get("text", "") for block in content)
    return "" if text == _DECLINED else text


def _bare(text: str) -> str:
    return "".join(text.split())
