"""What the status message says, in plain words."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, NamedTuple

_GEAR = "⚙️"
_LABEL_CHARS = 120
_TROUBLE = {
    "rate_limit": "The model's service is busy",
    "unavailable": "The model's service is not available",
    "timeout": "The model does not answer",
}
_UNKNOWN_TROUBLE = "The model's service failed"


class _Tool(NamedTuple):
    """A tool call at work: what it is, and how far it says that it has come."""

    label: str
    words: str = ""

    @property
    def phrase(self) -> str:
        parts = [one_line(part, _LABEL_CHARS).rstrip(".…") for part in (self.label, self.words) if part]
        return f"{' — '.join(parts)}…"


@dataclass(slots=True)
class _Remark:
    """Something to say for as long as it is true, and until people have read it once."""

    text: str
    is_over: bool = False
    is_told: bool = False

    @property
    def stands(self) -> bool:
        return not (self.is_over and self.is_told)


@dataclass(slots=True)
class Activity:
    """What a run is doing, as its progress events tell it.

    Much of it is over faster than a status message may be edited, so the first tool of the latest batch, the taking in
    of input and trouble with the model's service are told once even when they have passed.
    """

    _tools: dict[str, _Tool] = field(default_factory=dict)
    _latest: _Tool | None = None
    _is_thinking: bool = False
    _taking_in: _Remark | None = None
    _trouble: _Remark | None = None

    def hear(self, event: str, data: dict[str, Any]) -> None:
        match event:
            case "thinking":
                self._is_thinking = True
                self._pass(self._trouble)
            case "tool:start" | "tool:progress" | "tool:end":
                self._hear_of_tool(event, data.get("id", data["tool"]), data)
            case "injection:applied":
                self._taking_in = _Remark("Incorporating your input…")
            case "retrying":
                self._trouble = _Remark(_retrying(data))
            case "fallback":
                self._trouble = _Remark(f"Going on with {data['to']}…")
            case "compacting":
                self._trouble = _Remark("Summing up what was said so far…")

    def told(self) -> None:
        """Take note that people have read the phrase as it stands."""
        self._latest = None
        for remark in (self._trouble, self._taking_in):
            if remark is not None:
                remark.is_told = True

    def phrase(self) -> str:
        remarks = (self._trouble, self._taking_in)
        parts = [remark.text for remark in remarks if remark is not None and remark.stands]
        tool = next(iter(self._tools.values()), self._latest)
        if tool is not None:
            parts.append(tool.phrase)
        if len(self._tools) > 1:
            parts.append(f"({len(self._tools)} tools active)")
        if not parts:
            parts.append("Thinking…" if self._is_thinking else "Working…")
        return " ".join([_GEAR, *parts])

    def _hear_of_tool(self, event: str, call_id: str, data: dict[str, Any]) -> None:
        if event == "tool:start":
            self._pass(self._taking_in)
            self._pass(self._trouble)
            tool = self._tools[call_id] = _Tool(data.get("label") or f"Using {data['tool']}")
            if self._is_thinking:  # the first of its batch stands for it
                self._latest, self._is_thinking = tool, False
        elif event == "tool:end":
            self._tools.pop(call_id, None)
        elif call_id in self._tools:
            # Whoever says something comes first: the others have nothing new to tell.
            tool = self._tools.pop(call_id)._replace(words=str(data["text"]))
            self._tools = {call_id: tool, **self._tools}

    @staticmethod
    def _pass(remark: _Remark | None) -> None:
        if remark is not None:
            remark.is_over = True


def one_line(text: str, most: int) -> str:
    """A text on one line, cut where it is longer than that many characters."""
    line = " ".join(text.split())
    return line if len(line) <= most else f"{line[: most - 1].rstrip()}…"


def _retrying(data: dict[str, Any]) -> str:
    trouble = _TROUBLE.get(str(data.get("reason")), _UNKNOWN_TROUBLE)
    in_s = math.ceil(data["delay_s"])
    when = f" in {in_s} s" if in_s > 0 else ""
    return f"{trouble}; trying again{when} ({data['attempt']} of {data['max_attempts']})…"
