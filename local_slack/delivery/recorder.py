"""A record of calls, deliveries, acks, faults and connections, one JSON object per line."""

from __future__ import annotations

import dataclasses
import json
import re
import time
from collections import deque
from typing import TYPE_CHECKING, Any, TextIO

from local_slack.delivery.faults import kind_of

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
        fields = {name: value for name, value in call.items() if name != "answer"}
        fields["arguments"] = shortened(call["arguments"])
        self.note("call", **fields, ok=call["answer"].get("ok"), error=call["answer"].get("error"))

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
