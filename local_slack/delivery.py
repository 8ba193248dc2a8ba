"""Envelopes on their way to the app: who gets which, and again if nobody says that it arrived."""

from __future__ import annotations

import asyncio
import json
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


@dataclass(frozen=True, slots=True)
class RetrySchedule:
    """Slack waits ``ack_timeout_s`` for an ack and then delivers again after each delay in turn."""

    ack_timeout_s: float = 3.0
    delays_s: tuple[float, ...] = (0.0, 60.0, 300.0)


@dataclass(frozen=True, slots=True)
class Envelope:
    id: str
    type: str
    payload: Mapping[str, Any]
    attempt: int = 0
    reason: str = ""
    accepts_response_payload: bool = False

    def frame(self) -> str:
        return json.dumps(
            {
                "envelope_id": self.id,
                "type": self.type,
                "payload": self.payload,
                "accepts_response_payload": self.accepts_response_payload,
                "retry_attempt": self.attempt,
                "retry_reason": self.reason,
            }
        )

    def again(self) -> Envelope:
        return Envelope(self.id, self.type, self.payload, self.attempt + 1, "timeout", self.accepts_response_payload)


class Receiver(Protocol):
    """An open connection of the app."""

    def send(self, frame: str) -> None: ...


class Delivery:
    """Owns what waits for a connection and what waits for an ack. Runs in the event loop's thread."""

    def __init__(self, schedule: RetrySchedule, acknowledged: Callable[[], None]) -> None:
        """Call ``acknowledged`` after every ack."""
        self._schedule = schedule
        self._acknowledged = acknowledged
        self._receivers: deque[Receiver] = deque()
        self._waiting: deque[Envelope] = deque()
        self._unacked: dict[str, asyncio.TimerHandle] = {}

    def attach(self, receiver: Receiver) -> None:
        self._receivers.append(receiver)
        self._pump()

    def detach(self, receiver: Receiver) -> None:
        if receiver in self._receivers:
            self._receivers.remove(receiver)

    def offer(self, envelope: Envelope) -> None:
        self._waiting.append(envelope)
        self._pump()

    def acknowledge(self, envelope_id: str) -> None:
        if timer := self._unacked.pop(envelope_id, None):
            timer.cancel()
        self._waiting = deque(envelope for envelope in self._waiting if envelope.id != envelope_id)
        self._acknowledged()

    @property
    def outstanding(self) -> int:
        """Return how many envelopes are not acknowledged yet, and not given up."""
        return len(self._waiting) + len(self._unacked)

    def close(self) -> None:
        for timer in self._unacked.values():
            timer.cancel()
        self._unacked.clear()
        self._waiting.clear()
        self._receivers.clear()

    def _pump(self) -> None:
        while self._waiting and self._receivers:
            envelope = self._waiting.popleft()
            self._receivers[0].send(envelope.frame())
            self._receivers.rotate(-1)
            self._later(self._schedule.ack_timeout_s, self._unanswered, envelope)

    def _unanswered(self, envelope: Envelope) -> None:
        del self._unacked[envelope.id]
        if envelope.attempt < len(self._schedule.delays_s):
            again = envelope.again()
            self._later(self._schedule.delays_s[envelope.attempt], self._due, again)

    def _due(self, envelope: Envelope) -> None:
        del self._unacked[envelope.id]
        self.offer(envelope)

    def _later(self, delay_s: float, step: Callable[[Envelope], None], envelope: Envelope) -> None:
        self._unacked[envelope.id] = asyncio.get_running_loop().call_later(delay_s, step, envelope)
