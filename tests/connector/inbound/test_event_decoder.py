from __future__ import annotations

import asyncio
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from slack_sdk.web.async_client import AsyncWebClient

from connector.inbound.event_decoder import EventDecoder
from connector.inbound.intake import NotNow
from connector.setup.preflight import Identity

WORDS = (  # noqa: SIM905 - a list would take a line for each word
    "event_callback block_actions message app_mention reaction_added agent_session_stopped message_changed "
    "message_deleted view_submission stop U1 C1 D1 T1 1700000000.000100"
).split()
KEYS = (  # noqa: SIM905
    "type event subtype user channel ts event_ts text item reaction message team previous_message actions action_id "
    "action_ts container id authorizations view team_id"
).split()
VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.sampled_from(WORDS)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.sampled_from(KEYS), inner, max_size=6)),
    max_leaves=20,
)
BODIES = st.one_of(
    st.dictionaries(st.sampled_from(KEYS), VALUES, max_size=6),
    st.builds(lambda event: {"type": "event_callback", "event": event}, VALUES),
    st.builds(lambda rest: {**rest, "type": "block_actions"}, st.dictionaries(st.sampled_from(KEYS), VALUES)),
)


class Intake:
    """Counts the events that it accepts, or refuses them because it is closing."""

    def __init__(self, *, is_closing: bool = False) -> None:
        self.count = 0
        self._is_closing = is_closing

    async def accept(self, *_: object, **__: object) -> None:
        if self._is_closing:
            raise NotNow
        self.count += 1

    on_message = on_edit = on_deletion = on_reaction = on_stop = accept


def status_of(body: dict[str, Any], intake: Intake) -> int:
    async def receive() -> int:
        decoder = EventDecoder(AsyncWebClient(), "xoxb-1", Identity("T1", "U0BOT", "B0BOT"), intake)
        return (await decoder.receive(body)).status

    return asyncio.run(receive())


@settings(max_examples=60, deadline=None)
@given(BODIES)
def test_every_body_is_acknowledged_or_requested_again(body):
    assert status_of(body, Intake()) in (200, 503)


def test_an_event_that_the_intake_cannot_accept_is_requested_again():
    event = {"type": "message", "user": "U1", "text": "hello", "ts": "1700000000.000100", "channel": "D1"}
    body = {"type": "event_callback", "team_id": "T1", "event": event}
    assert status_of(body, intake := Intake()) == 200
    assert intake.count == 1
    assert status_of(body, Intake(is_closing=True)) == 503
