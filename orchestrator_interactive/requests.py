"""From the rows of a conversation to a request that a provider accepts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import structlog

from orchestrator_interactive.kernel.messages import ChatRequest, Message, TextBlock, ThinkingBlock, ToolSpec
from orchestrator_interactive.rows import call_ids

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from orchestrator_interactive.kernel.interfaces import Provider, Tool

log = structlog.get_logger(__name__)

_THINKING = ("thinking", "redacted_thinking")
_ASIDE = ("system", "developer")
_GO_ON = Message(role="user", content="[Go on.]")
_EMPTY = ChatRequest(messages=[], stream=True)

NO_RESULT = "No result was recorded: the outcome of this call is unknown."


class Transcript:
    """The messages of a conversation, valid for any provider, grown at the tail.

    Every row is looked at once, however long the conversation: while the rows only grow, so do the messages. What a
    provider would refuse is repaired and logged: a call without its result, a result without its call, thinking
    without its signature, blank text.
    """

    def __init__(self) -> None:
        self.problems: list[str] = []
        self._start()

    def _start(self) -> None:
        self._rows: list[dict[str, Any]] = []
        self._messages: list[Message] = []
        self._open_calls: list[str] = []
        self._given_up: set[str] = set()

    def messages(self, rows: Sequence[dict[str, Any]]) -> list[Message]:
        """The messages for these rows, in a fresh list.

        Rows that do not begin with all that has been looked at (compaction, a rewind), or that bring a result which was
        given up, are looked at from the beginning.
        """
        if not self._grew_to(rows):
            self._start()
        new = rows[len(self._rows) :]
        for row in self._results_first(new):
            self._append(row)
        self._rows.extend(new)
        return self._messages + [_no_result(call_id) for call_id in self._open_calls]

    def _grew_to(self, rows: Sequence[dict[str, Any]]) -> bool:
        if rows[: len(self._rows)] != self._rows:
            return False
        new = rows[len(self._rows) :] if self._given_up else ()
        return not any(row["role"] == "tool" and row.get("tool_call_id") in self._given_up for row in new)

    def _results_first(self, rows: Sequence[dict[str, Any]]) -> Iterator[dict[str, Any]]:
        """The rows; a result that came after something else is moved up to its call."""
        open_calls, moved = set(self._open_calls), set[int]()
        for at, row in enumerate(rows):
            if row["role"] == "tool":
                open_calls.discard(row.get("tool_call_id", ""))
                if at not in moved:
                    yield row
                continue
            for later in range(at + 1, len(rows)) if open_calls else ():
                if rows[later]["role"] == "tool" and rows[later].get("tool_call_id") in open_calls:
                    open_calls.discard(rows[later]["tool_call_id"])
                    moved.add(later)
                    yield rows[later]
            yield row
            open_calls = set(call_ids(row)) if row["role"] == "assistant" else set()

    def _append(self, row: dict[str, Any]) -> None:
        if row["role"] == "tool":
            self._append_result(row)
            return
        for call_id in self._open_calls:
            self._problem("call without a result", call_id)
            self._given_up.add(call_id)
            self._messages.append(_no_result(call_id))
        self._open_calls = []
        message = _message(row)
        if message.role == "assistant":
            self._open_calls = call_ids(row)
            if not message.content and not self._open_calls:
                self._problem("empty answer", row)
                return
        self._messages.append(message)

    def _append_result(self, row: dict[str, Any]) -> None:
        if row.get("tool_call_id") not in self._open_calls:
            self._problem("result without a call", row.get("tool_call_id"))
            return
        self._open_calls.remove(row["tool_call_id"])
        self._messages.append(_message(row))

    def _problem(self, what: str, where: Any) -> None:
        self.problems.append(what)
        log.warning("request.repaired", problem=what, where=where)


class RequestBuilder:
    """Builds the requests of one run. They grow at their tail only, so the provider's prompt cache keeps the prefix."""

    def __init__(self, provider: Provider, tools: Mapping[str, Tool]) -> None:
        self._can_choose = "tool_choice" in provider.get_info().capabilities
        self._specs = list(_specs(tools))
        self._transcript = Transcript()

    def build(
        self, rows: Sequence[dict[str, Any]], ephemeral: Sequence[dict[str, Any]] = (), *, tools_allowed: bool
    ) -> ChatRequest:
        """The request for these rows; `ephemeral` rows are part of this one only."""
        messages = self._transcript.messages(rows) + [_message(row) for row in ephemeral]
        last = next((message for message in reversed(messages) if message.role not in _ASIDE), None)
        if last is not None and last.role == "assistant":  # where hooks speak for it
            messages.append(_GO_ON)
        declared = self._specs if tools_allowed or self._can_choose else []
        # Everything in it has been validated when its row came in.
        changes = {
            "messages": messages,
            "tools": declared or None,
            "tool_choice": "none" if declared and not tools_allowed else None,
        }
        return _EMPTY.model_copy(update=changes)


def unreadable(row: Any) -> str | None:
    """What is wrong with a row that did not come from the context; `None`: nothing."""
    try:
        _message(row)
        call_ids(row)
    except (ValueError, TypeError, KeyError, AttributeError) as e:
        return f"{type(e).__name__}: {e}"
    return None


def _message(row: dict[str, Any]) -> Message:
    message = Message.model_validate({**row, "content": row.get("content") or ""})
    if isinstance(message.content, list):
        message.content = [block for block in message.content if not _is_refused(block)]
        while message.role == "assistant" and message.content and message.content[-1].type in _THINKING:
            message.content.pop()  # an answer that ends in thinking is refused
    return message


def _is_refused(block: Any) -> bool:
    if isinstance(block, TextBlock):
        return not block.text.strip()
    # Other providers keep the state of their reasoning in `content` rather than in a signature.
    return isinstance(block, ThinkingBlock) and block.signature is None and not getattr(block, "content", None)


def _no_result(call_id: str) -> Message:
    return Message(role="tool", tool_call_id=call_id, content=NO_RESULT, metadata={"is_error": True})


def _specs(tools: Mapping[str, Tool]) -> Iterator[ToolSpec]:
    for name, tool in tools.items():
        try:
            yield _spec(name, tool)
        except (SystemExit, Exception):  # a tool may not take the run down: one that cannot be described is not offered
            log.exception("tool.not_offered", tool=name)


def _spec(name: str, tool: Tool) -> ToolSpec:
    schema = getattr(tool, "input_schema", None)
    if schema is None and hasattr(tool, "get_schema"):
        schema = tool.get_schema()
    return ToolSpec(name=name, description=tool.description, parameters=schema or {"type": "object"})
