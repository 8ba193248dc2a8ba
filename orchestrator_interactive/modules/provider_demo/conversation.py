"""What a request tells about its conversation: the task at hand, and what has happened in it so far."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from orchestrator_interactive.injection import NOTICE_PREFIX, PREFIX
from orchestrator_interactive.kernel.messages import TextBlock, ToolCallBlock, ToolResultBlock

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from orchestrator_interactive.kernel.messages import Message

# Every text that goes along with tool calls begins like one of these, and no answer does. When a turn is cut, its calls
# are lost and its text stays: that text is no answer.
LEADS = ("I'll ", "You also ")
# The same of what is said while the user's wish for a pause is kept: alone it is no answer.
PAUSE = "I am taking my time: "

_MENTIONS = re.compile(r"^(?:<@[^>]*>[\s:,]*)+")
_AUTHOR = re.compile(r"([^\W\d_][\w .'-]{0,39}): (.+)", re.DOTALL)
_CONTINUE = re.compile(
    r"\W*(?:please\s+)?(?:continue|go on|carry on|keep going|resume)\b\W*(?:please)?\W*", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class Asked:
    """A prompt of the user."""

    text: str


@dataclass(frozen=True, slots=True)
class Wrote:
    """A message that came while the agent was at work. `text` is without the author's name, `line` is all of it."""

    text: str
    line: str


@dataclass(frozen=True, slots=True)
class Said:
    text: str
    is_answer: bool


@dataclass(frozen=True, slots=True)
class Used:
    """A tool call with its result."""

    name: str
    input: dict[str, Any]
    output: str = "no result was recorded"
    failed: bool = True


Event = Asked | Wrote | Said | Used


@dataclass(frozen=True, slots=True)
class Task:
    """What to do now: the prompt, and what came of it so far.

    Where messages came after the answer was given, the first of them is the prompt, and stands in `steps` as well.
    """

    prompt: str
    steps: tuple[Event, ...]
    before: tuple[Event, ...]

    @property
    def wrote(self) -> list[Wrote]:
        return [step for step in self.steps if isinstance(step, Wrote)]

    @property
    def used(self) -> list[Used]:
        return [step for step in self.steps if isinstance(step, Used)]

    @property
    def user_texts(self) -> list[str]:
        """All that the user has written, oldest first, the task included."""
        everything = (*self.before, *self.steps)
        texts = [event.text for event in everything if isinstance(event, Asked | Wrote)]
        return texts if any(text == self.prompt for text in texts) else [*texts, self.prompt]

    @property
    def last_answer(self) -> str:
        answers = [event.text for event in self.before if isinstance(event, Said) and event.is_answer]
        return answers[-1] if answers else ""

    def result(self, name: str, given: dict[str, Any]) -> Used | None:
        """The latest result of this very call."""
        return next((use for use in reversed(self.used) if use.name == name and use.input == given), None)


def task_of(messages: Iterable[Message]) -> Task:
    """The task that a conversation is at."""
    events = list(_events(messages))
    asked = [i for i, event in enumerate(events) if isinstance(event, Asked)]
    start = asked.pop() if asked else -1
    after = start + 1
    while asked and _CONTINUE.fullmatch(_text_at(events, start)):
        start = asked.pop()
    answered = [i for i in range(after, len(events)) if _is_answer(events[i])]
    steered = [i for i in range(answered[-1], len(events)) if isinstance(events[i], Wrote)] if answered else []
    if steered:
        return Task(_text_at(events, steered[0]), tuple(events[steered[0] :]), tuple(events[: steered[0]]))
    leading = start
    while leading > 0 and isinstance(events[leading - 1], Wrote):  # left over from a run that was stopped
        leading -= 1
    steps = (*events[max(leading, 0) : max(start, 0)], *events[start + 1 :])
    return Task(_text_at(events, start), steps, tuple(events[: max(leading, 0)]))


def text_of(content: Any) -> str:
    """The text of a message's content, in whatever form it comes."""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "".join(block.text for block in content if isinstance(block, TextBlock))
    return ""


def written(content: str) -> list[Wrote]:
    """The messages in an injected row."""
    lines: list[str] = []
    for line in content.removeprefix(PREFIX).strip("\n").split("\n"):
        if line.startswith("- ") or not lines:
            lines.append(line.removeprefix("- "))
        else:
            lines[-1] += "\n" + line.removeprefix("  ")
    return [_wrote(line) for line in lines if line.strip()]


def _wrote(line: str) -> Wrote:
    named = _AUTHOR.fullmatch(line)
    return Wrote(text=named[2] if named else line, line=line)


def _text_at(events: Sequence[Event], index: int) -> str:
    event = events[index] if index >= 0 else None
    return event.text if isinstance(event, Asked | Wrote) else ""


def _is_answer(event: Event) -> bool:
    return isinstance(event, Said) and event.is_answer


def _events(messages: Iterable[Message]) -> Iterator[Event]:
    events: list[Event] = []
    open_calls: dict[str, int] = {}
    for message in messages:
        if message.role == "user":
            events += _from_user(text_of(message.content))
        elif message.role == "assistant":
            events += _said(message)
            for call_id, use in _calls(message):
                open_calls[call_id] = len(events)
                events.append(use)
        for call_id, output, failed in _results(message):
            index = open_calls.pop(call_id, None)
            if index is not None and isinstance(call := events[index], Used):
                events[index] = replace(call, output=output, failed=failed)
    return iter(events)


def _from_user(text: str) -> list[Event]:
    if text.startswith(PREFIX):
        return list(written(text))
    text = _MENTIONS.sub("", text).strip()
    return [Asked(text)] if text and not text.startswith(NOTICE_PREFIX) else []


def _said(message: Message) -> list[Said]:
    text = text_of(message.content).strip()
    if not text:
        return []
    return [Said(text, is_answer=not (_calls(message) or text.startswith(LEADS) or _is_only_a_pause(text)))]


def _is_only_a_pause(text: str) -> bool:
    return (text.startswith(PAUSE) and "\n\n" not in text) or PAUSE.startswith(text)


def _calls(message: Message) -> list[tuple[str, Used]]:
    blocks = message.content if isinstance(message.content, list) else []
    calls = [(block.id, Used(block.name, block.input)) for block in blocks if isinstance(block, ToolCallBlock)]
    return calls or [_wire_call(call) for call in getattr(message, "tool_calls", None) or ()]


def _wire_call(call: dict[str, Any]) -> tuple[str, Used]:
    function = call.get("function") or {}
    try:
        given = json.loads(function.get("arguments") or "{}")
    except ValueError:
        given = {}
    return str(call.get("id")), Used(str(function.get("name")), given if isinstance(given, dict) else {})


def _results(message: Message) -> Iterator[tuple[str, str, bool]]:
    if message.role == "tool" and message.tool_call_id:
        yield message.tool_call_id, text_of(message.content), bool((message.metadata or {}).get("is_error"))
    for block in message.content if isinstance(message.content, list) else ():
        if isinstance(block, ToolResultBlock):
            yield block.tool_call_id, str(block.output), False
