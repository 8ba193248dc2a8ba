"""The injection queue: nothing is lost or doubled, and a drain is ordered by the time of writing."""

from collections.abc import Iterable
from math import inf

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from orchestrator_interactive.loop.injection_queue import Injection, InjectionQueue, InjectionQueueFull, RunFinished


def _ids(injections: Iterable[Injection]) -> list[str]:
    return [injection.id for injection in injections]


def test_messages_without_an_order_follow_the_others_by_arrival() -> None:
    queue = InjectionQueue()
    for text, order in [("c", None), ("b", 2.0), ("d", None), ("a", 1.0)]:
        queue.offer(Injection(text, order=order))
    assert [each.text for each in queue.drain()] == ["a", "b", "c", "d"]


def test_drain_or_close_with_a_message_stays_open() -> None:
    queue = InjectionQueue()
    queue.offer(Injection("x"))
    assert len(queue.drain_or_close()) == 1
    queue.offer(Injection("y"))
    assert len(queue) == 1


def test_drain_or_close_without_a_message_closes() -> None:
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


def test_restored_messages_lead_in_the_order_of_their_drains() -> None:
    queue = InjectionQueue()
    queue.offer(Injection("x", id="1"))
    first = queue.drain()
    queue.offer(Injection("y", id="2"))
    queue.restore(queue.drain())
    queue.restore(first)
    assert _ids(queue.drain()) == ["1", "2"]


def test_restored_messages_count_against_the_bound() -> None:
    queue = InjectionQueue(2)
    queue.offer(Injection("one"))
    queue.offer(Injection("two"))
    queue.restore(queue.drain())
    with pytest.raises(InjectionQueueFull):
        queue.offer(Injection("three"))


def test_a_new_callback_gets_the_pending_messages_in_order() -> None:
    queue, seen = InjectionQueue(), list[str]()
    for name in "12":
        queue.offer(Injection("x", id=name))
    with queue.watch(lambda each: seen.append(each.id)):
        queue.offer(Injection("x", id="3"))
    queue.offer(Injection("x", id="4"))
    assert seen == ["1", "2", "3"]


BOUND = 5


class QueueMachine(RuleBasedStateMachine):
    """Random sequences of all operations, against a list of ids in order of arrival.

    An accepted message is pending, held by the run that drained it, delivered, or withdrawn.
    """

    def __init__(self) -> None:
        super().__init__()
        self.queue = InjectionQueue(BOUND)
        self.pending: dict[str, Injection] = {}
        self.arrived: list[str] = []
        self.held: list[Injection] = []
        self.watched: dict[str, str] = {}
        self.watch = self.queue.watch(lambda each: self.watched.update({each.id: each.text}))
        self.watch.__enter__()
        self.is_open = True
        self.number = 0

    def expected(self) -> list[str]:
        """The ids that the next drain returns."""
        arrived = [each for each in self.arrived if each in self.pending]
        orders = {each: self.pending[each].order for each in arrived}
        return sorted(arrived, key=lambda each: inf if (order := orders[each]) is None else order)

    def offer_to_both(self, injection: Injection) -> None:
        if not self.is_open:
            with pytest.raises(RunFinished):
                self.queue.offer(injection)
        elif len(self.pending) >= BOUND:
            with pytest.raises(InjectionQueueFull):
                self.queue.offer(injection)
        else:
            self.queue.offer(injection)
            self.pending[injection.id] = injection
            self.arrived.append(injection.id)

    @rule(order=st.none() | st.integers(0, 3))
    def offer(self, order: int | None) -> None:
        self.number += 1
        self.offer_to_both(Injection("x", id=str(self.number), order=order))

    @precondition(lambda self: not self.held)
    @rule()
    def drain(self) -> None:
        self.take(self.queue.drain())

    @precondition(lambda self: not self.held)
    @rule()
    def drain_or_close(self) -> None:
        self.is_open = self.is_open and bool(self.pending)
        self.take(self.queue.drain_or_close())

    def take(self, taken: tuple[Injection, ...]) -> None:
        assert list(taken) == [self.pending[each] for each in self.expected()]
        self.held, self.pending, self.arrived = list(taken), {}, []

    @rule()
    def commit(self) -> None:
        self.held = []

    @rule(data=st.data())
    def commit_some_and_restore_the_rest(self, data: st.DataObject) -> None:
        rest = self.held[data.draw(st.integers(0, len(self.held))) :]
        self.queue.restore(rest)
        self.arrived = [*_ids(rest), *self.expected()]
        self.pending |= {each.id: each for each in rest}
        self.held = []

    @precondition(lambda self: self.number)
    @rule(data=st.data())
    def edit(self, data: st.DataObject) -> None:
        message_id = str(data.draw(st.integers(1, self.number)))
        self.number += 1
        text = f"edit {self.number}"
        assert self.queue.edit(message_id, text) == (message_id in self.pending)
        if pending := self.pending.get(message_id):
            self.pending[message_id] = Injection(text, message_id, order=pending.order)

    @precondition(lambda self: self.number)
    @rule(data=st.data(), is_offered_again=st.booleans())
    def withdraw(self, data: st.DataObject, is_offered_again: bool) -> None:
        message_id = str(data.draw(st.integers(1, self.number)))
        withdrawn = self.pending.pop(message_id, None)
        assert self.queue.withdraw(message_id) == (withdrawn is not None)
        if withdrawn:
            self.arrived.remove(message_id)
        if withdrawn and is_offered_again:
            self.offer_to_both(withdrawn)

    @rule()
    def open(self) -> None:
        self.queue.open()
        self.is_open = True

    @rule()
    def close(self) -> None:
        self.queue.close()
        self.is_open = False

    @invariant()
    def waiting_takes_nothing(self) -> None:
        assert {each.id: each for each in self.queue.waiting()} == self.pending

    @invariant()
    def a_watcher_knows_the_text_of_each_pending_message(self) -> None:
        assert {each: self.watched[each] for each in self.pending} == {i: each.text for i, each in self.pending.items()}

    @invariant()
    def its_length_is_the_number_of_pending_messages(self) -> None:
        assert len(self.queue) == len(self.pending)

    def teardown(self) -> None:
        self.watch.__exit__(None, None, None)
        self.take(self.queue.drain())


TestQueueMachine = QueueMachine.TestCase
TestQueueMachine.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
