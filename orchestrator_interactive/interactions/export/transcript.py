"""Convert a conversation to items for people, with each result at its call; all text formats use these items."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import structlog

from orchestrator_interactive.interactions.artifacts import read_state
from orchestrator_interactive.interactions.export.parts import ExportPart, as_json, parts_of, result_parts
from orchestrator_interactive.interactions.rows import DeclaredCall, declared_calls
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


log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Section:
    """The start of a task."""

    episode: int
    ts: float


@dataclass(frozen=True, slots=True)
class ExportedText:
    """A message or a note.

    Args:
        who: "person", "agent", or "note" for other texts.
        name: heading.
        notes: additional details.
    """

    index: int
    ts: float
    who: Literal["person", "agent", "note"]
    name: str
    parts: tuple[ExportPart, ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CallResult:
    """The result of a call."""

    index: int
    ts: float
    outcome: Literal["done", "failed", "at work"]
    parts: tuple[ExportPart, ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ExportedQuestion:
    """A call of a tool, or a request to another agent.

    Args:
        target: kind of the callee.
        arguments: the arguments or the message.
        result: `None` if there is none.
        has_begun: the call has a state of its own; otherwise it is only declared in an answer, whose position it has.
    """

    index: int
    ts: float
    target: Literal["tool", "agent"]
    name: str
    call_id: str
    arguments: str
    result: CallResult | None = None
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


async def transcript(nodes: AsyncIterator[Node]) -> AsyncIterator[Item]:
    """Yield the items of a conversation; only items after a call without a result are buffered."""
    held = _Held()
    episode = 0
    async for node in nodes:
        state, problem = read_state(node)
        if node.episode not in (0, episode):
            episode = node.episode
            held.items.append(Section(episode, node.envelope["ts"]))
        if isinstance(state, AssistantMessageState):
            held.flush_declared()
        held.take(node, state, problem)
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
            self.items.append(replace(_question(node, call), has_begun=False))
        self._declared, self.waits_for = {}, {}

    def take(self, node: Node, state: BaseState | None, problem: str | None) -> None:
        match state:
            case AssistantMessageState(content=content, tool_calls=tool_calls):
                self.items += _items_of(node, state)
                self._declared = {call.id: (node, call) for call in declared_calls(content, tool_calls)}
            case ToolCallState():
                self._declared.pop(state.id, None)
                self._add_call(_question(node, DeclaredCall(state.id, state.function_name, as_json(state.arguments))))
            case AgentCallState():
                call = DeclaredCall(state.correlation_id, state.agent_id, state.message)
                self._add_call(replace(_question(node, call), target="agent"))
            case ToolResultState(tool_call_id=call_id) | AgentResultState(correlation_id=call_id):
                self._add_result(node, state, call_id)
            case None:
                self.items.append(ExportMark(node.index, node.envelope["ts"], "damaged", problem or ""))
            case _:
                self.items += _items_of(node, state)

    def _add_call(self, question: ExportedQuestion) -> None:
        self.waits_for[question.call_id] = len(self.items)
        self.items.append(question)

    def _add_result(self, node: Node, state: ToolResultState | AgentResultState, call_id: str) -> None:
        if declared := self._declared.pop(call_id, None):
            self._add_call(replace(_question(*declared), has_begun=False))
        place = self.waits_for.pop(call_id, None)
        question = None if place is None else self.items[place]
        result = _call_result(node, state)
        if place is not None and isinstance(question, ExportedQuestion):
            self.items[place] = replace(question, result=result)
        else:
            name = getattr(state, "tool_name", None) or "another agent"
            notes = (f"of the call {call_id}", *result.notes)
            self.items.append(ExportedText(result.index, result.ts, "note", f"Result of {name}", result.parts, notes))


def _question(node: Node, call: DeclaredCall) -> ExportedQuestion:
    return ExportedQuestion(node.index, node.envelope["ts"], "tool", call.name, call.id, call.arguments)


def _call_result(node: Node, state: ToolResultState | AgentResultState) -> CallResult:
    meta = _meta(state)
    outcome: Literal["done", "failed", "at work"] = "done"
    if meta.get("is_error"):
        outcome = "failed"
    elif meta.get("pending"):
        outcome = "at work"
    ratings = {name: getattr(state, name, None) for name in ("reward", "score")}
    notes = [f"{name} {value}" for name, value in ratings.items() if value is not None]
    if "whole" in meta:
        notes.append("shortened for the model")
    return CallResult(node.index, node.envelope["ts"], outcome, tuple(result_parts(state.result)), tuple(notes))


def _items_of(node: Node, state: BaseState) -> Iterator[Item]:
    """Yield the items of a state that is neither a call nor a result."""
    index, ts = node.index, node.envelope["ts"]
    match state:
        case UserMessageState(text=content):
            who, name, notes = _speaker(node, _meta(state))
            yield ExportedText(index, ts, who, name, tuple(parts_of(content)), (*notes, *_details(state)))
        case UserResponseState(text=content):
            yield ExportedText(
                index, ts, "person", "Person", tuple(parts_of(content)), ("in response", *_details(state))
            )
        case AssistantMessageState(content=content, is_reflection=is_reflection):
            parts, notes = tuple(parts_of(content)), tuple(_details(state))
            if is_reflection:
                yield ExportedText(index, ts, "note", "Judgement", parts, notes)
            else:
                yield ExportedText(index, ts, "agent", "Agent", parts, notes)
        case WaitingState():
            whom = {"llm": "the model", "user_input": "a person", "agent": "another agent"}.get(state.kind, "a tool")
            which = f" ({state.correlation_id})" if state.correlation_id else ""
            yield ExportMark(index, ts, "waiting", f"Waiting for {whom}{which}", until=state.deadline)
        case FinishedState():
            yield ExportMark(index, ts, "finished", "Finished")
        case _:
            yield _custom(node, state)


def _custom(node: Node, state: BaseState) -> Item:
    index, ts = node.index, node.envelope["ts"]
    message = _call_method(state, "message")
    if isinstance(message, dict):
        name = f"{str(message.get('role')).capitalize()} message"
        return ExportedText(index, ts, "note", name, tuple(parts_of(message.get("content"))))
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
    raw, meta = getattr(state, "meta", None), _meta(state)
    if isinstance(raw, str) and raw:
        yield raw
    if isinstance(usage := meta.get("usage"), dict):
        counts = [(usage.get("input_tokens"), "in"), (usage.get("output_tokens"), "out")]
        tokens = [f"{count:,} {name}" for count, name in counts if isinstance(count, int)]
        if tokens:
            yield f"tokens: {', '.join(tokens)}"
        if usage.get("cost_usd") is not None:
            yield f"${usage['cost_usd']}"


def _meta(state: BaseState) -> dict[str, Any]:
    meta = getattr(state, "meta", None)
    return meta if isinstance(meta, dict) else {}
