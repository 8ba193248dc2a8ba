"""Faults in Web API calls of the app, and in the delivery of events to it."""

from __future__ import annotations

import re
from collections import defaultdict, deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio


@dataclass(frozen=True, slots=True)
class ErrorResponse:
    """The call has no effect and is answered with ``ok: false`` and this error."""

    error: str


@dataclass(frozen=True, slots=True)
class RateLimited:
    """The call has no effect and is answered with HTTP 429."""

    retry_after_s: int = 1


@dataclass(frozen=True, slots=True)
class ServerError:
    """The call has no effect and is answered with this HTTP status and no JSON."""

    status: int = 500


@dataclass(frozen=True, slots=True)
class BlockUntil:
    """The call takes effect and is answered once ``until`` is set."""

    until: asyncio.Event


@dataclass(frozen=True, slots=True)
class SlowResponse:
    """The call takes effect at once and is answered after ``delay_s``."""

    delay_s: float


@dataclass(frozen=True, slots=True)
class DropAfterCall:
    """The call takes effect, then the connection is cut: its outcome is unknown to the caller."""


@dataclass(frozen=True, slots=True)
class DropBeforeCall:
    """The connection is cut and the call has no effect; the caller cannot tell it from DropAfterCall."""


Fault = ErrorResponse | RateLimited | ServerError | BlockUntil | SlowResponse | DropAfterCall | DropBeforeCall


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


@dataclass(frozen=True, slots=True)
class HeldUntil:
    """The envelope is sent once ``until`` is set, over a connection that later envelopes may be sent over before."""

    until: asyncio.Event


DeliveryFault = Duplicated | Delayed | Dropped | HeldUntil


def kind_of(fault: type) -> str:
    """Return the name of a kind of fault in JSON: ``DropBeforeCall`` is ``drop_before_call``."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", fault.__name__).lower()


class Faults:
    """A queue of faults per method. Only calls with the app's tokens meet them, not the calls of people."""

    def __init__(self) -> None:
        self._coming: defaultdict[str, deque[Fault]] = defaultdict(deque)

    def next(self, method: str, fault: Fault, *, times: int = 1) -> None:
        """Queue ``fault`` for ``times`` calls of ``method``, behind the faults queued before."""
        self._coming[method].extend([fault] * times)

    def clear(self) -> None:
        self._coming.clear()

    @property
    def coming(self) -> dict[str, tuple[Fault, ...]]:
        """Return the queued faults by method."""
        return {method: tuple(faults) for method, faults in self._coming.items() if faults}

    def pending(self, method: str) -> int:
        """Return the number of queued faults of a method."""
        return len(self._coming[method])

    def take(self, method: str) -> Fault | None:
        return self._coming[method].popleft() if self._coming[method] else None


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
