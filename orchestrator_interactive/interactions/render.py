"""Render a conversation for a model, as messages in OpenAI's format.

The states become rows; the rows take the same path to messages as those of a request.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import structlog

from orchestrator_interactive.interactions.records import place_of
from orchestrator_interactive.interactions.render_policies import AGENT, apply_policy, policy_named
from orchestrator_interactive.interactions.rows import as_json, declared_calls, image_url, row_of
from orchestrator_interactive.interactions.states import (
    AgentCallState,
    AgentResultState,
    AssistantMessageState,
    ToolCallState,
    ToolResultState,
    WaitingState,
)
from orchestrator_interactive.interactions.tree import MAX_STATES
from orchestrator_interactive.kernel.contracts.messages import ImageBlock, TextBlock, ToolResultBlock
from orchestrator_interactive.kernel.contracts.models import sendable
from orchestrator_interactive.kernel.contracts.tool_calls import calls_in_field
from orchestrator_interactive.transcript.repair import NO_OUTPUT, UNNAMED
from orchestrator_interactive.transcript.transcript import normalised

if TYPE_CHECKING:
    from collections.abc import Collection

    from orchestrator_interactive.interactions.stack import InteractionStack, StackEntry
    from orchestrator_interactive.interactions.states import BaseState
    from orchestrator_interactive.kernel.contracts.messages import ContentBlock, Message

    Row = dict[str, Any]

log = structlog.get_logger(__name__)

# Additional entries to read when the window grows; usually covers the calls of one answer.
_MARGIN = 32
# States that may precede a further call of the same answer.
_BEFORE_A_CALL = (AssistantMessageState, ToolCallState, WaitingState)


async def render_for_llm(
    stack: InteractionStack,
    last_n: int | None = None,
    policy_name: str = "default",
    exclude_types: Collection[type[BaseState]] = (),
    **kwargs: Any,
) -> list[Row]:
    """Render the conversation as messages in OpenAI's format.

    Each result directly follows the message with its call; entries between them come afterwards. A call without a
    result gets a placeholder result. Waiting states, finished states, reflections and refused tasks are not shown. A
    custom state is shown if its method `message() -> dict | None` returns a message with the role user, assistant,
    system, developer or tool. Unreadable states are left out and logged.

    Args:
        stack: the conversation; its current branch is rendered.
        last_n: number of states, by default all; more if a call would be separated from its result.
        policy_name: render policy to apply; see `render_policies`.
        exclude_types: state types to leave out. An excluded call or result excludes the whole pair.
        kwargs: arguments for the policy.

    Raises:
        UnknownPolicy: there is no such policy.
        PolicyError: the policy returned messages that cannot be sent.
        ValueError: `last_n` is negative.
        TypeError: `message()` of a state did not return a message.
    """
    policy_named(policy_name)
    rows = _Rows(tuple(exclude_types))
    for entry in await _window(stack, MAX_STATES if last_n is None else last_n):
        rows.add(entry)
    messages = [_in_openai_format(message) for message in normalised(rows.filled())]
    return apply_policy(policy_name, messages, **kwargs)


def image_block(part: Row) -> Row:
    """Convert an image from OpenAI's format to the contracts' format; return other parts unchanged."""
    match part:
        case {"type": "image_url", "image_url": {"url": str(url)}}:
            kind, found, data = url.removeprefix("data:").partition(";base64,")
            source = {"type": "base64", "media_type": kind, "data": data} if found else {"type": "url", "url": url}
            return {"type": "image", "source": source}
    return part


async def _window(stack: InteractionStack, last_n: int) -> list[StackEntry]:
    """Return the last entries, and as many before them as their results need for their calls."""
    if last_n < 0:
        raise ValueError("`last_n` must be 0 or more.")
    read = [entry async for entry in stack.iter_last_n(last_n + _MARGIN)]
    start = max(len(read) - last_n, 0)
    while (since := _whole_since(read, start)) < start:
        start = since
        if start <= 0 < read[0].index:
            first = max(read[0].index + start - _MARGIN, 0)
            start += read[0].index - first
            read = [entry async for entry in stack.iter_last_n(await stack.length() - first)]
    return read[start:]


def _whole_since(read: list[StackEntry], start: int) -> int:
    """Return the start of the window that separates no pair; negative if more entries have to be read."""
    window = read[start:]
    first = read[0].index if read else 0
    results = (entry for entry in window if isinstance(entry.state, ToolResultState) and entry.parents)
    since = min([start, *(place_of(result.parents[0])[2] - first for result in results)])
    if since < start or start == 0:
        return since
    begins = next((entry.state for entry in window if not isinstance(entry.state, WaitingState)), None)
    is_amid_calls = isinstance(begins, ToolCallState) and isinstance(read[start - 1].state, _BEFORE_A_CALL)
    return start - is_amid_calls


class _Rows:
    """Collects the rows of entries in log order; a call joins the answer before it."""

    def __init__(self, excluded: tuple[type[BaseState], ...]) -> None:
        self._excluded = excluded
        self._rows: list[Row] = []
        # The answer that a further call joins, and the answers of calls without a result, by call id.
        self._answer: Row | None = None
        self._open: dict[str, Row] = {}
        # Ids of declared calls that have not begun.
        self._declared: set[str] = set()
        # Agents by the correlation id of their request.
        self._agents: dict[str, str] = {}

    def filled(self) -> list[Row]:
        """Return the rows without empty answers."""
        return [row for row in self._rows if row.get("role") != "assistant" or row["content"] or row["tool_calls"]]

    def add(self, entry: StackEntry) -> None:
        """Add an entry; excluded calls and results are added, too, so that pairs stay complete."""
        state, is_shown = entry.state, not isinstance(entry.state, self._excluded)
        match state:
            case None:
                log.warning("render.state_skipped", ref=entry.ref, problem=entry.problem)
                self._answer = None
            case AssistantMessageState(is_reflection=True):
                return
            case ToolCallState(call_id, name, arguments):
                self._add_call(call_id, _call(call_id, name, as_json(arguments)), is_shown=is_shown)
            case AgentCallState() | AgentResultState():
                if is_shown:
                    self._add_between_agents(state)
            case _:
                row = row_of(state) or (_own_message(state) if is_shown else None)
                if isinstance(row, dict):
                    self._add_row(entry, row, is_shown=is_shown)

    def _add_row(self, entry: StackEntry, row: Row, *, is_shown: bool) -> None:
        content = row.get("content")
        match row.get("role"):
            case "assistant":
                self._add_answer(row, content, is_shown=is_shown)
            case "tool":
                self._add_result(entry, row, is_shown=is_shown)
            case _:
                self._answer = None
                if is_shown:
                    parts = [image_block(each) for each in content] if isinstance(content, list) else content
                    self._rows.append({**row, "content": parts})

    def _add_answer(self, row: Row, content: Any, *, is_shown: bool) -> None:
        calls = declared_calls(content, row.get("tool_calls"))
        if isinstance(content, list):  # a call is in `tool_calls` only, where it may be left out
            content = [each for each in content if not (isinstance(each, dict) and each.get("type") == "tool_call")]
        self._answer = {**row, "content": content if is_shown else None, "tool_calls": []}
        self._rows.append(self._answer)
        self._open = dict.fromkeys((call.id for call in calls), self._answer)
        self._declared = set(self._open)
        if is_shown:
            self._answer["tool_calls"] += [_call(*call) for call in calls]

    def _add_call(self, call_id: str, call: Row, *, is_shown: bool) -> None:
        answer = self._open.get(call_id) if call_id in self._declared else self._answer
        self._declared.discard(call_id)
        if answer is None:
            answer = self._answer = {"role": "assistant", "content": None, "tool_calls": []}
            self._rows.append(answer)
        self._open[call_id] = answer
        calls = answer["tool_calls"]
        place = next((i for i, each in enumerate(calls) if each["id"] == call_id), len(calls))
        calls[place : place + 1] = [call] if is_shown else []

    def _add_result(self, entry: StackEntry, row: Row, *, is_shown: bool) -> None:
        """Add a result of an open call; drop it with its call if either is excluded."""
        call_id = row.get("tool_call_id")
        answer = self._open.pop(str(call_id), None)
        if answer is None:
            log.warning("render.result_skipped", ref=entry.ref, problem="Its call is missing.")
            return
        self._declared.discard(str(call_id))
        if self._answer is answer:
            self._answer = None
        others = [call for call in answer["tool_calls"] if call["id"] != call_id]
        if is_shown and len(others) < len(answer["tool_calls"]):
            self._rows.append(row)
        else:
            answer["tool_calls"] = others

    def _add_between_agents(self, state: AgentCallState | AgentResultState) -> None:
        """Add a message between agents, after which the same answer may have further calls."""
        info: dict[str, Any] = {"correlation_id": state.correlation_id}
        if isinstance(state, AgentCallState):
            self._agents[state.correlation_id] = sendable(state.agent_id).strip()
            info |= {"kind": "call", "agent_id": self._agents[state.correlation_id]}
            row = {"role": "assistant", "content": _text(state.message), "tool_calls": []}
        else:
            info |= {"kind": "result", "agent_id": self._agents.get(state.correlation_id), "score": state.score}
            row = {"role": "user", "content": _text(state.result)}
        self._rows.append({**row, AGENT: info})


def _call(call_id: str, name: str, arguments: str) -> Row:
    return {"id": call_id, "type": "function", "function": {"name": name.strip() or UNNAMED, "arguments": arguments}}


def _own_message(state: BaseState) -> Row | None:
    """Return the message of a custom state.

    Raises:
        TypeError: it is not a message.
    """
    method = getattr(state, "message", None)
    row = method() if callable(method) else None
    match row:
        case None | {"role": "tool", "tool_call_id": str()} | {"role": "user" | "assistant" | "system" | "developer"}:
            return row
    raise TypeError(
        f"message() of {type(state).__name__} must return None or a message: a dict with the role user, assistant, "
        "system, developer, or tool with its tool_call_id."
    )


def _text(result: Any) -> str:
    """Return a result as text: unchanged, or as JSON."""
    text = sendable(result if isinstance(result, str) else as_json(result))
    return text if text.strip() else NO_OUTPUT


def _in_openai_format(message: Message) -> Row:
    rendered: Row = {"role": message.role, "content": _content(message)}
    if message.role == "tool":
        rendered["tool_call_id"] = message.tool_call_id
    if calls := calls_in_field(message):
        rendered["tool_calls"] = calls
    if message.model_extra and AGENT in message.model_extra:
        rendered[AGENT] = message.model_extra[AGENT]
    return rendered


def _content(message: Message) -> str | list[Row] | None:
    """Return text, or parts if a message of a person has images; images in results are named."""
    if isinstance(message.content, str):
        return message.content or None
    if message.role == "assistant":  # without thinking
        return "".join(block.text for block in message.content if isinstance(block, TextBlock)) or None
    parts = [part for block in message.content if (part := _part(block))]
    if message.role == "tool" or all(part["type"] == "text" for part in parts):
        return "\n".join(part["text"] if part["type"] == "text" else "[image]" for part in parts) or NO_OUTPUT
    return parts


def _part(block: ContentBlock) -> Row | None:
    match block:
        case TextBlock():
            return {"type": "text", "text": block.text}
        case ToolResultBlock():
            return {"type": "text", "text": _text(block.output)}
        case ImageBlock() if url := image_url(block.source):
            return {"type": "image_url", "image_url": {"url": url}}
        case ImageBlock():
            return {"type": "text", "text": "[image]"}
    return None
