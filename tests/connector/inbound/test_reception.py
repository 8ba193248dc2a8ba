"""Whatever Slack hands in, it hears that we have it, or that it is to come again; nothing else comes of it."""

from __future__ import annotations

import asyncio
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from slack_sdk.web.async_client import AsyncWebClient

from connector.inbound.intake import NotNow
from connector.inbound.reception import EventDecoder
from connector.setup.preflight import Identity

_WORDS = ["event_callback", "block_actions", "message", "app_mention", "reaction_added", "agent_session_stopped"]
_WORDS += ["message_changed", "message_deleted", "view_submission", "stop", "U1", "C1", "D1", "T1", "1700000000.000100"]
_KEYS = ["type", "event", "subtype", "user", "channel", "ts", "event_ts", "text", "item", "reaction", "message", "team"]
_KEYS += [
    "previous_message",
    "actions",
    "action_id",
    "action_ts",
    "container",
    "id",
    "authorizations",
    "view",
    "team_id",
]
_VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.sampled_from(_WORDS)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.sampled_from(_KEYS), inner, max_size=6)),
    max_leaves=20,
)
_BODIES = st.one_of(
    st.dictionaries(st.sampled_from(_KEYS), _VALUES, max_size=6),
    st.builds(lambda event: {"type": "event_callback", "event": event}, _VALUES),
    st.builds(lambda rest: {**rest, "type": "block_actions"}, st.dictionaries(st.sampled_from(_KEYS), _VALUES)),
)


class Taken:
    """Notes that something was taken in, if it may be."""

    def __init__(self, *, is_closing: bool = False) -> None:
        self.count = 0
        self._is_closing = is_closing

    async def take(self, *what: object, **more: object) -> None:
        if self._is_closing:
            raise NotNow
        self.count += 1

    on_message = on_edit = on_deletion = on_reaction = on_stop = take


def received(body: dict[str, Any], intake: Any) -> int:
    async def receive() -> int:
        reception = EventDecoder(AsyncWebClient(), "xoxb-1", Identity("T1", "U0BOT", "B0BOT"), intake)
        return (await reception.receive(body)).status

    return asyncio.run(receive())


@settings(max_examples=60, deadline=None)
@given(_BODIES)
def test_whatever_comes_in_is_acknowledged_or_comes_again(body):
    assert received(body, Taken()) in (200, 503)


def test_what_cannot_be_taken_now_comes_again():
    event = {"type": "message", "user": "U1", "text": "hello", "ts": "1700000000.000100", "channel": "D1"}
    body = {"type": "event_callback", "team_id": "T1", "event": event}
    assert received(body, taken := Taken()) == 200
    assert taken.count == 1
    assert received(body, Taken(is_closing=True)) == 503
