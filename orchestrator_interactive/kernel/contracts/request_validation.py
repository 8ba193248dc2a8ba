"""Validate requests against the rules of the public APIs of Anthropic, OpenAI, Gemini and Bedrock.

A provider refuses a request that breaks a rule, and every later request of the conversation, which repeats the message.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from pydantic_core import to_json

from orchestrator_interactive.kernel.contracts.errors import InvalidRequestError
from orchestrator_interactive.kernel.contracts.messages import (
    ImageBlock,
    ReasoningBlock,
    RedactedThinkingBlock,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
    ToolResultBlock,
)
from orchestrator_interactive.kernel.contracts.models import sendable
from orchestrator_interactive.kernel.contracts.tool_calls import calls_in, calls_in_field, function_of, is_call

if TYPE_CHECKING:
    from collections.abc import Callable

    from orchestrator_interactive.kernel.contracts.messages import ChatRequest, ContentBlock, Message

_THINKING = (ThinkingBlock, RedactedThinkingBlock, ReasoningBlock)

_NON_SPEAKERS = ("system", "developer")
_PLACES: dict[str, tuple[type[ContentBlock], ...]] = {
    "system": (TextBlock,),
    "developer": (TextBlock,),
    "user": (TextBlock, ImageBlock),
    "tool": (TextBlock, ImageBlock, ToolResultBlock),
    "assistant": (TextBlock, ToolCallBlock, *_THINKING),
}
_NO_NUMBER = re.compile(b"NaN|Infinity")


class RequestRule(StrEnum):
    """Violations, in the order in which they can be repaired."""

    ROLE = "unknown role"
    NO_CALL = "result without a call"
    MISPLACED = "content that is not allowed in a message of this role"
    UNREADABLE_CALL = "a call without id and name"
    NAME = "a blank name"
    UNSENDABLE = "characters that cannot be sent"
    BLANK = "blank text"
    UNSIGNED = "thinking without its signature"
    OTHER_RESULT = "the result of another call"
    ENDS_IN_THINKING = "an answer that ends in thinking"
    EMPTY = "no content"
    CALL_ID = "a call id that is blank or not its own"
    NO_RESULT = "call without a result"
    ENDS_WITH_ANSWER = "the last word is the model's"
    TOOL_NAMES = "a tool without a name of its own"
    TOOL_CHOICE = "tool_choice without tools"


@dataclass(frozen=True, slots=True)
class RequestProblem:
    """A violated rule. `where` is a call id, a tool name or the role of the message."""

    rule: RequestRule
    where: str

    def __str__(self) -> str:
        return f"{self.rule} ({self.where})"


class RequestCheck:
    """Incremental check of a conversation: each message is checked once, in order.

    `problems_of` returns the problems of the next message, so that it can be repaired; `add` appends it. Results must
    directly follow their call (Anthropic, OpenAI, Gemini), and call ids must be unique (Anthropic).
    """

    def __init__(self, used_before: Callable[[str], bool] | None = None) -> None:
        self.open: dict[str, None] = {}  # calls without a result so far
        self._used_before = used_before
        self._used: set[str] = set()
        self._last_speaker: str | None = None
        self._checked: tuple[Message | None, list[str]] = (None, [])

    def fork(self) -> RequestCheck:
        """Return an independent check with the current state."""
        fork = RequestCheck(self.is_used)
        fork.open, fork._last_speaker = dict(self.open), self._last_speaker
        return fork

    def is_used(self, call_id: str) -> bool:
        """Return whether a call of the conversation has this id."""
        return call_id in self._used or (self._used_before is not None and self._used_before(call_id))

    def problems_of(self, message: Message) -> list[RequestProblem]:
        problems, role = _content_problems(message), message.role
        if role == "tool":
            if message.tool_call_id not in self.open:
                problems.append(RequestProblem(RequestRule.NO_CALL, str(message.tool_call_id)))
            return problems
        if role == "assistant":
            ids = calls_in(message)
            self._checked = message, ids
            before: set[str] = set()
            for call_id in ids:
                if call_id in before or self.is_used(call_id) or not is_plain(call_id):
                    problems.append(RequestProblem(RequestRule.CALL_ID, call_id))
                before.add(call_id)
        return problems + self.unanswered() if self.open else problems

    def add(self, message: Message) -> None:
        role = message.role
        if role == "tool":
            self.open.pop(message.tool_call_id or "", None)
        elif role == "assistant":
            checked, ids = self._checked
            self.open = dict.fromkeys(ids if checked is message else calls_in(message))
            self._used.update(self.open)
        elif self.open:
            self.open = {}
        if role not in _NON_SPEAKERS:
            self._last_speaker = role

    @property
    def may_end(self) -> bool:
        """Whether a request may end here: no call lacks its result, and the last message is not the model's."""
        return not self.open and self._last_speaker is not None and self._last_speaker != "assistant"

    def unanswered(self) -> list[RequestProblem]:
        return [RequestProblem(RequestRule.NO_RESULT, call_id) for call_id in self.open]


def problems_of(request: ChatRequest) -> list[str]:
    """Return the reasons why a provider would refuse this request; empty if none is known."""
    checking = RequestCheck()
    found: list[str] = []
    for place, message in enumerate(request.messages):
        found += [f"message {place}: {problem}" for problem in checking.problems_of(message)]
        checking.add(message)
    at_end = checking.unanswered()
    if not at_end and not checking.may_end:
        at_end.append(RequestProblem(RequestRule.ENDS_WITH_ANSWER, "assistant" if request.messages else "no message"))
    return found + [str(problem) for problem in (*at_end, *_tool_problems(request))]


def check(request: ChatRequest) -> None:
    """Raise if a provider would refuse this request.

    Raises:
        InvalidRequestError: lists all problems.
    """
    if found := problems_of(request):
        raise InvalidRequestError(f"A provider would refuse this request: {'; '.join(found)}.")


def block_problem(message: Message, block: ContentBlock) -> RequestProblem | None:
    """Return the problem of a block in this message, if any."""
    role = message.role
    if not isinstance(block, _PLACES[role]):
        return RequestProblem(RequestRule.MISPLACED, f"{block.type}, {role}")
    rule: RequestRule | None = None
    match block:
        case TextBlock():
            rule = _text_rule(block.text)
        case ToolCallBlock():
            rule = _call_rule(block.name, block.input)
        # Other providers keep their reasoning state in `content` instead of a signature.
        case ThinkingBlock() if not block.signature and not block.content:
            rule = RequestRule.UNSIGNED
        case ThinkingBlock() if not can_be_sent(block.thinking):
            rule = RequestRule.UNSENDABLE
        case ToolResultBlock() if block.tool_call_id != message.tool_call_id:
            rule = RequestRule.OTHER_RESULT
        case ToolResultBlock() if not can_be_sent(block.output):
            rule = RequestRule.UNSENDABLE
    return RequestProblem(rule, role) if rule else None


def can_be_sent(value: Any) -> bool:
    """Return whether a value can be sent as JSON: lone surrogates have no UTF-8, and some parsers refuse NaN."""
    try:
        if isinstance(value, str):
            value.encode()
        elif _NO_NUMBER.search(to_json(value)):  # may also match inside a string
            json.dumps(value, allow_nan=False)
    except (ValueError, TypeError, RecursionError):
        return False
    return True


def is_plain(name: str) -> bool:
    """Return whether a name is not blank and can be sent."""
    return bool(name.strip()) and (name.isprintable() or sendable(name) == name)  # isprintable() is faster


def _content_problems(message: Message) -> list[RequestProblem]:
    role, content, beside = message.role, message.content, calls_in_field(message)
    if role not in _PLACES:
        return [RequestProblem(RequestRule.ROLE, role)]
    problems: list[RequestProblem] = []
    if message.name is not None and not message.name.isidentifier() and not is_plain(message.name):
        problems.append(RequestProblem(RequestRule.NAME, role))
    if beside:
        problems += _field_problems(role, beside)
    if isinstance(content, str):
        is_usual = content.isprintable() and content.strip()
        if content and not is_usual and (rule := _text_rule(content)):
            problems.append(RequestProblem(rule, role))
    else:
        problems += _block_problems(message, content)
    if not content and not (content == "" and beside and role == "assistant"):
        problems.append(RequestProblem(RequestRule.EMPTY, role))
    return problems


def _block_problems(message: Message, content: list[ContentBlock]) -> list[RequestProblem]:
    problems = []
    for block in content:
        if type(block) is TextBlock and block.text.isprintable() and block.text.strip():  # most blocks
            continue
        if (problem := block_problem(message, block)) is not None:
            problems.append(problem)
    # Anthropic refuses thinking at the end, OpenAI refuses reasoning; calls in the field follow it.
    ends_in_thinking = bool(content) and isinstance(content[-1], _THINKING)
    if ends_in_thinking and len(calls_in(message)) == sum(isinstance(block, ToolCallBlock) for block in content):
        problems.append(RequestProblem(RequestRule.ENDS_IN_THINKING, message.role))
    return problems


def _field_problems(role: str, beside: list[Any]) -> list[RequestProblem]:
    problems = [] if role == "assistant" else [RequestProblem(RequestRule.MISPLACED, f"tool_calls, {role}")]
    for call in beside:
        rule: RequestRule | None = RequestRule.UNREADABLE_CALL
        if is_call(call):
            part = function_of(call)
            rule = _call_rule(part["name"], part.get("arguments"))
        if rule:
            problems.append(RequestProblem(rule, role))
    return problems


def _text_rule(text: str) -> RequestRule | None:
    if not text.strip():
        return RequestRule.BLANK
    return None if text.isprintable() or sendable(text) == text else RequestRule.UNSENDABLE


def _call_rule(name: str, arguments: Any) -> RequestRule | None:
    if not is_plain(name):
        return RequestRule.NAME
    return None if can_be_sent(arguments) else RequestRule.UNSENDABLE


def _tool_problems(request: ChatRequest) -> list[RequestProblem]:
    names: set[str] = set()
    problems: list[RequestProblem] = []
    for spec in request.tools or ():
        if not is_plain(spec.name) or spec.name in names:
            problems.append(RequestProblem(RequestRule.TOOL_NAMES, spec.name))
        names.add(spec.name)
    if request.tool_choice is not None and not request.tools:
        problems.append(RequestProblem(RequestRule.TOOL_CHOICE, str(request.tool_choice)))
    return problems
