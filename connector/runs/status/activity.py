"""The current activity of a run, as text for its status message."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from connector import texts
from connector.formatting.content import counted, one_line, use_of
from connector.runs.status.todo_list import TODO_TOOL, TodoList, todo_of

_GEAR = "⚙️"
_LABEL_CHARS = 120
_PHRASE_CHARS = 500
_TROUBLE = {
    "rate_limit": "The model's service is busy",
    "unavailable": "The model's service is not available",
    "timeout": "The model does not answer",
}
_UNKNOWN_TROUBLE = "The model's service failed"


class _Tool(NamedTuple):
    """A running tool call: its label and its latest progress text (`progress`)."""

    label: str
    progress: str = ""
    todo: TodoList | None = None

    @property
    def phrase(self) -> str:
        parts = [one_line(part, _LABEL_CHARS).rstrip(".…") for part in (self.label, self.progress) if part]
        return f"{' — '.join(parts)}…"


@dataclass(slots=True)
class _Note:
    """A text that is shown while it applies, and at least once."""

    text: str
    is_over: bool = False
    is_shown: bool = False

    @property
    def is_visible(self) -> bool:
        return not (self.is_over and self.is_shown)


@dataclass(slots=True)
class Activity:
    """The activity of a run, updated from its progress events.

    Many activities end before the status message may be edited again. The first tool of the latest batch, injected
    input and provider errors are therefore shown once even if they are over.

    Args:
        todo: the agent's latest to-do list.
    """

    todo: TodoList = ()
    _tools: dict[str, _Tool] = field(default_factory=dict)
    _latest: _Tool | None = None
    _is_thinking: bool = False
    _stopping: _Note | None = None
    _injected: _Note | None = None
    _trouble: _Note | None = None
    _done: int = 0
    _failed: int = 0
    _read: int = 0
    _retries: int = 0
    _waiting: str = ""

    def on_event(self, event: str, data: dict[str, Any]) -> None:
        match event:
            case "waiting":
                self._waiting = texts.waits(**data)
            case "waited":
                self._waiting = ""
            case "thinking":
                self._is_thinking = True
                self._end_note(self._trouble)
            case "tool:start" | "tool:progress" | "tool:end":
                self._on_tool_event(event, data.get("id", data["tool"]), data)
            case "injection:applied":
                self._injected = _Note("Incorporating your input…")
                self._read += len(data.get("ids", ()))
            case "retrying":
                self._trouble = _Note(_retrying(data))
                self._retries += 1
            case "fallback":
                self._trouble = _Note(f"Switching to {one_line(str(data['to']), _LABEL_CHARS)}…")
            case "compacting":
                self._trouble = _Note("Summarizing the conversation so far…")

    def stop(self) -> None:
        """Record that a person asked the run to stop."""
        self._stopping = _Note("Stopping…")

    def mark_shown(self) -> None:
        """Record that the current phrase has been shown."""
        self._latest = None
        for note in (self._trouble, self._injected):
            if note is not None:
                note.is_shown = True

    @property
    def is_stopping(self) -> bool:
        return self._stopping is not None

    def phrase(self) -> str:
        """Return the current activity as one line."""
        if self._waiting and not self.is_stopping:
            return self._waiting
        notes = (self._stopping, self._trouble, self._injected)
        parts = [note.text for note in notes if note is not None and note.is_visible]
        tool = next(iter(self._tools.values()), self._latest)
        if tool is not None:
            parts.append(tool.phrase)
        if len(self._tools) > 1:
            parts.append(f"({len(self._tools)} tools active)")
        if not parts:
            parts.append("Thinking…" if self._is_thinking else "Working…")
        return one_line(" ".join([_GEAR, *parts]), _PHRASE_CHARS)

    def account(self) -> list[str]:
        """Return the finished work: counts of steps, messages read and retries."""
        failed = f", {self._failed} with an error" if self._failed else ""
        return [
            f"{noun}{more}"
            for count, noun, more in (
                (self._done, counted(self._done, "step"), f" done{failed}"),
                (self._read, counted(self._read, "message"), " read while working"),
                (self._retries, counted(self._retries, "retry", "retries"), ""),
            )
            if count
        ]

    def _on_tool_event(self, event: str, call_id: str, data: dict[str, Any]) -> None:
        if event == "tool:start":
            self._end_note(self._injected)
            self._end_note(self._trouble)
            todo = todo_of(data.get("args")) if data["tool"] == TODO_TOOL else None
            tool = self._tools[call_id] = _Tool(data.get("label") or use_of(data["tool"]), todo=todo)
            if self._is_thinking:  # show the first call of each batch
                self._latest, self._is_thinking = tool, False
        elif event == "tool:end":
            self._end_tool(self._tools.pop(call_id, None), succeeded=data.get("success", True))
        elif call_id in self._tools:
            # The call with the latest progress is shown first.
            tool = self._tools.pop(call_id)._replace(progress=str(data["text"]))
            self._tools = {call_id: tool, **self._tools}

    def _end_tool(self, tool: _Tool | None, *, succeeded: bool) -> None:
        self._done += 1
        self._failed += not succeeded
        if tool is not None and tool.todo is not None and succeeded:
            self.todo = tool.todo

    @staticmethod
    def _end_note(note: _Note | None) -> None:
        if note is not None:
            note.is_over = True


def _retrying(data: dict[str, Any]) -> str:
    trouble = _TROUBLE.get(str(data.get("reason")), _UNKNOWN_TROUBLE)
    in_s = math.ceil(data["delay_s"])
    when = f" in {in_s} s" if in_s > 0 else ""
    return f"{trouble}; trying again{when} ({data['attempt']} of {data['max_attempts']})…"
