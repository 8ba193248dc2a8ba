"""Every request is one that a strict provider takes, and grows at its tail."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from orchestrator_interactive.kernel.contracts.request_validation import problems_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from orchestrator_interactive.kernel.contracts.messages import ChatRequest
    from simulated.scenario import Scenario

    Row = dict[str, Any]

# Begins what a hook says for one request only.
PASSING = "(in passing)"
# What the agent says itself, for one request, where the last word would be the model's.
_GO_ON = "[Go on.]"


class Requests:
    """Looks at each request as it reaches the model."""

    def __init__(self, scene: Scenario) -> None:
        self._scene = scene
        self._last: list[Row] = []
        self._rebuilt = False

    def asked(self, request: ChatRequest) -> list[str]:
        """Look at a request; what a strict provider has against it comes back."""
        rows: list[Row] = [message.model_dump(exclude_none=True) for message in request.messages]
        found = refusals(rows)
        if request.tool_choice is not None and not request.tools:
            found.append("tool_choice without tools")
        found += [f"says the agent's own check: {problem}" for problem in problems_of(request)]
        for reason in found:
            self._scene.blame(f"A strict provider refuses the request: {reason}.")
        self._check_growth([kept for row in rows if (kept := _lasting(row)) is not None])
        return found

    def asked_for_summary(self, request: ChatRequest) -> None:
        """The context asks a model for a summary."""
        for problem in problems_of(request):
            self._scene.blame(f"A strict provider refuses the request for a summary: {problem}.")

    def view_changed(self) -> None:
        """The context shows another view from here on: it compacted, or a hook rewrote the rows of a request."""
        self._rebuilt = True

    def _check_growth(self, rows: list[Row]) -> None:
        if not self._rebuilt and rows[: len(self._last)] != self._last:
            place = next(i for i, row in enumerate(self._last) if i >= len(rows) or rows[i] != row)
            now = _short(rows[place]) if place < len(rows) else "nothing"
            was = _short(self._last[place])
            self._scene.blame(f"The request does not begin with all of the one before it: {was} became {now}.")
        self._last, self._rebuilt = rows, False


def refusals(rows: Sequence[Row]) -> list[str]:
    """Why a strict provider refuses these messages. Each rule is one that a public API has."""
    found = unpaired(rows)
    ids = [call_id for row in rows for call_id in call_ids(row)]
    found += [f"the call id '{each}' is used twice" for each in dict.fromkeys(ids) if ids.count(each) > 1]
    for row in rows:
        found += _refused_content(row)
    spoken = [row for row in rows if row["role"] not in {"system", "developer"}]
    if not spoken or spoken[-1]["role"] == "assistant":
        found.append("the last word is the model's")
    return found


def unpaired(rows: Iterable[Row]) -> list[str]:
    """Calls and results that do not stand together."""
    found: list[str] = []
    waiting: list[str] = []
    for row in rows:
        if row["role"] == "tool":
            if row.get("tool_call_id") in waiting:
                waiting.remove(row["tool_call_id"])
            else:
                found.append(f"a result without its call before it: {row.get('tool_call_id')}")
            continue
        found += [f"a call without its result after it: {each}" for each in waiting]
        waiting = call_ids(row)
    return found + [f"a call without its result after it: {each}" for each in waiting]


def call_ids(row: Row) -> list[str]:
    """The ids of the calls in a row; one that stands in both places is one call."""
    if row["role"] != "assistant":
        return []
    content = row.get("content")
    blocks = [block["id"] for block in content if block.get("type") == "tool_call"] if isinstance(content, list) else []
    listed = [call["id"] for call in row.get("tool_calls") or ()]
    return blocks + [each for each in listed if each not in blocks]


def _refused_content(row: Row) -> list[str]:
    content, found = row.get("content"), []
    if not content:
        return [f"a message of the role '{row['role']}' is empty"]
    if isinstance(content, str) and row["role"] == "tool":
        return []  # blank, it passes
    if isinstance(content, str):
        return [f"a message of the role '{row['role']}' is blank"] if not content.strip() else []
    for block in content or ():
        if block.get("type") == "text" and not block["text"].strip():
            found.append("blank text")
        if block.get("type") == "thinking" and not block.get("signature"):
            found.append("thinking without its signature")
    if row["role"] == "assistant" and content and content[-1].get("type") in {"thinking", "redacted_thinking"}:
        found.append("the final block of an assistant message is thinking")
    return found


def _short(row: Row) -> str:
    return f"the message of the role '{row['role']}' {str(row.get('content'))[:80]!r}"


def _lasting(row: Row) -> Row | None:
    """What of a message reaches a provider in this request and in later ones: nothing where it was said in passing."""
    content, metadata = row.get("content"), row.pop("metadata", None) or {}
    if "is_error" in metadata:
        row["is_error"] = metadata["is_error"]
    if isinstance(content, str):
        if content.startswith(PASSING) or content == _GO_ON:
            return None
        return {**row, "content": content.partition(f"\n\n{PASSING}")[0]}
    blocks = [block for block in content or () if not str(block.get("text", "")).startswith(PASSING)]
    return {**row, "content": blocks}
