"""A conversation as people read it: what was said and done, results with their calls; the same for every form."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import structlog

from orchestrator_interactive.interactions.artifacts import read_state
from orchestrator_interactive.interactions.export.parts import ExportPart, as_json, parts_of, result_parts
from orchestrator_interactive.interactions.rendering.openai_format import RenderedCall, declared_calls
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

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from orchestrator_interactive.interactions.records import Node
    from orchestrator_interactive.interactions.states import BaseState

# Of items that wait for the result of a call before them.
_MOST_HELD = 500


log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Section:
    """A task begins."""

    episode: int
    ts: float


@dataclass(frozen=True, slots=True)
class ExportedText:
    """Something that somebody said.

    Args:
        who: "person", "agent", or "note" for what neither of them said.
        name: what stands above it.
        remarks: what is worth knowing beside it.
    """

    index: int
    ts: float
    who: Literal["person", "agent", "note"]
    name: str
    parts: tuple[ExportPart, ...]
    remarks: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Brought:
    """What came of a call."""

    index: int
    ts: float
    outcome: Literal["done", "failed", "at work"]
    parts: tuple[ExportPart, ...]
    remarks: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ExportedQuestion:
    """A call of a tool, or of another agent.

    Args:
        whom: it asks.
        given: the arguments or the message.
        result: `None`: there is none.
        has_begun: there is a state of it; else an answer declares it, whose place it has.
    """

    index: int
    ts: float
    whom: Literal["tool", "agent"]
    name: str
    call_id: str
    given: str
    result: Brought | None = None
    has_begun: bool = True


@dataclass(frozen=True, slots=True)
class ExportMark:
    """Something that is told in a line; `until` is a deadline in seconds since the epoch."""

    index: int
    ts: float
    kind: Literal["waiting", "finished", "damaged", "other"]
    text: str
    parts: tuple[ExportPart, ...] = ()
    until: float | None = None


Item = Section | ExportedText | ExportedQuestion | ExportMark


async def transcript(nodes: AsyncIterator[Node]) -> AsyncIterator[Item]:
    """The items of a conversation; nothing is held but what stands behind a call without its result so far."""
    held = _Held()
    episode = 0
    async for node in nodes:
        state, problem = read_state(node)
        if node.episode not in (0, episode):
            episode = node.episode
            held.items.append(Section(episode, node.envelope["ts"]))
        if isinstance(state, AssistantMessageState):
            held.give_up()
        held.take(node, state, problem)
        if not held.waits_for or len(held.items) > _MOST_HELD:
            for item in held.let_go():
                yield item
    held.give_up()
    for item in held.let_go():
        yield item


class _Held:
    """Items that are not told yet, because a result is to be put with its call."""

    def __init__(self) -> None:
        self.items: list[Item] = []
        self.waits_for: dict[str, int] = {}  # the ids of calls, and where these stand among the items
        self._declared: dict[str, tuple[Node, RenderedCall]] = {}

    def let_go(self) -> list[Item]:
        items, self.items, self.waits_for = self.items, [], {}
        return items

    def give_up(self) -> None:
        """Tell of calls that never began."""
        for node, call in self._declared.values():
            self.items.append(replace(_asked(node, call), has_begun=False))
        self._declared, self.waits_for = {}, {}

    def take(self, node: Node, state: BaseState | None, problem: str | None) -> None:
        match state:
            case AssistantMessageState(content=content, tool_calls=beside):
                self.items += _said(node, state)
                self._declared = {call.id: (node, call) for call in declared_calls(content, beside)}
            case ToolCallState():
                self._declared.pop(state.id, None)
                self._ask(_asked(node, RenderedCall(state.id, state.function_name, as_json(state.arguments))))
            case AgentCallState():
                call = RenderedCall(state.correlation_id, state.agent_id, state.message)
                self._ask(replace(_asked(node, call), whom="agent"))
            case ToolResultState(tool_call_id=call_id) | AgentResultState(correlation_id=call_id):
                self._answer(node, state, call_id)
            case None:
                self.items.append(ExportMark(node.index, node.envelope["ts"], "damaged", problem or ""))
            case _:
                self.items += _said(node, state)

    def _ask(self, asked: ExportedQuestion) -> None:
        self.waits_for[asked.call_id] = len(self.items)
        self.items.append(asked)

    def _answer(self, node: Node, state: ToolResultState | AgentResultState, call_id: str) -> None:
        if declared := self._declared.pop(call_id, None):
            self._ask(replace(_asked(*declared), has_begun=False))
        place = self.waits_for.pop(call_id, None)
        asked = None if place is None else self.items[place]
        brought = _brought(node, state)
        if place is not None and isinstance(asked, ExportedQuestion):
            self.items[place] = replace(asked, result=brought)
        else:
            name = getattr(state, "tool_name", None) or "another agent"
            remarks = (f"of the call {call_id}", *brought.remarks)
            self.items.append(
                ExportedText(brought.index, brought.ts, "note", f"Result of {name}", brought.parts, remarks)
            )


def _asked(node: Node, call: RenderedCall) -> ExportedQuestion:
    return ExportedQuestion(node.index, node.envelope["ts"], "tool", call.name, call.id, call.arguments)


def _brought(node: Node, state: ToolResultState | AgentResultState) -> Brought:
    meta = _meta(state)
    outcome: Literal["done", "failed", "at work"] = "done"
    if meta.get("is_error"):
        outcome = "failed"
    elif meta.get("pending"):
        outcome = "at work"
    judged = {name: getattr(state, name, None) for name in ("reward", "score")}
    remarks = [f"{name} {value}" for name, value in judged.items() if value is not None]
    if "whole" in meta:
        remarks.append("shortened for the model")
    return Brought(node.index, node.envelope["ts"], outcome, tuple(result_parts(state.result)), tuple(remarks))


def _said(node: Node, state: BaseState) -> Iterator[Item]:
    """What is told of a state that is neither a call nor a result."""
    index, ts = node.index, node.envelope["ts"]
    match state:
        case UserMessageState(text=content):
            who, name, remarks = _speaker(node, _meta(state))
            yield ExportedText(index, ts, who, name, tuple(parts_of(content)), (*remarks, *_told(state)))
        case UserResponseState(text=content):
            yield ExportedText(index, ts, "person", "Person", tuple(parts_of(content)), ("in response", *_told(state)))
        case AssistantMessageState(content=content, is_reflection=judges):
            parts, remarks = tuple(parts_of(content)), tuple(_told(state))
            if judges:
                yield ExportedText(index, ts, "note", "Judgement", parts, remarks)
            else:
                yield ExportedText(index, ts, "agent", "Agent", parts, remarks)
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
    message = _told_by(state, "message")
    if isinstance(message, dict):
        name = f"{str(message.get('role')).capitalize()} message"
        return ExportedText(index, ts, "note", name, tuple(parts_of(message.get("content"))))
    note = _told_by(state, "note")
    if isinstance(note, str):
        return ExportMark(index, ts, "other", note)
    return ExportMark(index, ts, "other", node.envelope["t"], (ExportPart("code", as_json(state.data())),))


def _told_by(state: BaseState, method: str) -> Any:
    """What a state of somebody else says of itself; where it says nothing, or fails at it, its data are shown."""
    try:
        return getattr(state, method)() if callable(getattr(state, method, None)) else None
    except Exception:  # the border to somebody else's code: one state does not take the page along
        log.exception("export.state_failed", kind=type(state).__name__, method=method)
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


def _told(state: BaseState) -> Iterator[str]:
    """What `meta` says that people may want to know."""
    given, meta = getattr(state, "meta", None), _meta(state)
    if isinstance(given, str) and given:
        yield given
    if isinstance(usage := meta.get("usage"), dict):
        counts = [(usage.get("input_tokens"), "in"), (usage.get("output_tokens"), "out")]
        told = [f"{count:,} {name}" for count, name in counts if isinstance(count, int)]
        if told:
            yield f"tokens: {', '.join(told)}"
        if usage.get("cost_usd") is not None:
            yield f"${usage['cost_usd']}"


def _meta(state: BaseState) -> dict[str, Any]:
    meta = getattr(state, "meta", None)
    return meta if isinstance(meta, dict) else {}
