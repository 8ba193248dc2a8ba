"""The audit of the fault tests reports violations of the promise, and nothing that the documentation permits."""

from __future__ import annotations

import pytest
from fault_injection.late_replies import may_be_stopped_unanswered, must_be_read_first
from fault_injection.observations import Act

URGENT = ["urgent"]


@pytest.mark.parametrize(
    "accepted",
    [
        ["mention", "older", "urgent", "newer"],
        ["mention:catch_up", "mention", "urgent", "older", "newer"],
        ["mention:catch_up", "mention", "newer", "older", "urgent"],
        ["urgent", "mention:catch_up", "mention", "newer", "older"],
        ["mention", "urgent", "newer", "older"],
    ],
    ids=[
        "it was accepted first",
        "it was found in the thread first",
        "no urgent message came before it was found",
        "the urgent message came before the mention",
        "no thread was being read",
    ],
)
def test_an_acknowledged_message_must_be_read_before_a_newer_one(accepted):
    assert must_be_read_first("older", "newer", accepted, URGENT)


@pytest.mark.parametrize(
    ("newer", "accepted"),
    [
        ("newer", ["mention:catch_up", "mention", "urgent", "newer", "older"]),
        ("newer", ["mention:catch_up", "mention", "newer", "urgent", "older"]),
        ("urgent", ["mention:catch_up", "mention", "urgent", "older"]),
    ],
    ids=["a newer message", "a message that waited", "the urgent message"],
)
def test_an_urgent_message_ends_the_wait_for_messages_that_are_found_in_the_thread_later(newer, accepted):
    assert not must_be_read_first("older", newer, accepted, URGENT)


@pytest.mark.parametrize(
    ("accepted", "is_permitted"),
    [(["mention", "last", "stop"], True), (["mention", "stop", "last"], False), (["mention", "stop"], False)],
    ids=["a stop that was found later", "a stop that was known", "it is lost"],
)
def test_the_last_message_must_be_answered_unless_a_stop_was_found_after_it(accepted, is_permitted):
    assert may_be_stopped_unanswered("last", accepted, ["stop"]) == is_permitted


@pytest.mark.parametrize(
    ("words", "is_urgent"), [("!#7 at once", True), ("<@U0ALPHA> !#7 at once", True), ("<@U0ALPHA> #7 now!", False)]
)
def test_an_urgent_message_may_begin_with_a_mention(words, is_urgent):
    assert Act("message", "1.0", "1.0", "1.0", words).is_urgent == is_urgent
