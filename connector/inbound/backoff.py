"""Exponential back-off with jitter."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

_DOUBLINGS = 20


@dataclass(frozen=True, slots=True)
class Backoff:
    """Delays that double with each failure up to `longest_s`; jitter picks between half and all of the delay."""

    first_s: float
    longest_s: float
    chance: Callable[[], float] = random.random

    def delay_s(self, failures: int) -> float:
        """Return the seconds to wait after this many consecutive failures."""
        if failures < 1:
            return 0.0
        full_s = min(self.first_s * 2.0 ** min(failures - 1, _DOUBLINGS), self.longest_s)
        return full_s * (0.5 + self.chance() / 2)
