"""Read the current task of the demo from the messages of a request."""

from __future__ import annotations

import json
import re
import zlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from orchestrator_interactive.kernel.contracts.arguments import arguments_of
from orchestrator_interactive.kernel.contracts.messages import TextBlock, ToolCallBlock
from orchestrator_interactive.kernel.contracts.tool_calls import calls_in_field, function_of, is_call
from orchestrator_interactive.loop.tool_results import STILL_RUNNING, late_results_in
from orchestrator_interactive.transcript.framing import NOTICE_PREFIX, PREFIX, TALK_PREFIX

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from orchestrator_interactive.kernel.contracts.messages import Message

# Prefixes of texts that are not an answer: they precede tool calls, or are said while tools run.
LEADS = ("I'll ", "You also ", "I am still ")

_MENTIONS = re.compile(r"^(?:<@[^>]*>[\s:,]*)+")
# A message as `framing.message_text` writes it: the name, and the text after the header.
_MESSAGE = re.compile(r"([^:(\n]+) \([\w.@-]+\)(?:, [\w+/-]+)?(?:, with files [^:\n]+)?: (.*)", re.DOTALL)
_CONTINUE = re.compile(r"\W*(?:please\s+)?(?:continue|go on|carry on|resume)\b\W*(?:please)?\W*", re.IGNORECASE)


class Line(NamedTuple):
    """A message of a person: its text, and the quotation of it with the author's name."""

    text: str
    quote: str

    @classmethod
    def parse(cls, entry: str) -> Line:
        named = _MESSAGE.fullmatch(entry)
        return cls(named[2], f"{named[1]}: {named[2]}") if named else cls(entry, entry)

    @property
    def is_urgent(self) -> bool:
        return self.text.lstrip().startswith("!")


@dataclass(slots=True)
class DemoCall:
    """A tool call. `output` is `None` while the tool is running."""

    id: str
    name: str
    input: dict[str, Any]
    output: str | None = None
    failed: bool = False

    @property
    def label(self) -> str:
        about = self.input.get("path") or self.input.get("query")
        return f"`{self.name}`{f' of `{about}`' if isinstance(about, str) else ''}"


@dataclass(slots=True)
class DemoTask:
    """A prompt and the events since.

    Args:
        injected: messages that arrived while the agent was working.
        is_steered: the prompt arrived during the previous run, after its answer.
        previous_answer: the answer of the task before.
        said: all texts of the agent.
        answer: its final text; blank until then.
        late: calls whose results arrived after the answer.
        unread: messages after which the agent has said nothing yet.
        tool_names: the tools that may be called now.
    """

    prompt: str = ""
    injected: list[Line] = field(default_factory=list)
    is_steered: bool = False
    previous_answer: str = ""
    calls: list[DemoCall] = field(default_factory=list)
    said: str = ""
    answer: str = ""
    late: list[DemoCall] = field(default_factory=list)
    unread: list[Line] = field(default_factory=list)
    tool_names: Collection[str] = ()

    def call(self, name: str, given: dict[str, Any]) -> DemoCall | None:
        """Return the latest call that was made with this input, or has it: a hook may have changed the one made."""
        key = call_key(name, given)
        is_it = (call for call in reversed(self.calls) if (call.name, call.input) == (name, given) or key in call.id)
        return next(is_it, None)

    def output(self, name: str, given: dict[str, Any]) -> str | None:
        """Return the output of a successful call."""
        call = self.call(name, given)
        return None if call is None or call.failed else call.output


def read_task(messages: Iterable[Message]) -> DemoTask:
    """Return the current task of a conversation."""
    task, open_calls = DemoTask(), dict[str, DemoCall]()
    for message in messages:
        text = text_of(message)
        if message.role == "user":
            task = _after_user(task, text, open_calls)
        elif message.role == "tool" and text.strip() != STILL_RUNNING:
            _finish(open_calls, message.tool_call_id or "", text, bool((message.metadata or {}).get("is_error")))
        elif message.role == "assistant":
            calls = _calls_of(message)
            open_calls |= calls
            task.calls += calls.values()
            task.unread = []
            task.said += f" {text}"
            if text.strip():  # a truncated text ends with a space
                task.answer = "" if calls or text.startswith(LEADS) or text.endswith(" ") else text.strip()
    return task


def call_key(name: str, given: dict[str, Any]) -> str:
    """Return the part of a call's id that identifies its tool and input."""
    return f"-{zlib.crc32(json.dumps([name, given], sort_keys=True).encode()):08x}"


def text_of(message: Message) -> str:
    """Return the text of a message's content."""
    if isinstance(message.content, str):
        return message.content
    return "".join(block.text for block in message.content or () if isinstance(block, TextBlock))


def _calls_of(message: Message) -> dict[str, DemoCall]:
    """Return the calls by id; rows of another loop have them in the field `tool_calls`."""
    functions = [(call["id"], function_of(call)) for call in calls_in_field(message) if is_call(call)]
    calls = {each: DemoCall(each, made["name"], arguments_of(made.get("arguments"))) for each, made in functions}
    blocks = message.content if isinstance(message.content, list) else []
    return calls | {b.id: DemoCall(b.id, b.name, b.input) for b in blocks if isinstance(b, ToolCallBlock)}


def _after_user(task: DemoTask, text: str, open_calls: dict[str, DemoCall]) -> DemoTask:
    if text.startswith(PREFIX):
        injected = [Line.parse(entry) for entry in _entries(text.removeprefix(PREFIX))]
        if any(line.is_urgent for line in injected):
            task.answer = ""  # the message interrupted it
        elif task.answer and injected:
            return DemoTask(injected[0].text, injected[1:], is_steered=True, previous_answer=task.answer)
        task.injected += injected
        task.unread += injected
        return task
    finished = [_finish(open_calls, each.call_id, each.text, each.failed) for each in late_results_in(text)]
    if known := [call for call in finished if call]:  # a person can write the same prefix
        task.late += known if task.answer else []
        return task
    prompt = _MENTIONS.sub("", Line.parse(text).text.replace("\n  ", "\n")).strip()
    if not prompt or prompt.startswith((NOTICE_PREFIX, TALK_PREFIX)):
        return task
    if task.prompt and _CONTINUE.fullmatch(prompt):
        task.answer = ""
        return task
    return DemoTask(prompt, list(task.unread), previous_answer=task.answer)


def _finish(open_calls: dict[str, DemoCall], call_id: str, output: str, failed: bool) -> DemoCall | None:
    call = open_calls.pop(call_id, None)
    if call is not None:
        call.output, call.failed = output, failed
    return call


def _entries(text: str) -> list[str]:
    """Split a list into entries; continuation lines are indented."""
    entries = [entry.replace("\n  ", "\n") for entry in re.split(r"\n- ", text.strip("\n").removeprefix("- "))]
    return [entry for entry in entries if entry.strip()]
