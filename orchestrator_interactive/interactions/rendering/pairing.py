"""Calls and their results, put together into messages that a provider takes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from orchestrator_interactive.interactions.rendering.openai_format import NO_RESULT, RenderedCall

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from orchestrator_interactive.interactions.rendering.openai_format import Message


@dataclass
class _Asked:
    """A call on its way to its result.

    Args:
        shown: neither it nor its result is left out on purpose.
        has_begun: it was not only declared.
    """

    call: RenderedCall
    shown: bool
    has_begun: bool
    place: int | None = None  # of the result among those of its round
    result: str = NO_RESULT


@dataclass
class _Round:
    """What the agent said, and what came of the calls that it made then."""

    text: str | None
    calls: list[_Asked] = field(default_factory=list)
    results: int = 0

    def messages(self) -> Iterator[Message]:
        shown = [each for each in self.calls if each.shown]
        if not shown and self.text is None:
            return
        said: Message = {"role": "assistant", "content": self.text}
        if shown:
            said["tool_calls"] = [each.call.wire() for each in shown]
        yield said
        last = len(self.calls)
        for each in sorted(shown, key=lambda each: last if each.place is None else each.place):
            yield {"role": "tool", "tool_call_id": each.call.id, "content": each.result}


class Pairing:
    """Takes in what was said and done in order; its messages have each result right behind its call.

    Whatever else came between a call and its result comes after it. Ids that come again get a number, for providers
    want each call to have its own.
    """

    def __init__(self) -> None:
        self._items: list[_Round | Message] = []
        self._open: dict[str, tuple[_Round, _Asked]] = {}
        self._joinable: _Round | None = None
        self._used: dict[str, int] = {}

    def messages(self) -> list[Message]:
        found: list[Message] = []
        for item in self._items:
            found += item.messages() if isinstance(item, _Round) else [item]
        return found

    def aside(self, message: Message) -> None:
        """Something that another call of the same answer may follow."""
        self._items.append(message)

    def said(self, message: Message | None) -> None:
        """Something that ends what the agent said before; `None`: something that is not shown."""
        self._joinable = None
        if message is not None:
            self._items.append(message)

    def answered(self, text: str | None, calls: Iterable[RenderedCall], *, shown: bool) -> None:
        """An answer of the model, with the calls that it declares; calls from before it get no result any more."""
        self._open = {}
        answer = self._begin(text if shown else None)
        for call in calls:
            self._ask(answer, call, shown=shown, has_begun=False)

    def called(self, call: RenderedCall, *, shown: bool) -> None:
        """A call that begins, declared before or not."""
        found = self._open.get(call.id)
        if found and not found[1].has_begun:
            found[1].has_begun, found[1].shown = True, shown
        else:
            self._ask(self._joinable or self._begin(None), call, shown=shown, has_begun=True)

    def resulted(self, call_id: str, text: str, *, shown: bool) -> bool:
        """A result; False: nobody has asked for it, and it is left out."""
        found = self._open.pop(call_id, None)
        if found is None:
            return False
        answer, asked = found
        asked.place, asked.result = answer.results, text
        asked.shown = asked.shown and shown
        answer.results += 1
        if self._joinable is answer:
            self._joinable = None
        return True

    def _begin(self, text: str | None) -> _Round:
        self._joinable = answer = _Round(text)
        self._items.append(answer)
        return answer

    def _ask(self, answer: _Round, call: RenderedCall, *, shown: bool, has_begun: bool) -> None:
        asked = _Asked(call._replace(id=self._own_id(call.id)), shown, has_begun)
        answer.calls.append(asked)
        self._open[call.id] = answer, asked

    def _own_id(self, call_id: str) -> str:
        wish = call_id.strip() or "call"
        own = wish
        while own in self._used:
            self._used[wish] += 1
            own = f"{wish}-{self._used[wish]}"
        self._used[own] = 1
        return own
