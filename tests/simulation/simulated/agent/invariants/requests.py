"""Invariants of requests to models."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from orchestrator_interactive.kernel.contracts.messages import ChatRequest
from orchestrator_interactive.kernel.contracts.request_validation import problems_of
from simulated.agent.messages import Row
from simulated.simulation import Simulation

from .messages import is_refused
from .records import Invariant, ModelCall, RunRecord, is_answered
from .runs import Budgets

# The start of a text that a hook adds to one request only.
EPHEMERAL = "(in passing)"
# The row that the agent adds to one request that would otherwise end with the model's message.
_CONTINUE = "[Go on.]"
_FORCES_AN_ANSWER = "dispatch_worker"


class Requests(Invariant):
    """Each request is valid for a strict provider, and grows only at its tail."""

    def __init__(self, sim: Simulation):
        super().__init__(sim)
        self._last: list[Row] = []
        self._view_changed = False

    def view_changed(self) -> None:
        """The next request may differ from the last: the context compacted, or a hook rewrote rows."""
        self._view_changed = True

    def on_model_called(self, call: ModelCall) -> None:
        rows: list[Row] = [message.model_dump(exclude_none=True) for message in call.request.messages]
        found = refusals(rows)
        if call.request.tool_choice is not None and not call.request.tools:
            found.append("tool_choice without tools")
        found += [f"the agent's own check reports: {problem}" for problem in problems_of(call.request)]
        for reason in found:
            self.violation(f"A strict provider refuses the request: {reason}.")
        self._check_growth([kept for row in rows if (kept := _lasting(row)) is not None])

    def check_summary_request(self, request: ChatRequest) -> None:
        for problem in problems_of(request):
            self.violation(f"A strict provider refuses the request for a summary: {problem}.")

    def on_row(self, row: Row) -> None:
        if is_refused(row):
            self.view_changed()

    def on_hook(self, event: str, _data: dict[str, Any]) -> None:
        if event == "context:post_compact":
            self.view_changed()

    def _check_growth(self, rows: list[Row]) -> None:
        if not self._view_changed and rows[: len(self._last)] != self._last:
            place = next(i for i, row in enumerate(self._last) if i >= len(rows) or rows[i] != row)
            now = _short(rows[place]) if place < len(rows) else "nothing"
            was = _short(self._last[place])
            self.violation(f"The request does not begin with the whole previous request: {was} became {now}.")
        self._last, self._view_changed = rows, False


class ToolChoice(Invariant):
    """The model may use its tools, except for the answer after a tool of `force_respond_tools`, and at a limit.

    An answer ends the restriction; a failed call does not.
    """

    def __init__(self, sim: Simulation, budgets: Budgets):
        super().__init__(sim)
        self._budgets = budgets
        self._declared: list[str] | None = None

    def on_run_started(self, _run: RunRecord) -> None:
        self._must_answer = False
        self._may_call = True

    def on_row(self, row: Row) -> None:
        if calls := row.get("tool_calls"):
            self._must_answer = any(call["function"]["name"] == _FORCES_AN_ANSWER for call in calls)

    def on_hook(self, event: str, data: dict[str, Any]) -> None:
        if is_answered(event, data):
            self._must_answer = False

    def on_thinking_reported(self) -> None:
        self._may_call = not self._must_answer and not self._budgets.limits

    def on_model_called(self, call: ModelCall) -> None:
        allowed = bool(call.request.tools) and call.request.tool_choice != "none"
        if allowed != self._may_call:
            should = "should not" if allowed else "should"
            self.violation(f"The model may{'' if allowed else ' not'} use its tools, and {should}.")
        if call.can_choose:
            names = [tool.name for tool in call.request.tools or ()]
            if self._declared is not None and names != self._declared:
                self.violation(f"The tools of a request are {names}; they were {self._declared}.")
            self._declared = names


def refusals(rows: Sequence[Row]) -> list[str]:
    """Return why a strict provider refuses these messages. Each rule is one of a public API."""
    found = _unpaired(rows)
    ids = [call_id for row in rows for call_id in call_ids(row)]
    found += [f"the call id '{each}' is used twice" for each in dict.fromkeys(ids) if ids.count(each) > 1]
    for row in rows:
        found += _refused_content(row)
    spoken = [row for row in rows if row["role"] not in {"system", "developer"}]
    if not spoken or spoken[-1]["role"] == "assistant":
        found.append("the last message is the model's")
    return found


def _unpaired(rows: Iterable[Row]) -> list[str]:
    found: list[str] = []
    open_ids: list[str] = []
    for row in (*rows, None):
        if row is not None and row["role"] == "tool":
            if row.get("tool_call_id") in open_ids:
                open_ids.remove(row["tool_call_id"])
            else:
                found.append(f"a result without its call before it: {row.get('tool_call_id')}")
            continue
        found += [f"a call without its result after it: {each}" for each in open_ids]
        open_ids = call_ids(row) if row is not None else []
    return found


def call_ids(row: Row) -> list[str]:
    """Return the ids of the calls of a row; one that is in blocks and in `tool_calls` is one call."""
    if row["role"] != "assistant":
        return []
    content = row.get("content")
    blocks = [block["id"] for block in content if block.get("type") == "tool_call"] if isinstance(content, list) else []
    listed = [call["id"] for call in row.get("tool_calls") or ()]
    return blocks + [each for each in listed if each not in blocks]


def _refused_content(row: Row) -> list[str]:
    content, role, found = row.get("content"), row["role"], []
    if not content:
        return [f"a message of role '{role}' is empty"]
    if isinstance(content, str):
        is_blank = role != "tool" and not content.strip()  # a blank result is valid
        return [f"a message of role '{role}' is blank"] if is_blank else []
    for block in content:
        if block.get("type") == "text" and not block["text"].strip():
            found.append("blank text")
        if block.get("type") == "thinking" and not block.get("signature"):
            found.append("thinking without its signature")
    if role == "assistant" and content[-1].get("type") in {"thinking", "redacted_thinking"}:
        found.append("the final block of an assistant message is thinking")
    return found


def _short(row: Row) -> str:
    return f"the message of role '{row['role']}' {str(row.get('content'))[:80]!r}"


def _lasting(row: Row) -> Row | None:
    """Return the part of a message that later requests contain, too."""
    content, metadata = row.get("content"), row.pop("metadata", None) or {}
    if "is_error" in metadata:
        row["is_error"] = metadata["is_error"]
    if isinstance(content, str):
        if content.startswith(EPHEMERAL) or content == _CONTINUE:
            return None
        return {**row, "content": content.partition(f"\n\n{EPHEMERAL}")[0]}
    return {**row, "content": [b for b in content or () if not str(b.get("text", "")).startswith(EPHEMERAL)]}
