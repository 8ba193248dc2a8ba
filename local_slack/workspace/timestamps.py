"""Slack's ``ts``: seconds and six digits, unique and strictly increasing; the id of a message."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

_FORM = re.compile(r"\d{1,12}(\.\d{1,6})?")


class Timestamps:
    """Generate unique, increasing timestamps near the clock's time."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._last_us = 0

    def next(self) -> str:
        self._last_us = max(int(self._clock() * 1_000_000), self._last_us + 1)
        return f"{self._last_us // 1_000_000}.{self._last_us % 1_000_000:06d}"


def is_timestamp(text: str) -> bool:
    return _FORM.fullmatch(text) is not None


def order(ts: str) -> tuple[int, int]:
    """Return a sort key for timestamps, including those with fewer digits."""
    seconds, _, fraction = ts.partition(".")
    return int(seconds), int(fraction.ljust(6, "0") or 0)
