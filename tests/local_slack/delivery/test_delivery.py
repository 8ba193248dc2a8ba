"""Whatever goes wrong between Slack and the app: no event is lost without a word, none is sent for ever."""

from __future__ import annotations

import asyncio
import json
from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from local_slack import Delayed, Dropped, Duplicated, RetrySchedule
from local_slack.delivery.delivery import Delivery
from local_slack.delivery.delivery_faults import DeliveryFault, DeliveryFaults
from local_slack.delivery.envelope import Envelope
from local_slack.delivery.recorder import Recorder

RETRIES = 3
QUICK = RetrySchedule(ack_timeout_s=0.002, delays_s=(0.0,) * RETRIES)

faults = st.none() | st.just(Duplicated()) | st.just(Dropped()) | st.builds(Delayed, st.integers(1, 4))
# What the app does with each frame: it acknowledges, or is silent.
apps = st.lists(st.booleans(), max_size=6)


class Line:
    """A connection of an app that acknowledges some frames, and all from the end of its list on."""

    def __init__(self, delivery: Delivery, acks: list[bool]) -> None:
        self._delivery = delivery
        self._acks = iter(acks)
        self.seen: list[str] = []

    def send(self, frame: str) -> None:
        envelope = json.loads(frame)["envelope_id"]
        self.seen.append(envelope)
        if next(self._acks, True):
            asyncio.get_running_loop().call_soon(self._delivery.acknowledge, envelope)


async def delivered(coming: list[DeliveryFault | None], acks: list[bool], begin: int) -> tuple[Line, Recorder]:
    """Offer an event per fault, the first `begin` of them before there is a connection; returns what came."""
    settled, record, announced = asyncio.Event(), Recorder(), DeliveryFaults()
    delivery = Delivery(QUICK, settled.set, announced, record)
    line = Line(delivery, acks)
    for number, fault in enumerate(coming):
        if number == begin:
            delivery.attach(line)
        if fault:
            announced.next(fault)
        delivery.offer(Envelope(f"e{number}", "events_api", {"event": {"type": "message"}}))
    if begin >= len(coming):
        delivery.attach(line)
    async with asyncio.timeout(5):
        while delivery.outstanding:
            settled.clear()
            await settled.wait()
    delivery.close()
    return line, record


@settings(max_examples=40, deadline=None)
@given(st.lists(faults, max_size=8), apps, st.integers(0, 8))
def test_every_event_arrives_or_is_given_up_by_name(
    coming: list[DeliveryFault | None], acks: list[bool], begin: int
) -> None:
    line, record = asyncio.run(delivered(coming, acks, begin))
    offered = {f"e{number}" for number in range(len(coming))}
    ended = Counter(entry["envelope"] for entry in record if entry["what"] in {"acked", "given_up"})
    assert set(ended) == offered
    times = Counter(line.seen)
    assert set(times) <= offered
    assert all(count <= RETRIES + 2 for count in times.values())
    if all(acks):
        assert set(times) == offered
