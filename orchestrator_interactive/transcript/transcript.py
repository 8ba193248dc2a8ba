"""From the rows of a conversation to messages that any provider accepts, and to requests.

Rows are parsed, each result is placed directly after its call, and what breaks a rule of the request check is
repaired. `Transcript` extends its messages at the tail; `normalised` converts rows once.
"""

from __future__ import annotations

from collections import defaultdict, deque
from contextlib import suppress
from itertools import chain
from typing import TYPE_CHECKING, Any

import structlog
from pydantic import TypeAdapter, ValidationError

from orchestrator_interactive.json_limits import MAX_NESTING, MAX_ROW_NESTING, bounded, nesting
from orchestrator_interactive.kernel.contracts.messages import (
    ChatRequest,
    ContentBlockUnion,
    Message,
    ToolResultBlock,
    ToolSpec,
)
from orchestrator_interactive.kernel.contracts.models import ToolResult
from orchestrator_interactive.kernel.contracts.request_validation import RequestCheck, RequestRule, is_plain
from orchestrator_interactive.kernel.contracts.tool_calls import calls_in, calls_in_field, is_call
from orchestrator_interactive.kernel.error_boundary import ErrorBoundary
from orchestrator_interactive.transcript.answer_parts import partial_reason_of
from orchestrator_interactive.transcript.framing import CONTINUE_PROMPT, without_frames
from orchestrator_interactive.transcript.repair import repaired
from orchestrator_interactive.transcript.rows import is_of_hook, is_refused, without_refused

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from orchestrator_interactive.kernel.contracts.messages import ContentBlock
    from orchestrator_interactive.kernel.contracts.protocols import Provider, Tool
    from orchestrator_interactive.kernel.contracts.request_validation import RequestProblem

    Row = dict[str, Any]
    ReportProblem = Callable[[str, str], None]

log = structlog.get_logger(__name__)

NO_RESULT = (
    "No result was recorded: the outcome of this call is unknown. It may have taken effect: check before you repeat it."
)
# Errors raised for a malformed row.
UNREADABLE = (ValueError, TypeError, KeyError, AttributeError)

_UNREADABLE = "a row, or a part of one, that cannot be read"
_RULES = list(RequestRule)
_RESULTS = ("tool", "function")
_CONTINUE = Message(role="user", content=CONTINUE_PROMPT)
_BLOCK: TypeAdapter[ContentBlock] = TypeAdapter(ContentBlockUnion)


class RequestBuilder:
    """Builds the requests of one run. They grow at their tail only, so the provider's prompt cache keeps the prefix."""

    def __init__(self, provider: Provider, tools: Mapping[str, Tool], transcript: Transcript | None = None) -> None:
        specs = list(_specs(tools)) or None
        can_choose = specs is not None and "tool_choice" in provider.get_info().capabilities
        without = {"tools": specs, "tool_choice": "none"} if can_choose else {}
        self._with_tools = ChatRequest(messages=[], stream=True, tools=specs)
        self._without_tools = ChatRequest(messages=[], stream=True, **without)
        self._transcript = transcript or Transcript()
        # Returns whether a call in the last request's conversation has this id.
        self.is_used = self._transcript.is_used

    def build(self, rows: Sequence[Row], ephemeral: Sequence[Row] = (), *, tools_allowed: bool) -> ChatRequest:
        """Build the request for these rows; `ephemeral` rows are part of this request only."""
        frame = self._with_tools if tools_allowed else self._without_tools
        # `model_copy` does not validate: the transcript has validated the messages.
        return frame.model_copy(update={"messages": self._transcript.messages(rows, ephemeral)})


class Transcript:
    """The messages of a conversation, valid for any provider, extended at the tail.

    Each row is processed once while rows are only appended. Rows are immutable: a context replaces a row to change it.
    Problems found by the request check are repaired and logged.
    """

    def __init__(self) -> None:
        self.problems: list[str] = []
        self._reported: set[tuple[str, str]] = set()
        self._has_refused = False
        self._rows: list[Row] = []
        self._draft = _Draft(self._report)

    def messages(self, rows: Sequence[Row], passing: Sequence[Row] = ()) -> list[Message]:
        """Return the messages for these rows in a new list; those for `passing` rows are at its end, this time only.

        All rows are processed again if they do not extend the earlier ones (compaction, a rewind), if a new one is a
        refusal, or if one is a result already replaced by `NO_RESULT`.
        """
        rows = rows if isinstance(rows, list) else list(rows)
        if self._has_refused:
            rows = without_refused(rows)
        new = rows[len(self._rows) :]
        self._rows.extend(new)
        # List comparison copies nothing and compares identical rows by identity.
        if self._rows != rows or any(map(is_refused, new)) or not self._draft.add(new):
            self._has_refused = self._has_refused or any(map(is_refused, rows))
            self._rows, self._draft = without_refused(rows), _Draft(self._report)
            self._draft.add(self._rows)
        return self._draft.finished(passing)

    @property
    def length(self) -> int:
        """The number of processed rows."""
        return len(self._rows)

    def is_used(self, call_id: str) -> bool:
        """Return whether a call in these messages has this id."""
        return self._draft.check.is_used(call_id)

    def _report(self, problem: str, where: str) -> None:
        if (problem, where) not in self._reported:
            self._reported.add((problem, where))
            self.problems.append(problem)
            log.warning("request.repaired", problem=problem, where=where)


def normalised(rows: Iterable[Row]) -> list[Message]:
    """Return the messages for these rows: valid, each result directly after its call, no refused tasks.

    Unlike those of a request, they may end with an answer of the model, and a continued answer follows the cut one
    directly. Repairs are not logged.
    """
    draft = _Draft(lambda _problem, _where: None)
    draft.add(without_refused(rows))
    draft.give_up()
    return [message for message in draft.messages if message is not _CONTINUE]


class _Draft:
    """Messages that pass the request check, and the state needed to extend them."""

    def __init__(self, report: ReportProblem, check: RequestCheck | None = None) -> None:
        self.messages: list[Message] = []
        self.check = check or RequestCheck()
        self._report = report
        # Pairs of old and new ids of the last answer's calls, if any id was replaced.
        self._renamed: Sequence[tuple[str, str]] = ()
        # Ids, in the rows, of calls whose result was replaced by NO_RESULT.
        self._given_up: set[str] = set()
        # Whether the last row of a speaker is an answer that was cut.
        self._was_cut = False

    def add(self, rows: Iterable[Row]) -> bool:
        """Add rows. Returns False, without a change, if one is the result of a call that has NO_RESULT."""
        read = [message for row in rows for message in (*self._prompt_before(row), *self._read(row))]
        if self._given_up:
            answered = {each.tool_call_id or "" for each in read if each.role in _RESULTS}
            if not self._given_up.isdisjoint(answered):
                return False
        for at, message in enumerate(read):
            if self.check.open and message.role not in _RESULTS:
                for each in _results_first(read[at:], [asked for asked, _ in self._waiting()]):
                    self._append(each)
                break
            self._append(message)
        return True

    def finished(self, passing: Sequence[Row]) -> list[Message]:
        """Return the messages for a request: each call has a result, and the last message is not the model's."""
        if not passing and self.check.may_end:
            return self.messages.copy()
        end = _Draft(self._report, self.check.fork())
        end.add(passing)
        end._report_all(end.check.unanswered())
        end.give_up()
        if not end.check.may_end:  # a hook injected an assistant row, or the model is to continue
            end.messages.append(_CONTINUE)
        return self.messages + end.messages

    def give_up(self) -> None:
        """Add NO_RESULT for each call without a result."""
        for there, here in self._waiting():
            self._given_up.add(there)
            result = Message(role="tool", tool_call_id=here, content=NO_RESULT, metadata={"is_error": True})
            self.check.add(result)
            self.messages.append(result)

    def _prompt_before(self, row: Row) -> list[Message]:
        """Return the prompt that an answer continued a cut one for: its request had it, and the rows do not."""
        role = row.get("role") if isinstance(row, dict) else None
        is_answer, was_cut = role == "assistant", self._was_cut
        if role not in ("system", "developer"):
            self._was_cut = is_answer and partial_reason_of(row) is not None
        return [_CONTINUE] if is_answer and was_cut else []

    def _read(self, row: Row) -> list[Message]:
        try:
            message = message_of(row)
        except UNREADABLE:
            self._report(_UNREADABLE, str(row.get("role")) if isinstance(row, dict) else type(row).__name__)
            return _best_effort(row)
        if "metadata" in row and is_of_hook(row) and isinstance(message.content, str):  # it may quote outside text
            message = message.model_copy(update={"content": without_frames(message.content)})
        return _split_results(message) if message.role == "user" else [message]

    def _append(self, message: Message) -> None:
        if message is _CONTINUE and self.check.may_end:  # nothing is left of the cut answer
            return
        is_result = message.role in _RESULTS
        if is_result and self._renamed:
            own = next((here for there, here in self._waiting() if there == (message.tool_call_id or "")), None)
            message = message.model_copy(update={"tool_call_id": own})
        sound = self._repaired(message, problems) if (problems := self.check.problems_of(message)) else message
        if sound is None:
            return
        if not is_result:
            self._renamed = () if sound is message else _renamed(message, sound)
        self.check.add(sound)
        self.messages.append(sound)

    def _waiting(self) -> list[tuple[str, str]]:
        """Return the calls without a result: the id in the rows, and the id in the messages."""
        pairs = self._renamed or [(call_id, call_id) for call_id in self.check.open]
        return [(there, here) for there, here in pairs if here in self.check.open]

    def _repaired(self, message: Message, problems: list[RequestProblem]) -> Message | None:
        """Repair a message for this position; None if nothing is left."""
        repairing: Message | None = message
        while repairing is not None and problems:
            rule = min((problem.rule for problem in problems), key=_RULES.index)
            self._report_all(problem for problem in problems if problem.rule is rule)
            if rule is RequestRule.NO_RESULT:
                self.give_up()
            else:
                repairing = repaired(repairing, rule, self.check.is_used)
            problems = self.check.problems_of(repairing) if repairing is not None else []
        return repairing

    def _report_all(self, problems: Iterable[RequestProblem]) -> None:
        for problem in problems:
            self._report(problem.rule.value, problem.where)


def message_of(row: Row) -> Message:
    """Parse a row. Its metadata are dropped except `is_error`, which providers need.

    Raises:
        ValueError, TypeError, KeyError, AttributeError: the row is malformed.
    """
    metadata = row.get("metadata")
    failed = {"is_error": metadata["is_error"]} if isinstance(metadata, dict) and "is_error" in metadata else None
    return Message.model_validate(
        bounded({**row, "content": row.get("content") or "", "metadata": failed}, MAX_ROW_NESTING)
    )


def unreadable(row: Any) -> str | None:
    """Return the problem of a row that did not come from the context; None if it is valid."""
    try:
        message = message_of(row)
    except UNREADABLE as e:
        return f"{type(e).__name__}: {e}"
    return None if all(map(is_call, calls_in_field(message))) else RequestRule.UNREADABLE_CALL.value


def _best_effort(row: Any) -> list[Message]:
    """Parse the valid parts of a malformed row."""
    if not isinstance(row, dict):
        return []
    content = row.get("content")
    if isinstance(content, list):
        blocks, content = content, []
        for block in blocks:
            with suppress(ValidationError):
                _BLOCK.validate_python(block)
                content.append(block)
    elif content is not None and not isinstance(content, str):
        content = ToolResult(output=content).get_serialized_output()
    kept = {key: row[key] for key in ("role", "name", "tool_call_id", "tool_calls", "metadata") if key in row}
    try:
        return _split_results(message_of({**kept, "content": content}))
    except UNREADABLE:
        return []


def _split_results(message: Message) -> list[Message]:
    """Split tool results in a user message, as in Anthropic's API, into separate messages."""
    if message.role != "user" or isinstance(message.content, str):
        return [message]
    results = [block for block in message.content if isinstance(block, ToolResultBlock)]
    if not results:
        return [message]
    rest = [block for block in message.content if not isinstance(block, ToolResultBlock)]
    rest_message = [message.model_copy(update={"content": rest})] if rest else []
    return [Message(role="tool", tool_call_id=each.tool_call_id, content=[each]) for each in results] + rest_message


def _renamed(message: Message, sound: Message) -> list[tuple[str, str]]:
    """Return pairs of old and new ids of an answer's calls; empty if no id was replaced."""
    pairs = list(zip(calls_in(message), calls_in(sound), strict=True)) if message.role == "assistant" else []
    return pairs if any(was != now for was, now in pairs) else []


def _results_first(messages: Iterable[Message], waiting: Iterable[str]) -> Iterator[Message]:
    """Yield the messages with each result directly after its call; `waiting` are earlier calls without a result."""
    before: list[Message] = []
    places = [before]
    calls: defaultdict[str, deque[list[Message]]] = defaultdict(deque)
    for call_id in waiting:
        calls[call_id].append(before)
    for message in messages:
        place = [message]
        if message.role in _RESULTS and (open_calls := calls[message.tool_call_id or ""]):
            open_calls.popleft().append(message)
            continue
        places.append(place)
        ids = calls_in(message) if message.role == "assistant" else []
        for call_id in ids:  # later results belong to this call, not to an earlier one with its id
            calls[call_id].clear()
        for call_id in ids:
            calls[call_id].append(place)
    return chain.from_iterable(places)


def _specs(tools: Mapping[str, Tool]) -> Iterator[ToolSpec]:
    for name, tool in tools.items():
        with ErrorBoundary(log, "tool.not_offered", tool=name) as boundary:
            spec = _spec(name, tool)
        if boundary.error is None:
            yield spec


def _spec(name: str, tool: Tool) -> ToolSpec:
    if not is_plain(name):
        raise ValueError("A tool needs a name.")
    schema = getattr(tool, "input_schema", None)
    if schema is None and hasattr(tool, "get_schema"):
        schema = tool.get_schema()
    if nesting(schema, MAX_NESTING) > MAX_NESTING:
        raise ValueError(f"The schema of a tool may have {MAX_NESTING} levels.")
    return ToolSpec(name=name, description=tool.description, parameters=schema or {"type": "object"})
