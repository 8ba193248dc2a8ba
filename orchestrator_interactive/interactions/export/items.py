"""Convert a conversation to items for people, with each result at its call; text and page render these items."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import structlog

from orchestrator_interactive.interactions.rows import DeclaredCall, declared_calls, image_url
from orchestrator_interactive.interactions.serializers import read_state
from orchestrator_interactive.interactions.states import (
    AgentCallState,
    AgentResultState,
    AssistantMessageState,
    BaseState,
    FinishedState,
    RunFinishedState,
    ToolCallState,
    ToolResultState,
    UserMessageState,
    UserResponseState,
    WaitingState,
)
from orchestrator_interactive.kernel.error_boundary import ErrorBoundary
from orchestrator_interactive.transcript.framing import ReadMessage, read_messages

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from orchestrator_interactive.interactions.records import Node

# A message; a call of a tool or a request to another agent; the outcome of one; an event in one line; a task
Message = Literal["person", "agent", "note"]
Kind = (
    Message | Literal["call", "request", "done", "failed", "at work", "waiting", "finished", "damaged", "other", "task"]
)
# Maximum number of items to hold back for the result of an earlier call.
_MAX_HELD = 500
# A row with these metadata has messages of people, each with its author's name and id.
_MESSAGES = frozenset({"message", "messages", "injections", "talk"})
# A mention in a message: a name and a user id.
_MENTION = re.compile(r"(@[^@()\n]{1,80}) \([UW][A-Z0-9]+\)")
_AWAITED = {"llm": "the model", "user_input": "a person", "agent": "another agent", "tool": "a tool"}

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class ExportPart:
    """A part of a message. `text` of an image is its URL; a note describes a part without text."""

    kind: Literal["text", "code", "thinking", "image", "note"]
    text: str


@dataclass(frozen=True, slots=True)
class Item:
    """A state, or the start of a task.

    Args:
        kind: see `Kind`.
        index: position of the state; the number of a task.
        ts: seconds since the epoch.
        title: name of a speaker or a tool; the text of an event.
        parts: content; the arguments of a call.
        notes: details.
        call_id: of a call.
        has_begun: False for a call that is only declared in an answer; it has the answer's position.
        result: of a call.
        until: deadline in seconds since the epoch.
    """

    kind: Kind
    index: int
    ts: float
    title: str = ""
    parts: tuple[ExportPart, ...] = ()
    notes: tuple[str, ...] = ()
    call_id: str = ""
    has_begun: bool = True
    result: Item | None = None
    until: float | None = None


async def items_of(nodes: AsyncIterator[Node]) -> AsyncIterator[Item]:
    """Yield the items of a conversation; only items after a call without a result are buffered."""
    held = _Held()
    episode = 0
    async for node in nodes:
        if node.episode not in (0, episode):
            episode = node.episode
            held.items.append(Item("task", episode, node.envelope["ts"]))
        held.take(node)
        if not held.waits_for or len(held.items) > _MAX_HELD:
            for item in held.flush():
                yield item
    held.flush_declared()
    for item in held.items:
        yield item


class _Held:
    """The items to hold back, the places of calls among them, and the calls that were declared but have not begun."""

    def __init__(self) -> None:
        self.items: list[Item] = []
        self.waits_for: dict[str, int] = {}  # index in `items` by call id
        self._declared: dict[str, Item] = {}

    def flush(self) -> list[Item]:
        items, self.items, self.waits_for = self.items, [], {}
        return items

    def flush_declared(self) -> None:
        """Append the calls that were declared but never began."""
        self.items += self._declared.values()
        self._declared, self.waits_for = {}, {}

    def take(self, node: Node) -> None:
        index, ts = node.index, node.envelope["ts"]
        state, problem = read_state(node)
        match state:
            case None:
                self.items.append(Item("damaged", index, ts, f"Damaged: {problem}"))
            case ToolCallState(call_id, name, arguments):
                self._declared.pop(call_id, None)
                self._add_call(_call(node, DeclaredCall(call_id, name, as_json(arguments))))
            case AgentCallState(agent_id, message, call_id):
                question = (ExportPart("text", message),)
                self._add_call(Item("request", index, ts, agent_id, question, call_id=call_id))
            case ToolResultState(call_id, name) | AgentResultState(call_id, name):
                self._add_result(call_id, name if isinstance(state, ToolResultState) else None, _result(node, state))
            case AssistantMessageState(content, tool_calls):
                self.flush_declared()
                self.items.append(_item_of(node, state))
                calls = declared_calls(content, tool_calls)
                self._declared = {call.id: replace(_call(node, call), has_begun=False) for call in calls}
            case _:
                self.items.append(_item_of(node, state))

    def _add_call(self, call: Item) -> None:
        self.waits_for[call.call_id] = len(self.items)
        self.items.append(call)

    def _add_result(self, call_id: str, tool: str | None, result: Item) -> None:
        if declared := self._declared.pop(call_id, None):
            self._add_call(declared)
        place = self.waits_for.pop(call_id, None)
        if place is not None:
            self.items[place] = replace(self.items[place], result=result)
        else:
            title, notes = f"Result of {tool or 'another agent'}", (f"of the call {call_id}", *result.notes)
            self.items.append(replace(result, kind="note", title=title, notes=notes))


def _call(node: Node, call: DeclaredCall) -> Item:
    arguments = (ExportPart("code", call.arguments),)
    return Item("call", node.index, node.envelope["ts"], call.name, arguments, call_id=call.id)


def _result(node: Node, state: ToolResultState | AgentResultState) -> Item:
    meta = _meta(state)
    kind: Kind = "failed" if meta.get("is_error") else "at work" if meta.get("pending") else "done"
    ratings = {name: getattr(state, name, None) for name in ("reward", "score")}
    notes = [f"{name} {value}" for name, value in ratings.items() if value is not None]
    if "whole" in meta:
        notes.append("shortened for the model")
    content = state.result
    if isinstance(content, list) and content and all(isinstance(each, dict) and "type" in each for each in content):
        parts = [replace(part, kind="code") if part.kind == "text" else part for part in _parts_of(content)]
    else:
        parts = [ExportPart("code", content if isinstance(content, str) else as_json(content))]
    return Item(kind, node.index, node.envelope["ts"], kind, tuple(parts), tuple(notes))


def _item_of(node: Node, state: BaseState) -> Item:
    """Return the item of a state that is neither a call nor a result."""
    index, ts, details = node.index, node.envelope["ts"], tuple(_details(state))
    match state:
        case UserMessageState(content):
            kind, name, notes = _speaker(node, _meta(state))
            item = Item(kind, index, ts, name, tuple(_parts_of(content)), (*notes, *details))
            return _with_names(item) if _MESSAGES & _meta(state).keys() else item
        case UserResponseState(content):
            return Item("person", index, ts, "Person", tuple(_parts_of(content)), ("in response", *details))
        case AssistantMessageState(content):
            kind, name = ("note", "Judgement") if state.is_reflection else ("agent", "Agent")
            return Item(kind, index, ts, name, tuple(_parts_of(content)), details)
        case WaitingState(kind=awaited):
            which = f" ({state.correlation_id})" if state.correlation_id else ""
            return Item("waiting", index, ts, f"Waiting for {_AWAITED[awaited]}{which}", until=state.deadline)
        case FinishedState():
            title = f"End of the run: {state.status}" if isinstance(state, RunFinishedState) else "Finished"
            return Item("finished", index, ts, title)
    return _custom(index, ts, state)


def _custom(index: int, ts: float, state: BaseState) -> Item:
    message = _call_method(state, "message")
    if isinstance(message, dict):
        name = f"{str(message.get('role')).capitalize()} message"
        return Item("note", index, ts, name, tuple(_parts_of(message.get("content"))))
    note = _call_method(state, "note")
    if isinstance(note, str):
        return Item("other", index, ts, note)
    return Item("other", index, ts, type(state).__name__, (ExportPart("code", as_json(state.data())),))


def _call_method(state: BaseState, method: str) -> Any:
    """Call a method of a custom state; return None if it is missing or fails, so that its data are shown."""
    with ErrorBoundary(log, "export.state_failed", kind=type(state).__name__, method=method):
        return getattr(state, method)() if callable(getattr(state, method, None)) else None
    return None


def _speaker(node: Node, meta: dict[str, Any]) -> tuple[Message, str, tuple[str, ...]]:
    match meta:
        case {"results": list()}:
            return "note", "Late result", ()
        case {"notices": _} | {"talk": _}:
            return "note", "Notice" if "notices" in meta else "Talk in the thread", ()
        case {"source": "hook"}:
            return "note", "Remark of a hook", ()
        case {"injections": list(ids)}:
            which = (f"message {', '.join(map(str, ids))}",) if ids else ()
            return "person", "Person", ("while the agent was at work", *which)
    if node.parents:
        return "person", "Another agent", (f"asked by {node.parents[0]}",)
    return "person", "Person", ()


def _with_names(item: Item) -> Item:
    """Replace the headers of messages by the names of their authors, and drop user ids."""
    parts, names, files = [], [], []
    for part in item.parts:
        messages = read_messages(part.text) if part.kind == "text" else []
        names += [each.name for each in messages if not each.time]
        files += [f"with files {each.files}" for each in messages if each.files]
        texts = [
            each.text if len(messages) == 1 and not each.time else f"{_speaker_of(each)}: {each.text}"
            for each in messages
        ]
        parts += [ExportPart("text", _MENTION.sub(r"\1", text)) for text in texts if text] if messages else [part]
    title = ", ".join(dict.fromkeys(names)) or item.title
    return replace(item, title=title, parts=tuple(parts), notes=(*files, *item.notes))


def _speaker_of(message: ReadMessage) -> str:
    return f"{message.name}, {message.time} (not to the agent)" if message.time else message.name


def _details(state: BaseState) -> Iterator[str]:
    """Yield details from `meta` for people."""
    raw, usage = getattr(state, "meta", None), _meta(state).get("usage")
    if isinstance(raw, str) and raw:
        yield raw
    if isinstance(usage, dict):
        counts = [(usage.get("input_tokens"), "in"), (usage.get("output_tokens"), "out")]
        if tokens := [f"{count:,} {name}" for count, name in counts if isinstance(count, int)]:
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


def as_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, indent=2, default=str)
