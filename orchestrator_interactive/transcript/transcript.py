"""The messages of a conversation in a form that any provider accepts, extended at the tail."""

from __future__ import annotations

from collections import defaultdict, deque
from itertools import chain
from typing import TYPE_CHECKING, Any

import structlog

from orchestrator_interactive.kernel.contracts.messages import Message
from orchestrator_interactive.kernel.contracts.request_validation import RequestCheck, RequestRule
from orchestrator_interactive.kernel.contracts.tool_calls import calls_in
from orchestrator_interactive.transcript.filtering import is_refused, without_refused
from orchestrator_interactive.transcript.framing import CONTINUE_PROMPT, without_frames
from orchestrator_interactive.transcript.parsing import UNREADABLE, best_effort, message_of, split_results
from orchestrator_interactive.transcript.repair import repaired, with_own_ids
from orchestrator_interactive.transcript.rows import is_of_hook

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from orchestrator_interactive.kernel.contracts.request_validation import RequestProblem

    Row = dict[str, Any]
    ReportProblem = Callable[[str, str], None]

log = structlog.get_logger(__name__)

NO_RESULT = (
    "No result was recorded: the outcome of this call is unknown. It may have taken effect: check before you repeat it."
)

_UNREADABLE = "a row, or a part of one, that cannot be read"
_RULES = list(RequestRule)
_RESULTS = ("tool", "function")
_CONTINUE_ROW = Message(role="user", content=CONTINUE_PROMPT)


class Transcript:
    """The messages of a conversation, valid for any provider, extended at the tail.

    Each row is processed once while rows are only appended. Rows are immutable: a context replaces a row to change it.
    Problems found by the request check are repaired and logged.
    """

    def __init__(self) -> None:
        self.problems: list[str] = []
        self._reported: set[tuple[str, str]] = set()
        self._has_refused = False
        self._start()

    def _start(self) -> None:
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
            self._start_over(rows)
        return self._draft.finished(passing)

    def _start_over(self, rows: list[Row]) -> None:
        if any(map(is_refused, rows)):
            self._has_refused = True
            rows = without_refused(rows)
        self._start()
        self._rows.extend(rows)
        self._draft.add(rows)

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

    def add(self, rows: Iterable[Row]) -> bool:
        """Add rows. Returns False, without a change, if one is the result of a call that has NO_RESULT."""
        read = self._read(rows)
        if self._given_up and any(each.role in _RESULTS and _answered(each) in self._given_up for each in read):
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
        end._give_up()
        if not end.check.may_end:  # a hook injected an assistant row, or the model is to continue
            end.messages.append(_CONTINUE_ROW)
        return self.messages + end.messages

    def _read(self, rows: Iterable[Row]) -> list[Message]:
        read: list[Message] = []
        for row in rows:
            try:
                message = message_of(row)
            except UNREADABLE:
                self._report(_UNREADABLE, str(row.get("role")) if isinstance(row, dict) else type(row).__name__)
                read += best_effort(row)
                continue
            if isinstance(message.content, str) and is_of_hook(row):  # it may quote outside text
                message = message.model_copy(update={"content": without_frames(message.content)})
            if message.role == "user" and not isinstance(message.content, str):
                read += split_results(message)
            else:
                read.append(message)
        return read

    def _append(self, message: Message) -> None:
        is_result = message.role in _RESULTS
        if is_result and self._renamed:
            message = self._for_renamed(message)
        sound = self._repaired(message, problems) if (problems := self.check.problems_of(message)) else message
        if sound is None:
            return
        if not is_result:
            self._renamed = () if sound is message else _renamed(message, sound)
        self.check.add(sound)
        self.messages.append(sound)

    def _take(self, message: Message) -> None:
        self.check.add(message)
        self.messages.append(message)

    def _waiting(self) -> list[tuple[str, str]]:
        """Return the calls without a result: the id in the rows, and the id in the messages."""
        pairs = self._renamed or [(call_id, call_id) for call_id in self.check.open]
        return [(there, here) for there, here in pairs if here in self.check.open]

    def _for_renamed(self, result: Message) -> Message:
        own = next((here for there, here in self._waiting() if there == _answered(result)), None)
        return result.model_copy(update={"tool_call_id": own})

    def _repaired(self, message: Message, problems: list[RequestProblem]) -> Message | None:
        """Repair a message for this position; None if nothing is left."""
        repairing: Message | None = message
        while repairing is not None and problems:
            rule = min((problem.rule for problem in problems), key=_RULES.index)
            self._report_all(problem for problem in problems if problem.rule is rule)
            if rule is RequestRule.NO_RESULT:
                self._give_up()
            elif rule is RequestRule.CALL_ID:
                repairing = with_own_ids(repairing, self.check.is_used)
            else:
                repairing = repaired(repairing, rule)
            problems = self.check.problems_of(repairing) if repairing is not None else []
        return repairing

    def _give_up(self) -> None:
        """Add NO_RESULT for each call without a result."""
        for there, here in self._waiting():
            self._given_up.add(there)
            metadata = {"is_error": True}
            self._take(Message(role="tool", tool_call_id=here, content=NO_RESULT, metadata=metadata))

    def _report_all(self, problems: Iterable[RequestProblem]) -> None:
        for problem in problems:
            self._report(problem.rule.value, problem.where)


def _answered(result: Message) -> str:
    """Return the id of the call, as in the rows."""
    return result.tool_call_id or ""


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
        if message.role in _RESULTS and (open_calls := calls[_answered(message)]):
            open_calls.popleft().append(message)
            continue
        places.append(place)
        ids = calls_in(message) if message.role == "assistant" else []
        for call_id in ids:  # later results belong to this call, not to an earlier one with its id
            calls[call_id].clear()
        for call_id in ids:
            calls[call_id].append(place)
    return chain.from_iterable(places)
