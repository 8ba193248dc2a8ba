"""The task, its intent, and the tool results about it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from orchestrator_interactive.modules.provider_demo import intents
from orchestrator_interactive.modules.provider_demo.findings import study

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orchestrator_interactive.modules.provider_demo.conversation import Task
    from orchestrator_interactive.modules.provider_demo.findings import FileFindings
    from orchestrator_interactive.modules.provider_demo.rows import DemoToolCall, InjectedText

MAX_FILES = 6
_LISTED = re.compile(r"(.+) \([\d,]+ bytes\)")
_HIT = re.compile(r"(.+?):(\d+): (.*)")
_TEXT_FILES = (".md", ".txt", ".csv", ".json", ".yaml", ".yml", ".toml", ".rst", ".html", ".py", ".js", ".log")


class Hit(NamedTuple):
    path: str
    line: int
    text: str


@dataclass(frozen=True, slots=True)
class DemoSubject:
    """An analysed task. `requests` are the messages during the task with their intents."""

    task: Task
    intent: intents.Intent
    requests: tuple[tuple[InjectedText, intents.Intent], ...]
    is_steered: bool

    @property
    def queries(self) -> list[str]:
        """All search queries, of messages first, then of the prompt."""
        wanted = (*(requested for _, requested in self.requests), self.intent)
        return list(dict.fromkeys(requested.query for requested in wanted if isinstance(requested, intents.Search)))

    @property
    def is_to_answer_now(self) -> bool:
        return any(isinstance(requested, intents.DemoAnswer) for _, requested in self.requests)

    @property
    def failures(self) -> list[DemoToolCall]:
        return [use for use in self.task.used if use.failed]

    def has_used(self, name: str) -> bool:
        return any(use.name == name for use in self.task.used)

    def files(self) -> list[FileFindings]:
        """Return the findings of each file that was read."""
        read = {use.input.get("path"): use.output for use in self._succeeded("read_file")}
        return [study(path, text) for path, text in read.items() if isinstance(path, str)]

    def text_of(self, path: str) -> str | None:
        return next((use.output for use in self._succeeded("read_file") if use.input.get("path") == path), None)

    def _succeeded(self, name: str) -> Sequence[DemoToolCall]:
        return [use for use in self.task.used if use.name == name and use.succeeded]


def subject_of(task: Task) -> DemoSubject:
    """Analyse a task."""
    is_steered = bool(task.wrote) and task.wrote[0].text == task.prompt
    intent = intents.steered_intent_of(task.prompt) if is_steered else intents.intent_of(task.prompt)
    requests = [(wrote, _possible(intents.intent_in(wrote.text), is_steered=is_steered)) for wrote in task.wrote]
    if is_steered:
        requests[0] = (requests[0][0], intent)
    return DemoSubject(task, intent, tuple(requests), is_steered)


def search_call(query: str) -> tuple[str, dict[str, Any]]:
    return "search_files", {"query": query}


def longest_word(query: str) -> str:
    return max(re.findall(r"\w+", query), key=len, default=query)


def hits(task: Task, query: str) -> list[Hit]:
    """Return the hits of a search."""
    found = task.result(*search_call(query))
    if found is None or not found.succeeded:
        return []
    return [Hit(hit[1], int(hit[2]), hit[3]) for line in found.output.splitlines() if (hit := _HIT.fullmatch(line))]


def listed_files(task: Task) -> list[str]:
    """Return up to six listed text files."""
    listing = task.result("list_files", {})
    if listing is None or not listing.succeeded:
        return []
    paths = [listed[1] for line in listing.output.splitlines() if (listed := _LISTED.fullmatch(line))]
    return [path for path in paths if path.lower().endswith(_TEXT_FILES)][:MAX_FILES]


def _possible(requested: intents.Intent, *, is_steered: bool) -> intents.Intent:
    """Ignore a request to save the answer while there is no answer yet."""
    return (
        intents.Chat()
        if isinstance(requested, intents.Write) and requested.content is None and not is_steered
        else requested
    )
