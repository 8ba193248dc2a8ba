"""Pair calls with their results in the order that providers require."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from orchestrator_interactive.interactions.rendering.openai_format import NO_RESULT, RenderedCall

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from orchestrator_interactive.interactions.rendering.openai_format import Message


@dataclass
class _PairedCall:
    """A call and its result.

    Args:
        shown: neither the call nor its result is excluded.
        has_begun: the call was started, not only declared.
    """

    call: RenderedCall
    shown: bool
    has_begun: bool
    place: int | None = None  # order of the result within its round
    result: str = NO_RESULT


@dataclass
class _Round:
    """An answer of the model, its calls and their results."""

    text: str | None
    calls: list[_PairedCall] = field(default_factory=list)
    results: int = 0

    def messages(self) -> Iterator[Message]:
        shown = [each for each in self.calls if each.shown]
        if not shown and self.text is None:
            return
        answer: Message = {"role": "assistant", "content": self.text}
        if shown:
            answer["tool_calls"] = [each.call.to_dict() for each in shown]
        yield answer
        last = len(self.calls)
        for each in sorted(shown, key=lambda each: last if each.place is None else each.place):
            yield {"role": "tool", "tool_call_id": each.call.id, "content": each.result}


class Pairing:
    """Collects entries in log order; its messages have each result directly after its call.

    Other entries between a call and its result follow the result. Repeated ids get a numeric suffix, because providers
    require unique ids.
    """

    def __init__(self) -> None:
        self._items: list[_Round | Message] = []
        self._open: dict[str, tuple[_Round, _PairedCall]] = {}
        self._joinable: _Round | None = None
        self._used: dict[str, int] = {}

    def messages(self) -> list[Message]:
        found: list[Message] = []
        for item in self._items:
            found += item.messages() if isinstance(item, _Round) else [item]
        return found

    def add_aside(self, message: Message) -> None:
        """Add a message after which the same answer may have further calls."""
        self._items.append(message)

    def add_message(self, message: Message | None) -> None:
        """Add a message that ends the preceding answer; `None` for one that is excluded."""
        self._joinable = None
        if message is not None:
            self._items.append(message)

    def add_answer(self, text: str | None, calls: Iterable[RenderedCall], *, shown: bool) -> None:
        """Add an answer of the model with its declared calls; earlier open calls accept no more results."""
        self._open = {}
        answer = self._begin(text if shown else None)
        for call in calls:
            self._add(answer, call, shown=shown, has_begun=False)

    def add_call(self, call: RenderedCall, *, shown: bool) -> None:
        """Add the start of a call, whether or not it was declared."""
        found = self._open.get(call.id)
        if found and not found[1].has_begun:
            found[1].has_begun, found[1].shown = True, shown
        else:
            self._add(self._joinable or self._begin(None), call, shown=shown, has_begun=True)

    def add_result(self, call_id: str, text: str, *, shown: bool) -> bool:
        """Add a result; return False and drop it if no such call is open."""
        found = self._open.pop(call_id, None)
        if found is None:
            return False
        answer, call = found
        call.place, call.result = answer.results, text
        call.shown = call.shown and shown
        answer.results += 1
        if self._joinable is answer:
            self._joinable = None
        return True

    def _begin(self, text: str | None) -> _Round:
        self._joinable = answer = _Round(text)
        self._items.append(answer)
        return answer

    def _add(self, answer: _Round, call: RenderedCall, *, shown: bool, has_begun: bool) -> None:
        paired = _PairedCall(call._replace(id=self._unique_id(call.id)), shown, has_begun)
        answer.calls.append(paired)
        self._open[call.id] = answer, paired

    def _unique_id(self, call_id: str) -> str:
        base = call_id.strip() or "call"
        unique = base
        while unique in self._used:
            self._used[base] += 1
            unique = f"{base}-{self._used[base]}"
        self._used[unique] = 1
        return unique
