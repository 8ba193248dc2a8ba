"""What providers refuse: one check for every request.

Each rule is one that a public API has: Anthropic's, OpenAI's, Gemini's or Bedrock's. What breaks one is refused, and so
is every later request of the conversation, for it is part of them.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
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
from orchestrator_interactive.kernel.contracts.tool_calls import calls_beside, calls_in, is_call, named

if TYPE_CHECKING:
    from collections.abc import Callable

    from orchestrator_interactive.kernel.contracts.messages import ChatRequest, ContentBlock, Message

_THINKING = (ThinkingBlock, RedactedThinkingBlock, ReasoningBlock)

_ASIDES = ("system", "developer")
_PLACES: dict[str, tuple[type[ContentBlock], ...]] = {
    "system": (TextBlock,),
    "developer": (TextBlock,),
    "user": (TextBlock, ImageBlock),
    "tool": (TextBlock, ImageBlock, ToolResultBlock),
    "assistant": (TextBlock, ToolCallBlock, *_THINKING),
}
_NO_NUMBER = re.compile(b"NaN|Infinity")


class RequestRule(StrEnum):
    """What must not be, in the order in which it can be mended."""

    ROLE = "unknown role"
    NO_CALL = "result without a call"
    MISPLACED = "content that has no place in a message of this role"
    UNREADABLE_CALL = "a call without id and name"
    NAMELESS = "a blank name"
    UNSENDABLE = "characters that cannot be sent"
    BLANK = "blank text"
    UNSIGNED = "thinking without its signature"
    OTHER_RESULT = "the result of another call"
    ENDS_IN_THINKING = "an answer that ends in thinking"
    EMPTY = "no content"
    CALL_ID = "a call id that is blank or not its own"
    NO_RESULT = "call without a result"
    LAST_WORD = "the last word is the model's"
    TOOL_NAMES = "a tool without a name of its own"
    TOOL_CHOICE = "tool_choice without tools"


@dataclass(frozen=True, slots=True)
class RequestProblem:
    """A rule that is broken. `where` is a call's id, a tool's name, or the role of the message."""

    rule: RequestRule
    where: str

    def __str__(self) -> str:
        return f"{self.rule} ({self.where})"


class RequestCheck:
    """Looks at the messages of a conversation in order, at each once, however long it is.

    `look` says what is wrong with the next message, so that it can be mended; `add` takes it in. Results stand right
    after their call, whose id no other call has: Anthropic asks for both, OpenAI and Gemini for the first.
    """

    def __init__(self, used_before: Callable[[str], bool] | None = None) -> None:
        self.open: dict[str, None] = {}  # the calls without a result so far
        self._used_before = used_before
        self._used: set[str] = set()
        self._last_speaker: str | None = None
        self._looked_at: tuple[Message | None, list[str]] = (None, [])

    def fork(self) -> RequestCheck:
        """Go on from here with a check of its own."""
        fork = RequestCheck(self.is_used)
        fork.open, fork._last_speaker = dict(self.open), self._last_speaker
        return fork

    def is_used(self, call_id: str) -> bool:
        """Whether a call of the conversation has this id."""
        return call_id in self._used or (self._used_before is not None and self._used_before(call_id))

    def look(self, message: Message) -> list[RequestProblem]:
        problems = _content_problems(message)
        if message.role == "tool":
            if message.tool_call_id not in self.open:
                problems.append(RequestProblem(RequestRule.NO_CALL, str(message.tool_call_id)))
            return problems
        if message.role == "assistant":
            ids = calls_in(message)
            self._looked_at = message, ids
            before: set[str] = set()
            for call_id in ids:
                if self.is_used(call_id) or call_id in before or not is_plain(call_id):
                    problems.append(RequestProblem(RequestRule.CALL_ID, call_id))
                before.add(call_id)
        return problems + self.unanswered() if self.open else problems

    def add(self, message: Message) -> None:
        role = message.role
        if role == "tool":
            self.open.pop(message.tool_call_id or "", None)
        elif role == "assistant":
            looked_at, ids = self._looked_at
            self.open = dict.fromkeys(ids if looked_at is message else calls_in(message))
            self._used.update(self.open)
        elif self.open:
            self.open = {}
        if role not in _ASIDES:
            self._last_speaker = role

    @property
    def may_end(self) -> bool:
        """Whether a request may end here: no call waits for its result, and the last word is not the model's."""
        return not self.open and self._last_speaker is not None and self._last_speaker != "assistant"

    def unanswered(self) -> list[RequestProblem]:
        return [RequestProblem(RequestRule.NO_RESULT, call_id) for call_id in self.open]


def problems_of(request: ChatRequest) -> list[str]:
    """Why a provider would refuse this request; empty: for nothing that can be told from here."""
    checking = RequestCheck()
    found: list[str] = []
    for place, message in enumerate(request.messages):
        found += [f"message {place}: {problem}" for problem in checking.look(message)]
        checking.add(message)
    at_end = checking.unanswered()
    if not at_end and not checking.may_end:
        at_end.append(RequestProblem(RequestRule.LAST_WORD, "assistant" if request.messages else "no message"))
    return found + [str(problem) for problem in (*at_end, *_tool_problems(request))]


def check(request: ChatRequest) -> None:
    """Refuse what a provider would refuse.

    Raises:
        InvalidRequestError: with everything that is wrong.
    """
    if found := problems_of(request):
        raise InvalidRequestError(f"A provider would refuse this request: {'; '.join(found)}.")


def block_problem(message: Message, block: ContentBlock) -> RequestProblem | None:
    """What is wrong with a block that stands in this message."""
    role = message.role
    rule_of = _rule_for(role, type(block))
    if rule_of is None:
        return RequestProblem(RequestRule.MISPLACED, f"{block.type}, {role}")
    rule = rule_of(block, message)
    return RequestProblem(rule, role) if rule else None


def can_be_sent(value: Any) -> bool:
    """Whether JSON can carry it to a provider: half a surrogate pair has no UTF-8, and not every parser takes a NaN."""
    try:
        if isinstance(value, str):
            value.encode()
        elif _NO_NUMBER.search(to_json(value)):  # or it is a word of some text
            json.dumps(value, allow_nan=False)
    except (ValueError, TypeError, RecursionError):
        return False
    return True


def is_plain(name: str) -> bool:
    """Whether it can name something: it is not blank, and can be sent."""
    return bool(name.strip()) and _is_sendable(name)


def _content_problems(message: Message) -> list[RequestProblem]:
    role, content, beside = message.role, message.content, calls_beside(message)
    if role not in _PLACES:
        return [RequestProblem(RequestRule.ROLE, role)]
    problems: list[RequestProblem] = []
    if message.name is not None and not is_plain(message.name):
        problems.append(RequestProblem(RequestRule.NAMELESS, role))
    if beside:
        problems += _problems_beside(role, beside)
    if isinstance(content, str):
        if content and (rule := _text_rule(content)):
            problems.append(RequestProblem(rule, role))
    else:
        problems += [problem for block in content if (problem := block_problem(message, block))]
        if _ends_in_thinking(message, content):
            problems.append(RequestProblem(RequestRule.ENDS_IN_THINKING, role))
    if not content and not (content == "" and beside and role == "assistant"):
        problems.append(RequestProblem(RequestRule.EMPTY, role))
    return problems


def _problems_beside(role: str, beside: list[Any]) -> list[RequestProblem]:
    problems = [] if role == "assistant" else [RequestProblem(RequestRule.MISPLACED, f"tool_calls, {role}")]
    for call in beside:
        rule: RequestRule | None = RequestRule.UNREADABLE_CALL
        if is_call(call):
            part = named(call)
            rule = _call_rule(part["name"], part.get("arguments"))
        if rule:
            problems.append(RequestProblem(rule, role))
    return problems


def _ends_in_thinking(message: Message, content: list[ContentBlock]) -> bool:
    """Whether nothing follows the thinking. Anthropic calls that invalid, and OpenAI does so of reasoning."""
    if not content or not isinstance(content[-1], _THINKING):
        return False
    return len(calls_in(message)) == sum(isinstance(block, ToolCallBlock) for block in content)


def _text_rule(text: str) -> RequestRule | None:
    if not text.strip():
        return RequestRule.BLANK
    return None if _is_sendable(text) else RequestRule.UNSENDABLE


def _is_sendable(text: str) -> bool:
    return text.isprintable() or sendable(text) == text  # what is printable is quicker to tell


def _call_rule(name: str, arguments: Any) -> RequestRule | None:
    if not is_plain(name):
        return RequestRule.NAMELESS
    return None if can_be_sent(arguments) else RequestRule.UNSENDABLE


def _thinking_rule(block: ThinkingBlock) -> RequestRule | None:
    # Other providers keep the state of their reasoning in `content` rather than in a signature.
    if not block.signature and not block.content:
        return RequestRule.UNSIGNED
    return None if can_be_sent(block.thinking) else RequestRule.UNSENDABLE


def _result_rule(block: ToolResultBlock, message: Message) -> RequestRule | None:
    if block.tool_call_id != message.tool_call_id:
        return RequestRule.OTHER_RESULT
    return None if can_be_sent(block.output) else RequestRule.UNSENDABLE


# What else each kind of block must not be.
_BLOCK_RULES: dict[type[ContentBlock], Callable[[Any, Message], RequestRule | None]] = {
    TextBlock: lambda block, _: _text_rule(block.text),
    ToolCallBlock: lambda block, _: _call_rule(block.name, block.input),
    ThinkingBlock: lambda block, _: _thinking_rule(block),
    ToolResultBlock: _result_rule,
}


@cache
def _rule_for(role: str, kind: type[ContentBlock]) -> Callable[[Any, Message], RequestRule | None] | None:
    """What looks at a block of this kind in a message of this role; `None` where it has no place."""
    if not issubclass(kind, _PLACES[role]):
        return None
    return next((rule for base, rule in _BLOCK_RULES.items() if issubclass(kind, base)), lambda _block, _of: None)


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
