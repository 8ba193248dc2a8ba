"""Changes of files as unified diffs, in bounded time."""

from __future__ import annotations

import re
from difflib import Match, SequenceMatcher
from itertools import accumulate
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

# Comparisons of lines for one diff; they take about half a second.
_MAX_STEPS = 5_000_000


def diff(path: str, old: str, new: str) -> str:
    """Return a change of a file as a unified diff in a code block that it cannot end. Line ends are shown, too.

    Call it in a thread: a diff of a megabyte takes about a second.
    """
    hunks = list(_hunks(_lines(old), _lines(new)))
    names = [f"--- {path if old else '(no file yet)'}", f"+++ {path}"]
    text = "\n".join([*names, *hunks] if hunks else ["(The file stays as it is.)"])
    fence = "`" * max(3, *(len(ticks) + 1 for ticks in re.findall("`+", text)), 3)
    return f"{fence}diff\n{text}\n{fence}"


def _lines(text: str) -> list[str]:
    *lines, last = text.replace("\r", "␍").split("\n")
    return [*lines, f"{last}\n\\ No newline at end of file"] if last else lines


def _hunks(old: list[str], new: list[str]) -> Iterator[str]:
    for group in _BoundedMatcher(old, new).get_grouped_opcodes():
        _, begin, _, begin_new, _ = group[0]
        _, _, end, _, end_new = group[-1]
        yield f"@@ -{_range(begin, end)} +{_range(begin_new, end_new)} @@"
        for kind, i, i_end, j, j_end in group:
            if kind == "equal":
                yield from (f" {line}" for line in old[i:i_end])
            else:
                yield from (f"-{line}" for line in old[i:i_end])
                yield from (f"+{line}" for line in new[j:j_end])


def _range(begin: int, end: int) -> str:
    """Return lines as in the header of a hunk: the first and how many; without any, the line before and 0."""
    return f"{begin + 1}" if end - begin == 1 else f"{begin + (end > begin)},{end - begin}"


class _BoundedMatcher(SequenceMatcher[str]):
    """Finds the lines that stay. The time of its base class can grow with the cube of their number.

    After the steps are used up, it compares the remaining lines in pairs.
    """

    # Of the base class: the sequences, and the places of each line in `b` that is not frequent there.
    a: list[str]
    b: list[str]
    b2j: dict[str, list[int]]

    def __init__(self, old: list[str], new: list[str]) -> None:
        super().__init__(None, old, new)
        self._left = _MAX_STEPS
        # Steps for the lines before each line.
        self._steps = [0, *accumulate(1 + len(self.b2j.get(line, ())) for line in old)]

    def find_longest_match(self, alo: int = 0, ahi: int | None = None, blo: int = 0, bhi: int | None = None) -> Match:
        """Return a match in parts of the sequences; without one, its size is 0."""
        ahi, bhi = len(self.a) if ahi is None else ahi, len(self.b) if bhi is None else bhi
        steps = self._steps[ahi] - self._steps[alo]
        if steps <= self._left:
            self._left -= steps
            return super().find_longest_match(alo, ahi, blo, bhi)
        length = min(ahi - alo, bhi - blo)
        begin = next((n for n in range(length) if self.a[alo + n] == self.b[blo + n]), length)
        end = next((n for n in range(begin, length) if self.a[alo + n] != self.b[blo + n]), length)
        return Match(alo + begin, blo + begin, end - begin)
