"""What happened, one JSON object per line: calls, deliveries, acks, faults and connections."""

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
# Also within a word: in JSON, a line break before a token ends in a letter.
_TOKEN = re.compile(r"(?:xox[a-z]|xapp)[-.][\w.-]+")


class Recorder:
    """Keep the latest entries, as text; ``write_to`` gets each as it comes. Tokens are never in it."""

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
        """Note that something met a fault, with the fault's own fields."""
        given = {f.name: getattr(fault, f.name) for f in dataclasses.fields(fault)}
        self.note("fault", kind=kind_of(type(fault)), **given, **fields)

    def call(self, call: Mapping[str, Any]) -> None:
        """Note a call of the Web API as WebApi tells of it; of the answer only what it came to is kept."""
        answer = call["answer"] or {}
        told = {name: call[name] for name in call if name not in {"arguments", "answer", "fault"}}
        came_to = {"ok": answer.get("ok"), "error": answer.get("error")}
        fault = _snake(call["fault"]) or None
        self.note("call", **told, arguments=shortened(call["arguments"]), **came_to, fault=fault)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Give the entries, oldest first."""
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
    """Return the name of a kind of fault in JSON: ``DropsBefore`` is ``drops_before``."""
    return _snake(fault.__name__)


def _snake(name: str) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()


def shortened(value: Any) -> Any:
    """Return a JSON value whose long texts are cut."""
    match value:
        case str() if len(value) > _LONGEST_TEXT:
            return f"{value[:_LONGEST_TEXT]}… ({len(value)} characters)"
        case dict():
            return {key: shortened(each) for key, each in value.items()}
        case list():
            return [shortened(each) for each in value]
        case _:
            return value
