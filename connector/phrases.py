"""What the status message says, in plain words."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

_GEAR = "⚙️"
WORKING = f"{_GEAR} Working…"
_LABEL_CHARS = 120


@dataclass(slots=True)
class Activity:
    """What a run is doing, as its progress events tell it."""

    _tools: dict[str, str] = field(default_factory=dict)
    _thinking: bool = False
    _incorporating: bool = False

    def hear(self, event: str, data: dict[str, Any]) -> None:
        match event:
            case "thinking":
                self._thinking = True
                self._tools.clear()
            case "tool:start":
                self._thinking = self._incorporating = False
                self._tools[data.get("id", data["tool"])] = data.get("label") or f"Using {data['tool']}"
            case "tool:end":
                self._tools.pop(data.get("id", data["tool"]), None)
            case "injection:applied":
                self._incorporating = True

    def phrase(self) -> str:
        """The status line. Taking input in is told until the next tool starts, so that it can be read."""
        if self._tools:
            labels = list(self._tools.values())
            more = f" ({len(labels)} tools active)" if len(labels) > 1 else ""
            return f"{_GEAR} {labels[0][:_LABEL_CHARS]}…{more}"
        if self._incorporating:
            return f"{_GEAR} Incorporating your input…"
        return f"{_GEAR} Thinking…" if self._thinking else WORKING


def stopped(by: str, waiting: int) -> str:
    text = f"🛑 Stopped by {by}."
    return f"{text} {_waiting(waiting)}" if waiting else text


def failed(sentence: str, waiting: int) -> str:
    text = f"⚠️ {sentence}"
    return f"{text} {_waiting(waiting)}" if waiting else text


NO_ANSWER = "I finished without anything to say."
NOTHING_RUNS = "Nothing is running here."
NO_TEXT = "Yes? Write what I can do for you."
UNEXPECTED = "Something went wrong on my side. Write again to try once more; the log of the service has the details."


def _waiting(count: int) -> str:
    who = "1 message has" if count == 1 else f"{count} messages have"
    return f"{who} not been read yet; your next message takes them along."
