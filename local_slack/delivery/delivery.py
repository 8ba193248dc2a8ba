"""Deliver envelopes to the app; repeat those that are not acknowledged."""

from __future__ import annotations

import asyncio
import json
from collections import deque
from dataclasses import dataclass, replace
from math import inf
from typing import TYPE_CHECKING, Any, Protocol

from local_slack.delivery.faults import Delayed, DeliveryFaults, Dropped, Duplicated, HeldUntil
from local_slack.workspace.errors import SlackRefused

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from local_slack.delivery.recorder import Recorder


@dataclass(frozen=True, slots=True)
class Envelope:
    """An event or a click; ``attempt`` counts from 0, ``reason`` is the reason of the retry."""

    id: str
    type: str
    payload: Mapping[str, Any]
    attempt: int = 0
    reason: str = ""
    accepts_response_payload: bool = False

    @property
    def about(self) -> str:
        """Return the type of the payload, such as ``app_mention`` or ``block_actions``."""
        event = self.payload.get("event")
        return str((event if isinstance(event, dict) else self.payload).get("type", self.type))

    @property
    def retried(self) -> bool:
        """Return whether it is repeated without an ack: events are; a click fails at once."""
        return self.type == "events_api"

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


@dataclass(frozen=True, slots=True)
class RetrySchedule:
    """``ack_timeout_s`` is the wait for an ack; ``delays_s`` are the waits before the retries, in turn."""

    ack_timeout_s: float = 3.0
    delays_s: tuple[float, ...] = (0.0, 60.0, 300.0)

    def remaining_s(self, attempt: int) -> float:
        """Return how long this attempt and those after it take without an ack."""
        return self.ack_timeout_s + sum(self.ack_timeout_s + each for each in self.delays_s[attempt:])


class Receiver(Protocol):
    """An open connection of the app."""

    def send(self, frame: str) -> None: ...


class Transport(Protocol):
    """A transport other than the connections. It calls ``acknowledge`` or ``fail`` for each envelope."""

    def send(self, envelope: Envelope) -> None: ...


@dataclass(frozen=True, slots=True)
class _Sent:
    """An unacknowledged envelope; ``sent_at`` is on the loop's clock, ``next_step`` runs at the ack time-out."""

    envelope: Envelope
    sent_at: float
    next_step: asyncio.TimerHandle


@dataclass(slots=True)
class _Held:
    """An envelope that is sent after ``behind`` others, or when ``time_up`` releases it."""

    envelope: Envelope
    behind: float
    time_up: asyncio.TimerHandle | asyncio.Task[None]


class Delivery:
    """Own the envelopes that wait for a connection or for an ack. Runs in the event loop's thread."""

    def __init__(
        self, schedule: RetrySchedule, changed: Callable[[], None], faults: DeliveryFaults, record: Recorder
    ) -> None:
        """Call ``changed`` after every ack and every failed delivery."""
        self.schedule = schedule
        self._changed = changed
        self._faults = faults
        self._record = record
        self._receivers: deque[Receiver] = deque()
        self._transport: Transport | None = None
        # The envelopes that wait for a connection, and the timers that give them up.
        self._waiting: dict[str, tuple[Envelope, asyncio.TimerHandle]] = {}
        self._unacked: dict[str, _Sent] = {}
        self._held: list[_Held] = []
        self._answers: dict[str, asyncio.Future[Mapping[str, Any]]] = {}

    def attach(self, receiver: Receiver) -> None:
        self._receivers.append(receiver)
        self._pump()

    def detach(self, receiver: Receiver) -> None:
        if receiver in self._receivers:
            self._receivers.remove(receiver)

    def use(self, transport: Transport | None) -> None:
        """Use this transport from now on; None: the connections."""
        self._transport = transport
        self._pump()

    @property
    def reachable(self) -> bool:
        return self._transport is not None or bool(self._receivers)

    def offer(self, envelope: Envelope) -> None:
        """Deliver an envelope now, or to the next connection if it opens before the last retry of the schedule."""
        if self.reachable:
            self._deliver(envelope)
        else:
            self._wait(envelope)

    async def ask(self, envelope: Envelope) -> Mapping[str, Any]:
        """Deliver an envelope and wait for its ack; returns the payload of the ack, or an empty one.

        Raises SlackRefused with the reason for a missing ack.
        """
        if not self.reachable:
            raise SlackRefused("not_connected")
        answer: asyncio.Future[Mapping[str, Any]] = asyncio.get_running_loop().create_future()
        self._answers[envelope.id] = answer
        try:
            self.offer(envelope)
            return await answer
        finally:
            del self._answers[envelope.id]

    def acknowledge(self, envelope_id: str, payload: object = None) -> None:
        """Take the ack of an envelope; ``payload`` is the app's response to an interaction."""
        if sent := self._forget(envelope_id):
            latency_ms = round((asyncio.get_running_loop().time() - sent.sent_at) * 1000, 1)
            self._record.note("acked", envelope=envelope_id, attempt=sent.envelope.attempt, latency_ms=latency_ms)
        elif waiting := self._waiting.pop(envelope_id, None):
            waiting[1].cancel()
            self._record.note("acked", envelope=envelope_id)
        if answer := self._open_answer(envelope_id):
            answer.set_result(payload if isinstance(payload, dict) else {})
        self._changed()

    def fail(self, envelope: Envelope, reason: str, *, final: bool = False) -> None:
        """Report that an envelope was not acknowledged; it is repeated by the schedule unless ``final``."""
        sent = self._unacked.get(envelope.id)
        if sent and sent.envelope.attempt == envelope.attempt:
            self._forget(envelope.id)
            self._not_taken(envelope, reason, final=final)

    @property
    def outstanding(self) -> int:
        """Return the number of envelopes that are neither acknowledged nor given up."""
        return len(self._waiting) + len(self._unacked) + len(self._held)

    def close(self) -> None:
        timers = [timer for _, timer in self._waiting.values()]
        for timer in (*timers, *(sent.next_step for sent in self._unacked.values()), *(h.time_up for h in self._held)):
            timer.cancel()
        for answer in self._answers.values():
            answer.cancel()
        self._unacked.clear()
        self._waiting.clear()
        self._held.clear()
        self._receivers.clear()
        self._transport = None

    def _pump(self) -> None:
        while self._waiting and self.reachable:
            envelope, given_up = self._waiting.pop(next(iter(self._waiting)))
            given_up.cancel()
            self._deliver(envelope)

    def _wait(self, envelope: Envelope) -> None:
        remaining_s = self.schedule.remaining_s(envelope.attempt) if envelope.retried else self.schedule.ack_timeout_s
        timer = asyncio.get_running_loop().call_later(remaining_s, self._not_reached, envelope)
        self._waiting[envelope.id] = envelope, timer

    def _not_reached(self, envelope: Envelope) -> None:
        del self._waiting[envelope.id]
        self._not_taken(envelope, "not_connected", final=True)

    def _deliver(self, envelope: Envelope) -> None:
        if fault := None if envelope.attempt else self._faults.take():
            self._record.fault(fault, envelope=envelope.id)
        match fault:
            case Dropped():
                self._await_ack(envelope)
            case Delayed(behind):
                up = asyncio.get_running_loop().call_later(self.schedule.ack_timeout_s, self._release, envelope)
                self._held.append(_Held(envelope, behind, up))
            case HeldUntil(until):
                waiting = asyncio.create_task(self._release_when(until, envelope))
                self._held.append(_Held(envelope, inf, waiting))
                self._receivers.rotate(-1)  # this connection has it, and not the next one
            case Duplicated():
                self._send(envelope)
                self._send(envelope)
            case None:
                self._send(envelope)

    def _send(self, envelope: Envelope) -> None:
        self._record.note("sent", envelope=envelope.id, about=envelope.about, attempt=envelope.attempt)
        self._await_ack(envelope)
        if self._transport:
            self._transport.send(envelope)
        else:
            self._receivers[0].send(envelope.frame())
            self._receivers.rotate(-1)
        # The envelopes that are held back behind this one.
        for held in self._held:
            held.behind -= 1
        for held in [held for held in self._held if held.behind <= 0]:
            self._release(held.envelope)

    async def _release_when(self, until: asyncio.Event, envelope: Envelope) -> None:
        await until.wait()
        self._release(envelope)

    def _release(self, envelope: Envelope) -> None:
        for held in [held for held in self._held if held.envelope.id == envelope.id]:
            held.time_up.cancel()
            self._held.remove(held)
            if self.reachable:
                self._send(envelope)
            else:
                self._wait(envelope)

    def _await_ack(self, envelope: Envelope) -> None:
        self._forget(envelope.id)
        loop, reason = asyncio.get_running_loop(), "http_timeout" if self._transport else "timeout"
        next_step = loop.call_later(self.schedule.ack_timeout_s, self.fail, envelope, reason)
        self._unacked[envelope.id] = _Sent(envelope, loop.time(), next_step)

    def _not_taken(self, envelope: Envelope, reason: str, *, final: bool) -> None:
        delays_s = self.schedule.delays_s if envelope.retried and not final else ()
        if envelope.attempt < len(delays_s):
            self._record.note("not_acked", envelope=envelope.id, attempt=envelope.attempt, reason=reason)
            loop = asyncio.get_running_loop()
            again = replace(envelope, attempt=envelope.attempt + 1, reason=reason)
            next_step = loop.call_later(delays_s[envelope.attempt], self._due, again)
            self._unacked[envelope.id] = _Sent(again, loop.time(), next_step)
        else:
            self._record.note("given_up", envelope=envelope.id, attempt=envelope.attempt, reason=reason)
            if answer := self._open_answer(envelope.id):
                answer.set_exception(SlackRefused("no_answer" if reason.endswith("timeout") else reason))
        self._changed()

    def _due(self, envelope: Envelope) -> None:
        self._forget(envelope.id)
        self.offer(envelope)

    def _forget(self, envelope_id: str) -> _Sent | None:
        sent = self._unacked.pop(envelope_id, None)
        if sent:
            sent.next_step.cancel()
        return sent

    def _open_answer(self, envelope_id: str) -> asyncio.Future[Mapping[str, Any]] | None:
        answer = self._answers.get(envelope_id)
        return answer if answer and not answer.done() else None
