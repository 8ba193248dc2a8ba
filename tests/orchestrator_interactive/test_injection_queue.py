"""The queue between people and the loop: nothing lost, nothing doubled, nothing reordered."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from orchestrator_interactive.loop.injection_queue import Injection, InjectionQueue, InjectionQueueFull, RunFinished

if TYPE_CHECKING:
    from collections.abc import Iterable

BOUND = 5


def _ids(injections: Iterable[Injection]) -> list[str]:
    return [injection.id for injection in injections]


class QueueMachine(RuleBasedStateMachine):
    """Random interleavings against a model: what was accepted is delivered, held by the taker, or waiting, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.queue = InjectionQueue(BOUND)
        self.texts: dict[str, str] = {}
        self.watched: dict[str, str] = {}
        self.watch = self.queue.watch(lambda each: self.watched.update({each.id: each.text}))
        self.watch.__enter__()
        self.accepted: list[str] = []
        self.delivered: list[str] = []
        self.held: list[Injection] = []
        self.is_open = True
        self.number = 0

    @property
    def waiting(self) -> int:
        return len(self.accepted) - len(self.delivered) - len(self.held)

    @rule()
    def offer(self) -> None:
        self.number += 1
        injection = Injection("x", id=str(self.number))
        self.texts[injection.id] = "x"
        if not self.is_open:
            with pytest.raises(RunFinished):
                self.queue.offer(injection)
            return
        try:
            self.queue.offer(injection)
        except InjectionQueueFull:
            assert self.waiting >= BOUND
        else:
            self.accepted.append(injection.id)

    @precondition(lambda self: not self.held)
    @rule()
    def drain(self) -> None:
        self.held = list(self.queue.drain())

    @precondition(lambda self: not self.held)
    @rule()
    def drain_or_close(self) -> None:
        waiting = self.waiting
        self.held = list(self.queue.drain_or_close())
        assert len(self.held) == waiting
        self.is_open = self.is_open and waiting > 0

    @rule()
    def commit(self) -> None:
        self.delivered += _ids(self.held)
        self.held = []

    @rule(data=st.data())
    def commit_some_and_put_back_the_rest(self, data: st.DataObject) -> None:
        count = data.draw(st.integers(0, len(self.held)))
        self.delivered += _ids(self.held[:count])
        self.queue.restore(self.held[count:])
        self.held = []

    @precondition(lambda self: self.accepted)
    @rule(data=st.data())
    def edit(self, data: st.DataObject) -> None:
        message_id = data.draw(st.sampled_from(self.accepted))
        self.number += 1
        edited = self.queue.edit(message_id, f"edit {self.number}")
        assert edited == (message_id in self.waits())
        if edited:
            self.texts[message_id] = f"edit {self.number}"

    @precondition(lambda self: self.accepted)
    @rule(data=st.data())
    def withdraw(self, data: st.DataObject) -> None:
        message_id = data.draw(st.sampled_from(self.accepted))
        waited = message_id in self.waits()
        assert self.queue.withdraw(message_id) == waited
        if waited:
            self.accepted.remove(message_id)

    @rule()
    def open(self) -> None:
        self.queue.open()
        self.is_open = True

    @rule()
    def close(self) -> None:
        self.queue.close()
        self.is_open = False

    def waits(self) -> list[str]:
        return self.accepted[len(self.delivered) + len(self.held) :]

    @invariant()
    def what_waits_is_looked_at_without_being_taken(self) -> None:
        assert [(each.id, each.text) for each in self.queue.waiting()] == [(i, self.texts[i]) for i in self.waits()]

    @invariant()
    def who_watches_knows_all_that_waits_as_it_reads_now(self) -> None:
        assert {i: self.watched[i] for i in self.waits()} == {i: self.texts[i] for i in self.waits()}

    @invariant()
    def its_length_is_what_waits(self) -> None:
        assert len(self.queue) == self.waiting

    @invariant()
    def delivery_keeps_the_order_of_acceptance(self) -> None:
        assert self.delivered + _ids(self.held) == self.accepted[: len(self.delivered) + len(self.held)]

    def teardown(self) -> None:
        self.watch.__exit__(None, None, None)
        rest = _ids(self.queue.drain())
        assert self.delivered + _ids(self.held) + rest == self.accepted


TestQueueMachine = QueueMachine.TestCase
TestQueueMachine.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)


def test_drain_or_close_with_something_in_it_stays_open() -> None:
    queue = InjectionQueue()
    queue.offer(Injection("x"))
    assert len(queue.drain_or_close()) == 1
    queue.offer(Injection("y"))
    assert len(queue) == 1


def test_drain_or_close_with_nothing_in_it_closes() -> None:
    queue = InjectionQueue()
    assert queue.drain_or_close() == ()
    with pytest.raises(RunFinished):
        queue.offer(Injection("x"))


def test_opening_clears_nothing() -> None:
    queue = InjectionQueue()
    queue.offer(Injection("x", id="1"))
    queue.close()
    queue.open()
    assert _ids(queue.drain()) == ["1"]


def test_closing_keeps_what_waits() -> None:
    queue = InjectionQueue()
    queue.offer(Injection("x", id="1"))
    queue.close()
    assert _ids(queue.drain()) == ["1"]


def test_what_was_put_back_leads() -> None:
    queue = InjectionQueue()
    queue.offer(Injection("x", id="1"))
    taken = queue.drain()
    queue.offer(Injection("y", id="2"))
    queue.restore(taken)
    assert _ids(queue.drain()) == ["1", "2"]


def test_what_was_taken_earlier_and_put_back_later_leads() -> None:
    queue = InjectionQueue()
    queue.offer(Injection("x", id="1"))
    first = queue.drain()
    queue.offer(Injection("y", id="2"))
    queue.restore(queue.drain())
    queue.restore(first)
    assert _ids(queue.drain()) == ["1", "2"]


def test_what_was_put_back_counts_against_the_bound() -> None:
    queue = InjectionQueue(2)
    queue.offer(Injection("one"))
    queue.offer(Injection("two"))
    queue.restore(queue.drain())
    with pytest.raises(InjectionQueueFull):
        queue.offer(Injection("three"))


def test_a_full_queue_takes_again_after_a_drain() -> None:
    queue = InjectionQueue(1)
    queue.offer(Injection("one"))
    queue.drain()
    queue.offer(Injection("two", id="2"))
    assert _ids(queue.drain()) == ["2"]


def test_who_begins_to_watch_is_told_of_what_waits_already_in_order() -> None:
    queue, seen = InjectionQueue(), list[str]()
    for name in "12":
        queue.offer(Injection("x", id=name))
    with queue.watch(lambda each: seen.append(each.id)):
        queue.offer(Injection("x", id="3"))
    queue.offer(Injection("x", id="4"))
    assert seen == ["1", "2", "3"]


def test_a_blank_edit_is_refused_and_changes_nothing() -> None:
    queue = InjectionQueue()
    queue.offer(Injection("x", id="1"))
    with pytest.raises(ValueError, match="text"):
        queue.edit("1", " ")
    assert [each.text for each in queue.drain()] == ["x"]
