"""What happened, line by line, in virtual time."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable


class Line(NamedTuple):
    at_s: float
    who: str
    what: str

    def __str__(self) -> str:
        return f"{self.at_s:12.6f}  {self.who:<10} {self.what}"


class Trace:
    """The lines so far; `on_line` is called after each, with their number."""

    def __init__(self, now: Callable[[], float]) -> None:
        self.lines: list[Line] = []
        self.on_line: Callable[[int], None] | None = None
        self._now = now

    def tell(self, who: str, what: str) -> None:
        self.lines.append(Line(self._now(), who, what))
        if self.on_line is not None:
            self.on_line(len(self.lines))
