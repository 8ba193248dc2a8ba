"""What the status message says, in plain words."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

_GEAR = "⚙️"
_LABEL_CHARS = 120


@dataclass(slots=True)
class Activity:
    """What a run is doing, as its progress events tell it.

    Much of it is over faster than a status message may be edited, so the first tool of the latest batch and the taking
    in of input are told once even when they have passed.
    """

    _tools: dict[str, str] = field(default_factory=dict)
    _latest: str | None = None
    _thinking: bool = False
    _taking_in: bool = False
    _told_taking_in: bool = False

    def hear(self, event: str, data: dict[str, Any]) -> None:
        match event:
            case "thinking":
                self._thinking = True
            case "tool:start":
                label = data.get("label") or f"Using {data['tool']}"
                if self._thinking:  # the first of its batch stands for it
                    self._latest, self._thinking = label, False
                self._tools[data.get("id", data["tool"])] = label
                self._taking_in = self._taking_in and not self._told_taking_in
            case "tool:end":
                self._tools.pop(data.get("id", data["tool"]), None)
            case "injection:applied":
                self._taking_in, self._told_taking_in = True, False

    def told(self) -> None:
        """Take note that people have read the phrase as it stands."""
        self._latest, self._told_taking_in = None, self._taking_in

    def phrase(self) -> str:
        tool = next(iter(self._tools.values()), self._latest)
        parts = ["Incorporating your input…"] if self._taking_in else []
        if tool:
            parts.append(f"{tool[:_LABEL_CHARS]}…")
        if len(self._tools) > 1:
            parts.append(f"({len(self._tools)} tools active)")
        if not parts:
            parts.append("Thinking…" if self._thinking else "Working…")
        return " ".join([_GEAR, *parts])


def stopped(by: str, waiting: int) -> str:
    return _with_waiting(f"🛑 Stopped by {by}.", waiting)


def failed(sentence: str, waiting: int) -> str:
    return _with_waiting(f"⚠️ {sentence}", waiting)


def held_back(waiting: int) -> str:
    return _with_waiting("📨", waiting)


def shut_down(unread: int) -> str:
    text = "🛑 Stopped: the service is shutting down."
    if not unread:
        return text
    which = (
        "1 message was not read; please send it again"
        if unread == 1
        else f"{unread} messages were not read; please send them again"
    )
    return f"{text} {which} once it is back."


def not_posted(error: str) -> str:
    return (
        f"⚠️ I have an answer, but Slack does not take it ({error}). Whoever runs this bot finds the reason in its log."
    )


NO_ANSWER = "I finished without anything to say."
NOTHING_RUNS = "Nothing is running here."
NO_TEXT = "Yes? Write what I can do for you."
CLOSING = "The service is shutting down; please send it again once it is back."
UNEXPECTED = "Something went wrong on my side. Write again to try once more; the log of the service has the details."


def _with_waiting(text: str, count: int) -> str:
    if count == 0:
        return text
    if count == 1:
        return f"{text} 1 message has not been read yet; your next message takes it along."
    return f"{text} {count} messages have not been read yet; your next message takes them along."
