"""The current activity of a run, as text for its status message."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from connector import texts
from connector.formatting.text_utils import counted, one_line, use_of
from connector.runs.status.todo_list import TODO_TOOL, Todo, todo_of

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
    """A running tool call: its label and its latest progress text (`words`)."""

    label: str
    words: str = ""
    todo: Todo | None = None

    @property
    def phrase(self) -> str:
        parts = [one_line(part, _LABEL_CHARS).rstrip(".…") for part in (self.label, self.words) if part]
        return f"{' — '.join(parts)}…"


@dataclass(slots=True)
class _Remark:
    """A text that is shown while it applies, and at least once."""

    text: str
    is_over: bool = False
    is_told: bool = False

    @property
    def stands(self) -> bool:
        return not (self.is_over and self.is_told)


@dataclass(slots=True)
class Activity:
    """The activity of a run, updated from its progress events.

    Many activities end before the status message may be edited again. The first tool of the latest batch, injected
    input and provider errors are therefore shown once even if they are over.

    Args:
        todo: the agent's latest to-do list.
    """

    todo: Todo = ()
    _tools: dict[str, _Tool] = field(default_factory=dict)
    _latest: _Tool | None = None
    _is_thinking: bool = False
    _stopping: _Remark | None = None
    _taking_in: _Remark | None = None
    _trouble: _Remark | None = None
    _done: int = 0
    _failed: int = 0
    _read: int = 0
    _retries: int = 0
    _waiting: str = ""

    def hear(self, event: str, data: dict[str, Any]) -> None:
        match event:
            case "waiting":
                self._waiting = texts.waits(**data)
            case "waited":
                self._waiting = ""
            case "thinking":
                self._is_thinking = True
                self._pass(self._trouble)
            case "tool:start" | "tool:progress" | "tool:end":
                self._hear_of_tool(event, data.get("id", data["tool"]), data)
            case "injection:applied":
                self._taking_in = _Remark("Incorporating your input…")
                self._read += len(data.get("ids", ()))
            case "retrying":
                self._trouble = _Remark(_retrying(data))
                self._retries += 1
            case "fallback":
                self._trouble = _Remark(f"Switching to {one_line(str(data['to']), _LABEL_CHARS)}…")
            case "compacting":
                self._trouble = _Remark("Summarizing the conversation so far…")

    def stop(self) -> None:
        """Record that a person asked the run to stop."""
        self._stopping = _Remark("Stopping…")

    def told(self) -> None:
        """Record that the current phrase has been shown."""
        self._latest = None
        for remark in (self._trouble, self._taking_in):
            if remark is not None:
                remark.is_told = True

    @property
    def is_stopping(self) -> bool:
        return self._stopping is not None

    def phrase(self) -> str:
        """Return the current activity as one line."""
        if self._waiting and not self.is_stopping:
            return self._waiting
        remarks = (self._stopping, self._trouble, self._taking_in)
        parts = [remark.text for remark in remarks if remark is not None and remark.stands]
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
            f"{words}{more}"
            for count, words, more in (
                (self._done, counted(self._done, "step"), f" done{failed}"),
                (self._read, counted(self._read, "message"), " read while working"),
                (self._retries, counted(self._retries, "retry", "retries"), ""),
            )
            if count
        ]

    def _hear_of_tool(self, event: str, call_id: str, data: dict[str, Any]) -> None:
        if event == "tool:start":
            self._pass(self._taking_in)
            self._pass(self._trouble)
            todo = todo_of(data.get("args")) if data["tool"] == TODO_TOOL else None
            tool = self._tools[call_id] = _Tool(data.get("label") or use_of(data["tool"]), todo=todo)
            if self._is_thinking:  # show the first call of each batch
                self._latest, self._is_thinking = tool, False
        elif event == "tool:end":
            self._end(self._tools.pop(call_id, None), succeeded=data.get("success", True))
        elif call_id in self._tools:
            # The call with the latest progress is shown first.
            tool = self._tools.pop(call_id)._replace(words=str(data["text"]))
            self._tools = {call_id: tool, **self._tools}

    def _end(self, tool: _Tool | None, *, succeeded: bool) -> None:
        self._done += 1
        self._failed += not succeeded
        if tool is not None and tool.todo is not None and succeeded:
            self.todo = tool.todo

    @staticmethod
    def _pass(remark: _Remark | None) -> None:
        if remark is not None:
            remark.is_over = True


def _retrying(data: dict[str, Any]) -> str:
    trouble = _TROUBLE.get(str(data.get("reason")), _UNKNOWN_TROUBLE)
    in_s = math.ceil(data["delay_s"])
    when = f" in {in_s} s" if in_s > 0 else ""
    return f"{trouble}; trying again{when} ({data['attempt']} of {data['max_attempts']})…"
