"""A record of calls, deliveries, acks, faults and connections, one JSON object per line."""

from __future__ import annotations

import dataclasses
import json
import re
import time
from collections import deque
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

_KEPT = 10_000
_LONGEST_TEXT = 1_000
# Matches within a word too: in JSON, an escaped line break before a token ends in a letter.
_TOKEN = re.compile(r"(?:xox[a-z]|xapp)[-.][\w.-]+")


class Recorder:
    """The latest entries as text, without tokens. Each entry is also written to ``write_to``."""

    def __init__(self, kept: int = _KEPT, clock: Callable[[], float] = time.time) -> None:
        self._lines: deque[str] = deque(maxlen=kept)
        self._clock = clock
        self.write_to: TextIO | None = None

    def note(self, what: str, **fields: Any) -> None:
        entry = {"at": round(self._clock(), 6), "what": what, **fields}
        text = json.dumps(entry, ensure_ascii=False, default=str).encode(errors="backslashreplace").decode()
        line = _TOKEN.sub("(a token)", text)
        self._lines.append(line)
        if self.write_to:
            self.write_to.write(line + "\n")

    def fault(self, fault: Any, **fields: Any) -> None:
        """Record a fault that took effect, with its fields."""
        given = {f.name: getattr(fault, f.name) for f in dataclasses.fields(fault)}
        self.note("fault", kind=kind_of(type(fault)), **given, **fields)

    def call(self, call: Mapping[str, Any]) -> None:
        """Record a call of the Web API; of the response only ``ok`` and ``error``."""
        answer = call["answer"] or {}
        fields = {name: call[name] for name in call if name not in {"arguments", "answer", "fault"}}
        outcome = {"ok": answer.get("ok"), "error": answer.get("error")}
        fault = _snake(call["fault"]) or None
        self.note("call", **fields, arguments=shortened(call["arguments"]), **outcome, fault=fault)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Iterate over the entries, oldest first."""
        return (json.loads(line) for line in tuple(self._lines))

    def __len__(self) -> int:
        return len(self._lines)

    @property
    def text(self) -> str:
        """Return all entries as JSON lines."""
        return "".join(line + "\n" for line in self._lines)

    def clear(self) -> None:
        self._lines.clear()


def kind_of(fault: type) -> str:
    """Return the name of a kind of fault in JSON: ``DropBeforeCall`` is ``drop_before_call``."""
    return _snake(fault.__name__)


def _snake(name: str) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()


def shortened(value: Any) -> Any:
    """Truncate the long texts in a JSON value."""
    match value:
        case str() if len(value) > _LONGEST_TEXT:
            return f"{value[:_LONGEST_TEXT]}… ({len(value)} characters)"
        case dict():
            return {key: shortened(each) for key, each in value.items()}
        case list():
            return [shortened(each) for each in value]
        case _:
            return value
