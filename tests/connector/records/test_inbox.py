from __future__ import annotations

from typing import Any, cast

from hypothesis import given
from hypothesis import strategies as st

from connector.events import SlackMessage
from connector.records.entries import PendingMessage
from connector.records.inbox import Inbox


def pending(seq: int, written_s: float) -> PendingMessage:
    message = SlackMessage("T1", "C1", f"{written_s:.6f}", "1.000000", "U1", "look", (), direct=False)
    return PendingMessage(message, "alpha", "look", message.id, seq)


def inbox(held_seq: int = 0) -> Inbox:
    return Inbox(cast("Any", None), held_seq)  # without display names


def test_a_second_stop_holds_only_the_messages_that_are_older_than_it() -> None:
    pendings = inbox()
    pendings.hold(13.8)
    newer, older = pending(7, 6.33), pending(8, 6.28)  # both arrive after the first stop: they are free
    pendings.add(newer)
    pendings.add(older)
    assert pendings.hold(6.29) == 8
    assert (pendings.is_held(older), pendings.is_held(newer)) == (True, False)
    assert pendings.run_starter == newer


@given(st.lists(st.tuples(st.sampled_from(["message", "stop"]), st.integers(2, 9)), max_size=12))
def test_a_message_is_held_if_a_later_stop_is_newer_than_it(events: list[tuple[str, int]]) -> None:
    pendings, messages = inbox(), []
    for seq, (kind, at) in enumerate(events, 1):
        if kind == "stop":
            pendings.hold(at)
            continue
        messages.append(pending(seq, at + seq / 1000))
        pendings.add(messages[-1])
    for each in messages:
        stops = [at for kind, at in events[each.seq :] if kind == "stop"]
        assert pendings.is_held(each) == any(each.written_s <= at for at in stops)


def test_the_next_owner_holds_what_the_previous_one_stored_before_the_stop() -> None:
    pendings = inbox(held_seq=3)
    assert [pendings.is_held(pending(seq, 9.0)) for seq in (3, 4)] == [True, False]
