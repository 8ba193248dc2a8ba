"""Convert a conversation to items for people, with each result at its call; text and page render these items."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import structlog

from orchestrator_interactive.interactions.rows import DeclaredCall, declared_calls, image_url
from orchestrator_interactive.interactions.serializers import read_state
from orchestrator_interactive.interactions.states import (
    AgentCallState,
    AgentResultState,
    AssistantMessageState,
    FinishedState,
    ToolCallState,
    ToolResultState,
    UserMessageState,
    UserResponseState,
    WaitingState,
)
from orchestrator_interactive.kernel.error_boundary import ErrorBoundary

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from orchestrator_interactive.interactions.records import Node
    from orchestrator_interactive.interactions.states import BaseState

# Maximum number of items to hold back for the result of an earlier call.
_MAX_HELD = 500
_AWAITED = {"llm": "the model", "user_input": "a person", "agent": "another agent", "tool": "a tool"}

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class ExportPart:
    """A part of a message. `text` of an image is its URL; a note describes a part without text."""

    kind: Literal["text", "code", "thinking", "image", "note"]
    text: str


@dataclass(frozen=True, slots=True)
class Section:
    """The start of a task."""

    episode: int
    ts: float


@dataclass(frozen=True, slots=True)
class ExportedText:
    """A message of a person or the agent, or a note; `name` is its heading, `notes` are details."""

    index: int
    ts: float
    who: Literal["person", "agent", "note"]
    name: str
    parts: tuple[ExportPart, ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ExportedResult:
    """The result of a call."""

    index: int
    ts: float
    outcome: Literal["done", "failed", "at work"]
    parts: tuple[ExportPart, ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ExportedQuestion:
    """A call of a tool, or a request to another agent, with its result if there is one.

    A call without `has_begun` is only declared in an answer, whose position it has.
    """

    index: int
    ts: float
    target: Literal["tool", "agent"]
    name: str
    call_id: str
    arguments: str
    result: ExportedResult | None = None
    has_begun: bool = True


@dataclass(frozen=True, slots=True)
class ExportMark:
    """An event shown in one line; `until` is a deadline in seconds since the epoch."""

    index: int
    ts: float
    kind: Literal["waiting", "finished", "damaged", "other"]
    text: str
    parts: tuple[ExportPart, ...] = ()
    until: float | None = None


Item = Section | ExportedText | ExportedQuestion | ExportMark


async def items_of(nodes: AsyncIterator[Node]) -> AsyncIterator[Item]:
    """Yield the items of a conversation; only items after a call without a result are buffered."""
    held = _Held()
    episode = 0
    async for node in nodes:
        if node.episode not in (0, episode):
            episode = node.episode
            held.items.append(Section(episode, node.envelope["ts"]))
        held.take(node)
        if not held.waits_for or len(held.items) > _MAX_HELD:
            for item in held.flush():
                yield item
    held.flush_declared()
    for item in held.flush():
        yield item


class _Held:
    """Items that are held back until the result of an earlier call arrives."""

    def __init__(self) -> None:
        self.items: list[Item] = []
        self.waits_for: dict[str, int] = {}  # index in `items` by call id
        self._declared: dict[str, tuple[Node, DeclaredCall]] = {}

    def flush(self) -> list[Item]:
        items, self.items, self.waits_for = self.items, [], {}
        return items

    def flush_declared(self) -> None:
        """Append the calls that were declared but never began."""
        for node, call in self._declared.values():
            self.items.append(_question(node, call, has_begun=False))
        self._declared, self.waits_for = {}, {}

    def take(self, node: Node) -> None:
        state, problem = read_state(node)
        match state:
            case AssistantMessageState(content=content, tool_calls=tool_calls):
                self.flush_declared()
                self.items.append(_item_of(node, state))
                self._declared = {call.id: (node, call) for call in declared_calls(content, tool_calls)}
            case ToolCallState():
                self._declared.pop(state.id, None)
                self._add_call(_question(node, DeclaredCall(state.id, state.function_name, as_json(state.arguments))))
            case AgentCallState():
                call = DeclaredCall(state.correlation_id, state.agent_id, state.message)
                self._add_call(_question(node, call, target="agent"))
            case ToolResultState(tool_call_id=call_id) | AgentResultState(correlation_id=call_id):
                self._add_result(node, state, call_id)
            case None:
                self.items.append(ExportMark(node.index, node.envelope["ts"], "damaged", problem or ""))
            case _:
                self.items.append(_item_of(node, state))

    def _add_call(self, question: ExportedQuestion) -> None:
        self.waits_for[question.call_id] = len(self.items)
        self.items.append(question)

    def _add_result(self, node: Node, state: ToolResultState | AgentResultState, call_id: str) -> None:
        if declared := self._declared.pop(call_id, None):
            self._add_call(_question(*declared, has_begun=False))
        place = self.waits_for.pop(call_id, None)
        question = None if place is None else self.items[place]
        result = _call_result(node, state)
        if place is not None and isinstance(question, ExportedQuestion):
            self.items[place] = replace(question, result=result)
        else:
            name = getattr(state, "tool_name", None) or "another agent"
            notes = (f"of the call {call_id}", *result.notes)
            self.items.append(ExportedText(result.index, result.ts, "note", f"Result of {name}", result.parts, notes))


def _question(
    node: Node, call: DeclaredCall, *, target: Literal["tool", "agent"] = "tool", has_begun: bool = True
) -> ExportedQuestion:
    ts = node.envelope["ts"]
    return ExportedQuestion(node.index, ts, target, call.name, call.id, call.arguments, has_begun=has_begun)


def _call_result(node: Node, state: ToolResultState | AgentResultState) -> ExportedResult:
    meta = _meta(state)
    outcome: Literal["done", "failed", "at work"] = "at work" if meta.get("pending") else "done"
    ratings = {name: getattr(state, name, None) for name in ("reward", "score")}
    notes = [f"{name} {value}" for name, value in ratings.items() if value is not None]
    if "whole" in meta:
        notes.append("shortened for the model")
    parts = tuple(_result_parts(state.result))
    return ExportedResult(
        node.index, node.envelope["ts"], "failed" if meta.get("is_error") else outcome, parts, tuple(notes)
    )


def _item_of(node: Node, state: BaseState) -> Item:
    """Return the item of a state that is neither a call nor a result."""
    index, ts, details = node.index, node.envelope["ts"], tuple(_details(state))
    match state:
        case UserMessageState(text=content):
            who, name, notes = _speaker(node, _meta(state))
            return ExportedText(index, ts, who, name, tuple(_parts_of(content)), (*notes, *details))
        case UserResponseState(text=content):
            return ExportedText(index, ts, "person", "Person", tuple(_parts_of(content)), ("in response", *details))
        case AssistantMessageState(content=content):
            name = "Judgement" if state.is_reflection else "Agent"
            kind: Literal["agent", "note"] = "note" if state.is_reflection else "agent"
            return ExportedText(index, ts, kind, name, tuple(_parts_of(content)), details)
        case WaitingState():
            which = f" ({state.correlation_id})" if state.correlation_id else ""
            return ExportMark(index, ts, "waiting", f"Waiting for {_AWAITED[state.kind]}{which}", until=state.deadline)
        case FinishedState():
            return ExportMark(index, ts, "finished", "Finished")
    return _custom(node, state)


def _custom(node: Node, state: BaseState) -> Item:
    index, ts = node.index, node.envelope["ts"]
    message = _call_method(state, "message")
    if isinstance(message, dict):
        name = f"{str(message.get('role')).capitalize()} message"
        return ExportedText(index, ts, "note", name, tuple(_parts_of(message.get("content"))))
    note = _call_method(state, "note")
    if isinstance(note, str):
        return ExportMark(index, ts, "other", note)
    return ExportMark(index, ts, "other", node.envelope["t"], (ExportPart("code", as_json(state.data())),))


def _call_method(state: BaseState, method: str) -> Any:
    """Call a method of a custom state; return None if it is missing or fails, so that its data are shown."""
    with ErrorBoundary(log, "export.state_failed", kind=type(state).__name__, method=method):
        return getattr(state, method)() if callable(getattr(state, method, None)) else None
    return None


def _speaker(node: Node, meta: dict[str, Any]) -> tuple[Literal["person", "note"], str, tuple[str, ...]]:
    if isinstance(meta.get("results"), list):
        return "note", "Late result", ()
    if "notices" in meta:
        return "note", "Notice", ()
    if meta.get("source") == "hook":
        return "note", "Remark of a hook", ()
    if isinstance(ids := meta.get("injections"), list):
        which = (f"message {', '.join(map(str, ids))}",) if ids else ()
        return "person", "Person", ("while the agent was at work", *which)
    if node.parents:
        return "person", "Another agent", (f"asked by {node.parents[0]}",)
    return "person", "Person", ()


def _details(state: BaseState) -> Iterator[str]:
    """Yield details from `meta` for people."""
    raw, usage = getattr(state, "meta", None), _meta(state).get("usage")
    if isinstance(raw, str) and raw:
        yield raw
    if isinstance(usage, dict):
        counts = [(usage.get("input_tokens"), "in"), (usage.get("output_tokens"), "out")]
        tokens = [f"{count:,} {name}" for count, name in counts if isinstance(count, int)]
        if tokens:
            yield f"tokens: {', '.join(tokens)}"
        if usage.get("cost_usd") is not None:
            yield f"${usage['cost_usd']}"


def _meta(state: BaseState) -> dict[str, Any]:
    meta = getattr(state, "meta", None)
    return meta if isinstance(meta, dict) else {}


def _parts_of(content: Any) -> Iterator[ExportPart]:
    """Split a message's content into parts that are rendered differently."""
    if isinstance(content, str):
        content = [{"type": "text", "text": content}]
    for block in content if isinstance(content, list) else ():
        match block:
            case {"type": "text", "text": str(text)}:
                if text.strip("\n"):
                    yield ExportPart("text", text.strip("\n"))
            case {"type": "thinking", "thinking": str(text)}:
                yield ExportPart("thinking", text)
            case {"type": "redacted_thinking"}:
                yield ExportPart("note", "Thinking that the provider does not disclose.")
            case {"type": "image", "source": source} if url := image_url(source):
                yield ExportPart("image", url)
            case {"type": "tool_call"}:
                continue
            case _:
                yield ExportPart("code", as_json(block))


def _result_parts(result: Any) -> Iterator[ExportPart]:
    if isinstance(result, list) and result and all(isinstance(each, dict) and "type" in each for each in result):
        for part in _parts_of(result):
            yield replace(part, kind="code") if part.kind == "text" else part
    else:
        yield ExportPart("code", result if isinstance(result, str) else as_json(result))


def as_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, indent=2, default=str)
