"""Build a request that a provider accepts from the rows of a conversation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import structlog

from orchestrator_interactive.json_limits import MAX_NESTING, nesting
from orchestrator_interactive.kernel.contracts.messages import ChatRequest, ToolSpec
from orchestrator_interactive.kernel.contracts.request_validation import RequestRule, is_plain
from orchestrator_interactive.kernel.contracts.tool_calls import calls_in_field, is_call
from orchestrator_interactive.kernel.error_boundary import ErrorBoundary
from orchestrator_interactive.transcript.parsing import UNREADABLE, message_of
from orchestrator_interactive.transcript.transcript import Transcript

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from orchestrator_interactive.kernel.contracts.protocols import Provider, Tool

log = structlog.get_logger(__name__)


class RequestBuilder:
    """Builds the requests of one run. They grow at their tail only, so the provider's prompt cache keeps the prefix."""

    def __init__(self, provider: Provider, tools: Mapping[str, Tool], transcript: Transcript | None = None) -> None:
        specs = list(_specs(tools)) or None
        can_choose = specs is not None and "tool_choice" in provider.get_info().capabilities
        without = {"tools": specs, "tool_choice": "none"} if can_choose else {}
        self._with_tools = ChatRequest(messages=[], stream=True, tools=specs)
        self._without_tools = ChatRequest(messages=[], stream=True, **without)
        self._transcript = transcript or Transcript()
        # Returns whether a call in the last request's conversation has this id.
        self.is_used = self._transcript.is_used

    def build(
        self, rows: Sequence[dict[str, Any]], ephemeral: Sequence[dict[str, Any]] = (), *, tools_allowed: bool
    ) -> ChatRequest:
        """Build the request for these rows; `ephemeral` rows are part of this request only."""
        frame = self._with_tools if tools_allowed else self._without_tools
        # `model_copy` does not validate: the transcript has validated the messages.
        return frame.model_copy(update={"messages": self._transcript.messages(rows, ephemeral)})


def unreadable(row: Any) -> str | None:
    """Return the problem of a row that did not come from the context; None if it is valid."""
    try:
        message = message_of(row)
    except UNREADABLE as e:
        return f"{type(e).__name__}: {e}"
    return None if all(map(is_call, calls_in_field(message))) else RequestRule.UNREADABLE_CALL.value


def _specs(tools: Mapping[str, Tool]) -> Iterator[ToolSpec]:
    for name, tool in tools.items():
        with ErrorBoundary(log, "tool.not_offered", tool=name) as boundary:
            spec = _spec(name, tool)
        if boundary.error is None:
            yield spec


def _spec(name: str, tool: Tool) -> ToolSpec:
    if not is_plain(name):
        raise ValueError("A tool needs a name.")
    schema = getattr(tool, "input_schema", None)
    if schema is None and hasattr(tool, "get_schema"):
        schema = tool.get_schema()
    if nesting(schema, MAX_NESTING) > MAX_NESTING:
        raise ValueError(f"The schema of a tool may have {MAX_NESTING} levels.")
    return ToolSpec(name=name, description=tool.description, parameters=schema or {"type": "object"})
