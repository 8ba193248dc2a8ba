"""What the model says reaches the people once: as an interim text, or as the answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from simulated.judge.runs import RunRecord
    from simulated.scene import Scene


class Said:
    """Compares the rows of the model with what was shown of them."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self.begin()

    def begin(self) -> None:
        self._rows: list[str] = []
        self._shown: list[str] = []

    def row_added(self, row: dict[str, Any]) -> None:
        from_a_hook = (row.get("metadata") or {}).get("source") == "hook"
        if row["role"] == "assistant" and not row.get("tool_calls") and not from_a_hook:
            self._rows.append(_spoken(row))

    def shown(self, text: str) -> None:
        self._shown.append(text)

    def end(self, run: RunRecord) -> None:
        if run.answer is None or run.answer.startswith("Operation denied"):
            return
        shown = [_bare(text) for text in (*self._shown, run.answer) if text.strip()]
        rows = [_bare(text) for text in self._rows if text.strip()]
        if shown != rows:
            self._scene.blame(f"The model said {rows}; people were shown {shown}.")


def _spoken(row: dict[str, Any]) -> str:
    content = row["content"]
    return content if isinstance(content, str) else "".join(block.get("text", "") for block in content)


def _bare(text: str) -> str:
    return "".join(text.split())
