"""Each event is acknowledged, or given up with a record, after any faults."""

from __future__ import annotations

import asyncio
import json
from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from local_slack import Delayed, Dropped, Duplicated, RetrySchedule
from local_slack.delivery.delivery import Delivery, Envelope
from local_slack.delivery.faults import DeliveryFaults
from local_slack.delivery.recorder import Recorder

RETRIES = 3
SCHEDULE = RetrySchedule(ack_timeout_s=0.002, delays_s=(0.0,) * RETRIES)

faults = st.none() | st.just(Duplicated()) | st.just(Dropped()) | st.builds(Delayed, st.integers(1, 4))


class Connection:
    """Acknowledges frames as listed in `acks`, and all later ones."""

    def __init__(self, delivery, acks):
        self._delivery = delivery
        self._acks = iter(acks)
        self.received = Counter()

    def send(self, frame):
        envelope = json.loads(frame)["envelope_id"]
        self.received[envelope] += 1
        if next(self._acks, True):
            asyncio.get_running_loop().call_soon(self._delivery.acknowledge, envelope)


async def deliver(faults, acks, before_connection):
    """Offer one event for each fault, the first ones before there is a connection."""
    settled, record, announced = asyncio.Event(), Recorder(), DeliveryFaults()
    delivery = Delivery(SCHEDULE, settled.set, announced, record)
    connection = Connection(delivery, acks)
    for number, fault in enumerate(faults):
        if number == before_connection:
            delivery.attach(connection)
        if fault:
            announced.next(fault)
        delivery.offer(Envelope(f"e{number}", "events_api", {"event": {"type": "message"}}))
    if before_connection >= len(faults):
        delivery.attach(connection)
    async with asyncio.timeout(5):
        while delivery.outstanding:
            settled.clear()
            await settled.wait()
    delivery.close()
    return connection.received, record


@settings(max_examples=40, deadline=None)
@given(st.lists(faults, max_size=8), st.lists(st.booleans(), max_size=6), st.integers(0, 8))
def test_each_event_is_acknowledged_or_given_up(faults, acks, before_connection):
    received, record = asyncio.run(deliver(faults, acks, before_connection))
    offered = {f"e{number}" for number in range(len(faults))}
    assert {entry["envelope"] for entry in record if entry["what"] in {"acked", "given_up"}} == offered
    assert set(received) <= offered
    assert all(count <= RETRIES + 2 for count in received.values())
    if all(acks):
        assert set(received) == offered
