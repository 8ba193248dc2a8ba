"""What the demo does next: a pure function of the conversation and of the tools it may use."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from orchestrator_interactive.kernel.messages import TextBlock, ToolCallBlock
from orchestrator_interactive.modules.provider_demo import intents
from orchestrator_interactive.modules.provider_demo.answers import Subject, answer
from orchestrator_interactive.modules.provider_demo.conversation import task_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from orchestrator_interactive.kernel.messages import ContentBlock, Message
    from orchestrator_interactive.modules.provider_demo.conversation import Task

    Call = tuple[str, dict[str, Any]]

MOST_FILES = 6
_LISTED = re.compile(r"(.+) \([\d,]+ bytes\)")
_TEXT_FILES = (".md", ".txt", ".csv", ".json", ".yaml", ".yml", ".toml", ".rst", ".html", ".py", ".js", ".log")
_CALL_ID = re.compile(r"demo-(\d+)")


@dataclass(frozen=True, slots=True)
class Step:
    """One answer of the model. Its first paragraph takes `wait_s` seconds where the user asked for time."""

    blocks: list[ContentBlock]
    wait_s: float = 0.0


def plan(messages: Sequence[Message], tool_names: Collection[str]) -> list[ContentBlock]:
    """The blocks of the next answer."""
    return next_step(messages, tool_names).blocks


def next_step(messages: Sequence[Message], tool_names: Collection[str]) -> Step:
    """The next answer: tool calls as long as something is to be found out, then text."""
    task = task_of(messages)
    subject = _subject(task)
    if calls := _next_calls(subject, tool_names):
        lead = _lead(subject, calls)
        first_id = _last_call_number(messages) + 1
        blocks: list[ContentBlock] = [TextBlock(text=lead)] if lead else []
        blocks += [ToolCallBlock(id=f"demo-{first_id + i}", name=n, input=given) for i, (n, given) in enumerate(calls)]
        return Step(blocks)
    wait_s = intents.wait_s(task.prompt)
    pause = f"I am taking my time: {wait_s:g} seconds, as you asked.\n\n" if wait_s else ""
    return Step([TextBlock(text=pause + answer(subject))], wait_s)


def _subject(task: Task) -> Subject:
    steered = bool(task.wrote) and task.wrote[0].text == task.prompt
    intent = intents.steered_intent_of(task.prompt) if steered else intents.intent_of(task.prompt)
    wishes = [(wrote, intents.wish_of(wrote.text)) for wrote in task.wrote]
    if steered:
        wishes[0] = (wishes[0][0], intent)
    return Subject(task, intent, tuple(wishes))


def _next_calls(subject: Subject, tool_names: Collection[str]) -> list[Call]:
    asked_to_stop = any(isinstance(wish, intents.Answer) for _, wish in subject.wishes)
    wished = [call for _, wish in subject.wishes if not isinstance(wish, intents.Review) for call in _pending(subject, wish)]
    calls = wished if wished or asked_to_stop else _pending(subject, subject.intent)
    return [call for i, call in enumerate(calls) if call[0] in tool_names and call not in calls[:i]]


def _pending(subject: Subject, intent: intents.Intent) -> list[Call]:
    """The first round of calls that has not been made yet, without what has been made of it."""
    for calls in _rounds(subject.task, intent):
        if open_calls := [call for call in calls if subject.task.result(*call) is None]:
            return open_calls
    return []


def _rounds(task: Task, intent: intents.Intent) -> Iterator[list[Call]]:
    match intent:
        case intents.Review():
            yield from _review(task)
        case intents.Search(query):
            yield [_search(query)]
            if not hits(task, query) and (longest := max(re.findall(r"\w+", query), key=len, default=query)) != query:
                yield [_search(longest)]
        case intents.Read(paths):
            yield [_read(path) for path in paths]
        case intents.Write(path, content, append):
            if text := content or task.last_answer:
                yield [("write_file", {"path": path, "content": text + "\n", **({"append": True} if append else {})})]
        case intents.Todo(items):
            given = {"items": [_todo_item(text, "pending") for text in items]} if items else {"action": "show"}
            yield [("todo", given)]
        case _:
            pass


def _review(task: Task) -> Iterator[list[Call]]:
    yield [("list_files", {}), _todo(["See what is there", "Read the files", "Write up what I found"], 0)]
    files = listed_files(task)
    if not files:
        return
    steps = ["See what is there", *(f"Read {path}" for path in files), "Write up what I found"]
    alone = len(files) - 2 if len(files) > 4 else len(files)
    for at in range(alone):
        yield [_read(files[at]), _todo(steps, at + 1)]
    if files[alone:]:
        yield [*map(_read, files[alone:]), _todo(steps, alone + 1, at_once=len(files) - alone)]
    yield [_todo(steps, len(steps))]


def _search(query: str) -> Call:
    return "search_files", {"query": query}


def _read(path: str) -> Call:
    return "read_file", {"path": path}


def _todo(steps: Sequence[str], at: int, at_once: int = 1) -> Call:
    def status(index: int) -> str:
        return "done" if index < at else "in_progress" if index < at + at_once else "pending"

    return "todo", {"items": [_todo_item(text, status(index)) for index, text in enumerate(steps)]}


def _todo_item(text: str, status: str) -> dict[str, str]:
    return {"text": text, "status": status}
