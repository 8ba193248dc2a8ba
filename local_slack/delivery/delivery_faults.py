"""Faults in the delivery of events: twice, late, or lost at the first attempt."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Duplicated:
    """The envelope is sent twice, over two connections if there are two."""


@dataclass(frozen=True, slots=True)
class Delayed:
    """The envelope is sent after ``behind`` later ones, at the latest after the ack time-out."""

    behind: int = 1


@dataclass(frozen=True, slots=True)
class Dropped:
    """The first attempt is not sent; the retries are."""


DeliveryFault = Duplicated | Delayed | Dropped


class DeliveryFaults:
    """Queue of faults for the next envelopes, in order. Retries do not meet faults."""

    def __init__(self) -> None:
        self._coming: deque[DeliveryFault] = deque()

    def next(self, fault: DeliveryFault, *, times: int = 1) -> None:
        """Queue ``fault`` for ``times`` envelopes, behind the faults queued before."""
        self._coming.extend([fault] * times)

    def clear(self) -> None:
        self._coming.clear()

    @property
    def coming(self) -> tuple[DeliveryFault, ...]:
        """Return the queued faults."""
        return tuple(self._coming)

    def take(self) -> DeliveryFault | None:
        return self._coming.popleft() if self._coming else None
