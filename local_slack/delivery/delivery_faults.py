"""Make the delivery of events go wrong on purpose: twice, late, or not the first time."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Twice:
    """The same envelope is sent two times, over two connections where there are two."""


@dataclass(frozen=True, slots=True)
class Late:
    """The envelope is sent after ``behind`` later ones; if those do not come, after the time for an ack."""

    behind: int = 1


@dataclass(frozen=True, slots=True)
class Lost:
    """The envelope is not sent the first time; it comes as the retries of the schedule."""


DeliveryFault = Twice | Late | Lost


class DeliveryFaults:
    """Hold what the next first deliveries shall meet, in order. A retry meets none."""

    def __init__(self) -> None:
        self._coming: deque[DeliveryFault] = deque()

    def next(self, fault: DeliveryFault, *, times: int = 1) -> None:
        """Let the next ``times`` envelopes meet ``fault``, after those already announced."""
        self._coming.extend([fault] * times)

    def clear(self) -> None:
        self._coming.clear()

    @property
    def coming(self) -> tuple[DeliveryFault, ...]:
        """Return what is announced and not met yet."""
        return tuple(self._coming)

    def take(self) -> DeliveryFault | None:
        return self._coming.popleft() if self._coming else None
