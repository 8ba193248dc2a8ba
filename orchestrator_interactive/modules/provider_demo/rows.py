"""Convert the rows of a conversation to events."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from orchestrator_interactive.json_limits import parse_json
from orchestrator_interactive.kernel.contracts.messages import TextBlock, ToolCallBlock, ToolResultBlock
from orchestrator_interactive.loop.tool_results import STILL_RUNNING
from orchestrator_interactive.transcript.framing import LATE_PREFIX, NOTICE_PREFIX, PREFIX

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from orchestrator_interactive.kernel.contracts.messages import Message

# Prefixes of texts that accompany tool calls or pending tools; no answer starts with them. If a turn is truncated, its
# calls are lost and its text remains: the prefix shows that the text is not an answer.
LEADS = ("I'll ", "You also ", "I am still ")
# Prefix of the text during a requested pause; on its own it is not an answer.
PAUSE = "I am taking my time: "

_MENTIONS = re.compile(r"^(?:<@[^>]*>[\s:,]*)+")
# A message as `framing.message_text` writes it: the name, and the text after the header.
_MESSAGE = re.compile(r"([^:(\n]+) \([\w.@-]+\)(?:, with files [^:\n]+)?: (.*)", re.DOTALL)
_LATE = re.compile(r"call (\S+), ([^:]+): ?(failed: )?(.*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class DemoQuestion:
    """A prompt of the user."""

    text: str


@dataclass(frozen=True, slots=True)
class InjectedText:
    """A message that arrived while the agent was working. `text` is without the author's name, `line` includes it.

    An `is_urgent` message began with `!`, which is not part of `text`.
    """

    text: str
    line: str
    is_urgent: bool = False


@dataclass(frozen=True, slots=True)
class DemoText:
    text: str
    is_answer: bool


@dataclass(frozen=True, slots=True)
class DemoToolCall:
    """A tool call with its result. If `is_pending`, the tool is still running."""

    name: str
    input: dict[str, Any]
    output: str = "no result was recorded"
    failed: bool = True
    is_pending: bool = False

    @property
    def succeeded(self) -> bool:
        return not self.failed and not self.is_pending


@dataclass(frozen=True, slots=True)
class LateResults:
    """Results of pending calls that have arrived."""

    uses: tuple[DemoToolCall, ...]


Event = DemoQuestion | InjectedText | DemoText | DemoToolCall | LateResults


def events_in(messages: Iterable[Message]) -> list[Event]:
    """Return the events of a conversation."""
    reader = _Reader()
    for message in messages:
        reader.read(message)
    return reader.events


def text_of(content: Any) -> str:
    """Return the text of a message's content."""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "".join(block.text for block in content if isinstance(block, TextBlock))
    return ""


class _Reader:
    def __init__(self) -> None:
        self.events: list[Event] = []
        self._open_calls: dict[str, int] = {}

    def read(self, message: Message) -> None:
        if message.role == "user":
            self._user(text_of(message.content))
        elif message.role == "assistant":
            self._assistant(message)
        for call_id, output, failed in _results(message):
            self._result(call_id, output, failed=failed)

    def _user(self, text: str) -> None:
        if text.startswith(PREFIX):
            self._wrote([_wrote(entry) for entry in _entries(text.removeprefix(PREFIX))])
        elif not (text.startswith(LATE_PREFIX) and self._came_late(text.removeprefix(LATE_PREFIX))):
            if named := _MESSAGE.fullmatch(text):
                text = named[2].replace("\n  ", "\n")
            text = _MENTIONS.sub("", text).strip()
            if text and not text.startswith(NOTICE_PREFIX):
                self.events.append(DemoQuestion(text))

    def _wrote(self, wrote: list[InjectedText]) -> None:
        last = self.events[-1] if self.events else None
        if isinstance(last, DemoText) and any(each.is_urgent for each in wrote):
            self.events[-1] = replace(last, is_answer=False)  # the message interrupted it
        self.events += wrote

    def _came_late(self, text: str) -> bool:
        """Return whether the text has results of known calls; a user could write the same prefix."""
        found = [_LATE.fullmatch(entry) for entry in _entries(text)]
        uses = [self._result(entry[1], entry[4], failed=bool(entry[3])) for entry in found if entry]
        known = tuple(use for use in uses if use is not None)
        if known:
            self.events.append(LateResults(known))
        return bool(known)

    def _assistant(self, message: Message) -> None:
        text, calls = text_of(message.content).strip(), _calls(message)
        if text:
            is_lead = bool(calls) or text.startswith(LEADS) or _is_only_a_pause(text)
            self.events.append(DemoText(text, is_answer=not is_lead))
        for call_id, use in calls:
            self._open_calls[call_id] = len(self.events)
            self.events.append(use)

    def _result(self, call_id: str, output: str, *, failed: bool) -> DemoToolCall | None:
        index = self._open_calls.get(call_id)
        call = None if index is None else self.events[index]
        if index is None or not isinstance(call, DemoToolCall):
            return None
        is_pending = output.strip() == STILL_RUNNING
        if not is_pending:
            del self._open_calls[call_id]
        use = self.events[index] = replace(call, output=output, failed=failed, is_pending=is_pending)
        return use


def _entries(text: str) -> list[str]:
    """Split a list into entries; continuation lines are indented."""
    entries: list[str] = []
    for line in text.strip("\n").split("\n"):
        if line.startswith("- ") or not entries:
            entries.append(line.removeprefix("- "))
        else:
            entries[-1] += "\n" + line.removeprefix("  ")
    return [entry for entry in entries if entry.strip()]


def _wrote(line: str) -> InjectedText:
    text = line
    if named := _MESSAGE.fullmatch(line):
        text, line = named[2], f"{named[1]}: {named[2]}"
    at_once = text.lstrip()
    if not at_once.startswith("!"):
        return InjectedText(text, line)
    return InjectedText(at_once.lstrip("!").strip() or text, line, is_urgent=True)


def _is_only_a_pause(text: str) -> bool:
    return (text.startswith(PAUSE) and "\n\n" not in text) or PAUSE.startswith(text)


def _calls(message: Message) -> list[tuple[str, DemoToolCall]]:
    blocks = message.content if isinstance(message.content, list) else []
    calls = [(block.id, DemoToolCall(block.name, block.input)) for block in blocks if isinstance(block, ToolCallBlock)]
    return calls or [_function_call(call) for call in getattr(message, "tool_calls", None) or ()]


def _function_call(call: dict[str, Any]) -> tuple[str, DemoToolCall]:
    function = call.get("function") or {}
    try:
        given = parse_json(function.get("arguments") or "{}")
    except ValueError:
        given = {}
    return str(call.get("id")), DemoToolCall(str(function.get("name")), given if isinstance(given, dict) else {})


def _results(message: Message) -> Iterator[tuple[str, str, bool]]:
    if message.role == "tool" and message.tool_call_id:
        yield message.tool_call_id, text_of(message.content), bool((message.metadata or {}).get("is_error"))
    for block in message.content if isinstance(message.content, list) else ():
        if isinstance(block, ToolResultBlock):
            yield block.tool_call_id, str(block.output), False
