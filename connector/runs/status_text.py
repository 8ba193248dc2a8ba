"""The text of a status message: the current activity of a run, its to-do list, and the blocks that show them."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from connector import texts
from connector.events import STOP_ACTION
from connector.formatting.content import Content, button, counted, mrkdwn, one_line, section, use_of
from connector.formatting.inline import escape, is_live

if TYPE_CHECKING:
    from collections.abc import Sequence

_GEAR = "⚙️"
_LABEL_CHARS = 120
_PHRASE_CHARS = 500
_SECTION_CHARS = 2900
_TROUBLE = {
    "rate_limit": "The model's service is busy",
    "unavailable": "The model's service is not available",
    "timeout": "The model does not answer",
}
_UNKNOWN_TROUBLE = "The model's service failed"
# The tool whose arguments are the to-do list; see `protocols.SessionManager`.
_TODO_TOOL = "todo"
_MARKS = {"pending": "☐", "in_progress": "▶", "done": "☑"}
_MOST_LINES = 8
# Slack removes spaces at the beginning of a line.
_INDENT = "\u2003"
# Number of items shown before the current one if the list is too long.
_DONE_BEFORE = 2
# The elapsed time is shown in these steps, in minutes, then in hours. Each step costs an edit.
_MINUTES = (1, 2, 3, 5, 10, 15, 20, 30, 45, 60)
_HOUR = 60
_SHORTEST_S = 0.1
_CARDS = {"pending": "pending", "in_progress": "in_progress", "done": "complete"}
# Longer durations are shown.
_LONG_S = 1.0
_MOST_CARDS = 8
# Arguments of tools that name an address or a file, for people.
_ADDRESS, _PATHS = "url", ("path", "file_path")


@dataclass(frozen=True, slots=True)
class StatusTodo:
    text: str
    status: str


TodoList = tuple[StatusTodo, ...]


def _todo_of(args: Any) -> TodoList | None:
    """Parse the list that a call sets; `None`: it sets none. The arguments come from a model and are not validated."""
    if not isinstance(args, dict) or args.get("action", "set") not in ("set", "create", "update"):
        return None
    items = args.get("items", args.get("todos"))
    if not isinstance(items, list):
        return None
    texts = [(each.get("text", each.get("content")), each.get("status")) for each in items if isinstance(each, dict)]
    statuses = {**{status: status for status in _MARKS}, "completed": "done"}
    return tuple(
        StatusTodo(text, statuses.get(str(status), "pending")) for text, status in texts if isinstance(text, str)
    )


def todo_lines(todo: TodoList) -> list[str]:
    """Render the list: the progress, and the items around the current one; nothing for an empty list."""
    if not todo:
        return []
    done = sum(item.status == "done" for item in todo)
    at_work = [place for place, item in enumerate(todo) if item.status == "in_progress"]
    to_come = [place for place, item in enumerate(todo) if item.status == "pending"]
    current = next(iter([*at_work, *to_come]), 0)
    before = max(0, min(current - _DONE_BEFORE, len(todo) - _MOST_LINES))
    after = max(0, len(todo) - before - _MOST_LINES)
    return [
        f"To do: {done} of {len(todo)} done",
        *([f"… {before} before"] if before else []),
        *(f"{_MARKS[item.status]} {one_line(item.text, _LABEL_CHARS)}" for item in todo[before : before + _MOST_LINES]),
        *([f"… {after} more"] if after else []),
    ]


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
class _Step:
    """A tool call of the run, as a card: its state, and its file or address."""

    title: str
    status: str = "in_progress"
    duration_s: float = 0.0
    file: str = ""
    source: str = ""

    def card(self, call_id: str) -> dict[str, Any]:
        time = f" · {self.duration_s:.0f} s" if self.duration_s >= _LONG_S else ""
        card: dict[str, Any] = {
            "type": "task_card",
            "task_id": call_id,
            "title": f"{self.title}{time}",
            "status": self.status,
        }
        if self.file and self.file not in self.title:
            card["details"] = _rich_text(self.file)
        if self.source:
            card["sources"] = [{"type": "url", "url": self.source, "text": one_line(self.source, _LABEL_CHARS)}]
        return card


def _rich_text(text: str) -> dict[str, Any]:
    words = {"type": "text", "text": text}
    return {"type": "rich_text", "elements": [{"type": "rich_text_section", "elements": [words]}]}


class _Agent(NamedTuple):
    """A sub-agent at work: its name, the id of the one above it (blank: the run's own), and its current step."""

    name: str
    parent: str
    text: str


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
        worker: name of the instance, if the text is to name it.
    """

    todo: TodoList = ()
    worker: str = ""
    _tools: dict[str, _Tool] = field(default_factory=dict)
    _agents: dict[str, _Agent] = field(default_factory=dict)
    # The latest tool calls, and the number of earlier ones.
    _steps: dict[str, _Step] = field(default_factory=dict)
    _earlier: int = 0
    _latest: _Tool | None = None
    _is_thinking: bool = False
    _is_writing: bool = False
    _stopping: _Note | None = None
    _injected: _Note | None = None
    _trouble: _Note | None = None
    _done: int = 0
    _failed: int = 0
    _read: int = 0
    _retries: int = 0
    _waiting: str = ""
    _asked: str = ""
    # The end of the last running tool. It is shown with the next event: a tool is followed by input or by thinking.
    _last_end: dict[str, Any] | None = None

    def on_event(self, event: str, data: dict[str, Any]) -> None:
        if self._last_end is not None:
            self._end_tool(self._last_end)
            self._last_end = None
        match event:
            case "waiting":
                self._waiting = texts.waits(**data)
            case "waited":
                self._waiting = ""
            case "thinking" | "writing":
                self._is_thinking, self._is_writing = True, event == "writing"
                _end(self._trouble)
            case "tool:start" | "tool:progress" | "tool:end":
                self._on_tool_event(event, data.get("id", data["tool"]), data)
            case "agent":
                self._on_agent(data)
            case "injection:applied":
                self._injected = _Note("Incorporating your input…")
                self._read += len(data.get("ids", ()))
            case "disconnected":
                self._tools.clear()
                self._agents.clear()
                self._trouble = _Note("Waiting for the process of the agent…")
            case "retrying" | "fallback" | "compacting":
                self._trouble = _Note(_trouble(event, data))
                self._retries += event == "retrying"

    def wait_for(self, titles: Sequence[str]) -> None:
        """Record for which answers of people the run waits."""
        more = f" and {len(titles) - 1} more" if len(titles) > 1 else ""
        self._asked = f"Waiting for your answer: {one_line(titles[0], _LABEL_CHARS)}{more}" if titles else ""

    def stop(self) -> None:
        """Record that a person asked the run to stop."""
        self._stopping = _Note("Stopping…")

    def mark_shown(self) -> None:
        """Record that the current phrase has been shown."""
        self._latest = None
        for note in filter(None, (self._trouble, self._injected)):
            note.is_shown = True

    @property
    def is_stopping(self) -> bool:
        return self._stopping is not None

    def phrase(self) -> str:
        """Return the current activity as one line."""
        if self._waiting and not self.is_stopping:
            return self._waiting
        if self._asked and not self.is_stopping:
            asked = ["✋", f"{self.worker}:" if self.worker else "", self._asked]
            return one_line(" ".join(filter(None, asked)), _PHRASE_CHARS)
        notes = (self._stopping, self._trouble, self._injected)
        parts = [note.text for note in notes if note is not None and note.is_visible]
        tool = next(iter(self._tools.values()), self._latest)
        if tool is not None:
            parts.append(tool.phrase)
        if len(self._tools) > 1:
            parts.append(f"({len(self._tools)} tools active)")
        if not parts and self._is_thinking:
            parts.append("Writing the answer…" if self._is_writing else "Thinking…")
        worker = [f"{self.worker}:"] if self.worker else []
        if not parts:
            worker = [f"{self.worker} is working…" if self.worker else "Working…"]
        return one_line(" ".join([_GEAR, *worker, *parts]), _PHRASE_CHARS)

    def cards(self) -> list[dict[str, Any]]:
        """Return the to-do list and the latest tool calls as `plan` blocks; an id names the same card in each edit."""
        plans = []
        if self.todo:
            first, *_ = todo_lines(self.todo)
            items = [(one_line(each.text, _LABEL_CHARS), _CARDS[each.status]) for each in self.todo]
            tasks = [
                {"type": "task_card", "task_id": f"todo{place}", "title": text or "…", "status": status}
                for place, (text, status) in enumerate(items)
            ]
            plans.append({"type": "plan", "title": first, "tasks": tasks[: _MOST_CARDS * 4]})
        if self._steps:
            earlier = f" (after {counted(self._earlier, 'earlier one', 'earlier ones')})" if self._earlier else ""
            tasks = [step.card(call_id) for call_id, step in self._steps.items()]
            plans.append({"type": "plan", "title": f"Steps{earlier}", "tasks": tasks})
        return plans

    def _on_agent(self, data: dict[str, Any]) -> None:
        if data["state"] == "running":
            self._agents[data["id"]] = _Agent(data["name"], data["parent"], data["text"])
        else:
            self._agents.pop(data["id"], None)

    def agent_lines(self, parent: str = "", level: int = 0) -> list[str]:
        """Return the tree of the sub-agents at work, a line each; a sub-agent of another one is indented."""
        lines: list[str] = []
        for agent_id, agent in self._agents.items():
            if agent.parent == parent or (not level and agent.parent not in self._agents):
                step = one_line(agent.text or "Thinking", _LABEL_CHARS).rstrip(".…")
                lines += [f"{_INDENT * level}↳ {agent.name}: {step}…", *self.agent_lines(agent_id, level + 1)]
        return lines if level else _bounded(lines)

    def account(self, elapsed_s: float) -> str:
        """Return the elapsed time, and counts of finished steps, messages read and retries; blank: nothing yet.

        The steps are not counted next to a to-do list, which has a count of its own.
        """
        minutes = int(elapsed_s) // 60
        shown = max((step for step in _MINUTES if step <= minutes), default=0)
        time = [f"for {minutes // _HOUR} h"] if minutes >= _HOUR else [f"for {shown} min"] if shown else []
        failed = f", {self._failed} with an error" if self._failed else ""
        steps = self._failed if self.todo else self._done
        counts = [
            f"{noun}{more}"
            for count, noun, more in (
                (steps, counted(steps, "step"), " with an error" if self.todo else f" done{failed}"),
                (self._read, counted(self._read, "message"), " read while working"),
                (self._retries, counted(self._retries, "retry", "retries"), ""),
            )
            if count
        ]
        return " · ".join([*time, *counts])

    def _on_tool_event(self, event: str, call_id: str, data: dict[str, Any]) -> None:
        if event == "tool:start":
            _end(self._injected, self._trouble)
            if data["tool"] != _TODO_TOOL:
                self._steps[call_id] = _step(data)
            if len(self._steps) > _MOST_CARDS:
                del self._steps[next(iter(self._steps))]
                self._earlier += 1
            todo = _todo_of(data.get("args")) if data["tool"] == _TODO_TOOL else None
            tool = self._tools[call_id] = _Tool(data.get("label") or use_of(data["tool"]), todo=todo)
            if self._is_thinking:  # show the first call of each batch
                self._latest, self._is_thinking = tool, False
        elif event == "tool:end":
            if self._tools.keys() == {call_id}:
                self._last_end = data
            else:
                self._end_tool(data)
        elif call_id in self._tools:
            # The call with the latest progress is shown first.
            tool = self._tools.pop(call_id)._replace(progress=str(data["text"]))
            self._tools = {call_id: tool, **self._tools}

    def _end_tool(self, data: dict[str, Any]) -> None:
        ended, succeeded = self._tools.pop(data.get("id", data["tool"]), None), data.get("success", True)
        self._done += 1
        self._failed += not succeeded
        if (step := self._steps.get(data.get("id", data["tool"]))) is not None:
            step.status, step.duration_s = "complete" if succeeded else "error", float(data.get("duration") or 0)
        if ended is not None and ended.todo is not None and succeeded:
            self.todo = ended.todo


def _bounded(lines: list[str]) -> list[str]:
    more = len(lines) - _MOST_LINES
    return [*lines[:_MOST_LINES], f"… {more} more"] if more > 0 else lines


def _step(data: dict[str, Any]) -> _Step:
    given = data.get("args")
    args: dict[str, Any] = given if isinstance(given, dict) else {}
    address = str(args.get(_ADDRESS) or "")
    file = next((str(args[name]) for name in _PATHS if args.get(name)), "")
    title = one_line(data.get("label") or "", _LABEL_CHARS) or one_line(use_of(data["tool"]), _LABEL_CHARS)
    return _Step(title, file=one_line(file, _LABEL_CHARS), source=address if is_live(address) else "")


def _end(*notes: _Note | None) -> None:
    for note in filter(None, notes):
        note.is_over = True


def _trouble(event: str, data: dict[str, Any]) -> str:
    if event == "fallback":
        return f"Switching to {one_line(str(data['to']), _LABEL_CHARS)}…"
    if event == "compacting":
        return "Summarizing the conversation so far…"
    trouble = _TROUBLE.get(str(data.get("reason")), _UNKNOWN_TROUBLE)
    in_s = math.ceil(data["delay_s"])
    when = f" in {in_s} s" if in_s > 0 else ""
    return f"{trouble}; trying again{when} ({data['attempt']} of {data['max_attempts']})…"


def status_content(
    activity: Activity, run_id: str, elapsed_s: float, *, is_plain: bool = False, has_cards: bool = False
) -> Content:
    """Render the status message of a run; its text beside the blocks is the current activity only.

    `is_plain`: without blocks, for when Slack rejects them. `has_cards`: with to-do list and tool calls as cards.
    """
    phrase, todo = escape(activity.phrase()), [escape(line) for line in todo_lines(activity.todo)]
    account, agents = escape(activity.account(elapsed_s)), [escape(line) for line in activity.agent_lines()]
    if is_plain:
        return Content(_fitting([line for line in (phrase, *agents, *todo, account) if line]))
    blocks = [section(_fitting([phrase, *agents]))]
    if has_cards:
        blocks += activity.cards()
    elif todo:
        blocks.append(section(_fitting([f"*{todo[0]}*", *todo[1:]])))
    if account:
        blocks.append({"type": "context", "elements": [mrkdwn(account)]})
    # The first press stops gracefully, the second one immediately.
    words, style = ("Stop now", {"style": "danger"}) if activity.is_stopping else ("Stop", {})
    elements = [button(STOP_ACTION, words, run_id, **style)]
    blocks.append({"type": "actions", "block_id": STOP_ACTION, "elements": elements})
    return Content(phrase, tuple(blocks))


def until_next_step(elapsed_s: float) -> float:
    """Return the seconds until the shown elapsed time changes; at least `_SHORTEST_S`, as timers may fire early."""
    minutes = elapsed_s / 60
    following = next((step for step in _MINUTES if step > minutes), (int(minutes) // _HOUR + 1) * _HOUR)
    return max(following * 60 - elapsed_s, _SHORTEST_S)


def _fitting(shown: Sequence[str]) -> str:
    """Join as many lines as fit into a section."""
    out: list[str] = []
    for line in shown:
        if sum(map(len, out)) + len(out) + len(line) > _SECTION_CHARS:
            return "\n".join([*out, "…"])
        out.append(line)
    return "\n".join(out)
