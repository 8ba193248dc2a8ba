"""Choose the demo's next step: a pure function of the conversation and the available tools."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from orchestrator_interactive.kernel.contracts.messages import TextBlock, ToolCallBlock
from orchestrator_interactive.modules.provider_demo import intents
from orchestrator_interactive.modules.provider_demo.answers import afterwards, answer, while_waiting
from orchestrator_interactive.modules.provider_demo.conversation import task_of
from orchestrator_interactive.modules.provider_demo.rows import PAUSE, DemoText
from orchestrator_interactive.modules.provider_demo.subject import (
    hits,
    listed_files,
    longest_word,
    search_call,
    subject_of,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from orchestrator_interactive.kernel.contracts.messages import ContentBlock, Message
    from orchestrator_interactive.modules.provider_demo.conversation import Task
    from orchestrator_interactive.modules.provider_demo.subject import DemoSubject

    Call = tuple[str, dict[str, Any]]

_CALL_ID = re.compile(r"demo-(\d+)")
# Number of words of both pause sentences: the part that was shown measures the elapsed pause.
_PAUSE_WORDS = 10
_MAX_WORDS = 15
_LONG_ANSWER = (
    "This answer is longer than a model may write at once. The demo stops it after fifteen words and reports that it "
    "was cut; then it is asked to continue, until all of it is there: you should read it in one piece."
)


@dataclass(frozen=True, slots=True)
class DemoStep:
    """One answer of the model. Its first paragraph takes `wait_s` seconds if the user asked for a delay.

    `refusal` is the explanation if `finish_reason` is `"refusal"`.
    """

    blocks: list[ContentBlock]
    wait_s: float = 0.0
    finish_reason: str = "end_turn"
    refusal: str | None = None


def plan(messages: Sequence[Message], tool_names: Collection[str]) -> list[ContentBlock]:
    """Return the blocks of the next answer."""
    return next_step(messages, tool_names).blocks


def next_step(messages: Sequence[Message], tool_names: Collection[str]) -> DemoStep:
    """Return the next answer: tool calls while there are open steps, then text."""
    task = task_of(messages)
    if scripted := _scripted(task):
        return scripted
    if task.afterwards:
        return DemoStep([TextBlock(text=afterwards(task.afterwards))])
    subject = subject_of(task)
    if calls := _next_calls(subject, tool_names):
        lead = _lead(subject, calls)
        first = _last_call_number(messages) + 1
        blocks: list[ContentBlock] = [TextBlock(text=lead)] if lead else []
        blocks += [ToolCallBlock(id=f"demo-{n}", name=call[0], input=call[1]) for n, call in enumerate(calls, first)]
        return DemoStep(blocks, finish_reason="tool_use")
    if task.pending and not subject.is_to_answer_now:
        return DemoStep([TextBlock(text=while_waiting(subject))])
    pause, wait_s = _pause(subject)
    return DemoStep([TextBlock(text=pause + answer(subject, tool_names))], wait_s)


def _pause(subject: DemoSubject) -> tuple[str, float]:
    """Return the text and duration of the requested pause; an interrupted pause continues."""
    if subject.is_to_answer_now:
        return "", 0.0
    requested_s = left_s = intents.wait_s(subject.task.prompt)
    for said in subject.task.cut_pauses:
        left_s *= max(0, _PAUSE_WORDS - len(said.split())) / _PAUSE_WORDS
    if left_s == requested_s:
        return (f"{PAUSE}{requested_s:g} seconds, as you asked.\n\n" if requested_s else ""), requested_s
    return (f"{PAUSE}{left_s:.0f} seconds are still left.\n\n", left_s) if left_s >= 2 else ("", 0.0)


def _scripted(task: Task) -> DemoStep | None:
    """Return an answer with the ending that the prompt requests, to demonstrate its handling."""
    match "" if task.wrote else task.prompt.strip():
        case "demo: refuse":
            return DemoStep([], finish_reason="refusal", refusal="The demo refuses because you asked for it.")
        case "demo: cut":
            said = sum(len(step.text.split()) for step in task.steps if isinstance(step, DemoText))
            words = _LONG_ANSWER.split()[said:]
            piece, is_cut = words[:_MAX_WORDS], len(words) > _MAX_WORDS
            text = " ".join(piece) + (" " if is_cut else "")
            return DemoStep([TextBlock(text=text)], finish_reason="max_tokens" if is_cut else "end_turn")
    return None


def _next_calls(subject: DemoSubject, tool_names: Collection[str]) -> list[Call]:
    """Return the calls for messages first, then those of the task unless a message asks for the answer."""
    task = subject.task
    requests = [requested for _, requested in subject.requests if not isinstance(requested, intents.Review)]
    calls = [call for requested in requests for call in _not_called(task, requested, tool_names)]
    if not calls and not subject.is_to_answer_now:
        calls = _not_called(task, subject.intent, tool_names)
    return [call for i, call in enumerate(calls) if call not in calls[:i]]


def _not_called(task: Task, intent: intents.Intent, tool_names: Collection[str]) -> list[Call]:
    """Return the missing calls of the first incomplete round; none while its results are pending."""
    for calls in _rounds(task, intent):
        if any(call[0] in tool_names and _is_at_work(task, call) for call in calls):
            return []
        if pending := [call for call in calls if call[0] in tool_names and task.result(*call) is None]:
            return pending
    return []


def _is_at_work(task: Task, call: Call) -> bool:
    result = task.result(*call)
    return result is not None and result.is_pending


def _rounds(task: Task, intent: intents.Intent) -> Iterator[list[Call]]:
    match intent:
        case intents.Review():
            yield from _review(task)
        case intents.Search(query):
            yield [search_call(query)]
            if not hits(task, query):
                yield [search_call(longest_word(query))]
        case intents.Read(paths):
            yield [_read(path) for path in paths]
        case intents.Write(path, content, append):
            if text := content or task.last_answer:
                yield [("write_file", {"path": path, "content": text + "\n", "append": append})]
        case intents.TodoIntent(items):
            yield [("todo", {"items": [_item(text) for text in items]} if items else {"action": "show"})]


def _review(task: Task) -> Iterator[list[Call]]:
    yield [("list_files", {}), _progress(["See what is there", "Read the files", "Write up what I found"], 0)]
    files = listed_files(task)
    if not files:
        return
    items = ["See what is there", *(f"Read {path}" for path in files), "Write up what I found"]
    alone = len(files) - 2 if len(files) > 4 else len(files)
    for at in range(alone):
        yield [_read(files[at]), _progress(items, at + 1)]
    if files[alone:]:
        yield [*map(_read, files[alone:]), _progress(items, alone + 1, at_once=2)]
    yield [_progress(items, len(items))]


def _read(path: str) -> Call:
    return "read_file", {"path": path}


def _progress(items: Sequence[str], at: int, at_once: int = 1) -> Call:
    def status(index: int) -> str:
        if index < at:
            return "done"
        return "in_progress" if index < at + at_once else "pending"

    return "todo", {"items": [_item(text, status(index)) for index, text in enumerate(items)]}


def _item(text: str, status: str = "pending") -> dict[str, str]:
    return {"text": text, "status": status}


def _lead(subject: DemoSubject, calls: Sequence[Call]) -> str:
    """Return the text before the first calls, and before calls that a message caused. See LEADS."""
    if subject.requests and not subject.is_steered and calls[0][0] != "list_files":
        queries = [f"“{given['query']}”" for name, given in calls if name == "search_files"]
        return f"You also mention {' and '.join(queries)}: I look for that first." if queries else ""
    if subject.task.used:
        return ""
    match subject.intent:
        case intents.Review():
            return "I'll look at what is there."
        case intents.Search(query):
            return f"I'll search for “{query}”."
        case _:
            return ""


def _last_call_number(messages: Sequence[Message]) -> int:
    blocks = (block for m in messages if isinstance(m.content, list) for block in m.content)
    ids = (_CALL_ID.fullmatch(block.id) for block in blocks if isinstance(block, ToolCallBlock))
    return max((int(found[1]) for found in ids if found), default=0)
