"""The bounds on runs at once, and the order in which those that wait begin."""

from __future__ import annotations

from collections import Counter

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from connector.events import SlackMessage
from connector.runs.run_slots import RunLimits, RunSlot, RunSlots

LIMITS = RunLimits(runs=4, runs_per_channel=3, runs_per_person=2)


class Queue:
    """Slots whose tickets are asked for by a person and the place of a message in the order of writing."""

    def __init__(self, limits: RunLimits) -> None:
        self.slots = RunSlots(limits)
        self.woken: list[str] = []
        self.granted: list[str] = []
        self.tickets: dict[str, RunSlot] = {}
        self.slots.watch(self.woken.append)
        self._written = 0

    def ask(self, person: str, channel: str = "C1", *, is_resumed: bool = False) -> str:
        """Ask for a slot; gives the id of the conversation."""
        self._written += 1
        name = f"{person}{self._written}"
        message = SlackMessage("T1", channel, f"{self._written}.0", None, person, "", (), direct=False)
        self.tickets[name] = self.slots.enter(name, message, is_resumed=is_resumed)
        self._note()
        return name

    def end(self, name: str) -> None:
        self.slots.leave(name)
        del self.tickets[name]
        self._note()

    @property
    def running(self) -> list[str]:
        return [name for name, ticket in self.tickets.items() if ticket.is_granted]

    @property
    def waiting(self) -> list[str]:
        return [name for name, ticket in self.tickets.items() if not ticket.is_granted]

    def _note(self) -> None:
        self.granted += [name for name in self.running if name not in self.granted]


def test_one_persons_conversations_begin_in_the_order_of_writing():
    queue = Queue(RunLimits(runs_per_person=1))
    asked = [queue.ask("ana") for _ in range(5)]
    for name in asked:
        assert queue.running == [name]
        queue.end(name)
    assert queue.granted == asked


def test_people_take_turns_however_many_conversations_one_of_them_has_waiting():
    queue = Queue(RunLimits(runs=1))
    asked = [queue.ask("ana") for _ in range(100)] + [queue.ask("ben"), queue.ask("ben"), queue.ask("cam")]
    for _ in range(6):
        queue.end(queue.running[0])
    assert queue.granted == [asked[0], asked[1], asked[100], asked[102], asked[2], asked[101], asked[3]]


def test_a_person_who_asks_again_and_again_keeps_nobody_from_beginning():
    queue = Queue(RunLimits(runs=1))
    queue.ask("ana")
    bens = queue.ask("ben")
    for _ in range(3):
        queue.ask("ana")
    queue.end(queue.running[0])
    assert queue.running == [bens]


def test_a_full_channel_keeps_nobody_out_of_another_one():
    queue = Queue(RunLimits(runs_per_channel=1))
    queue.ask("ana", "C1")
    waiting = queue.ask("ana", "C1")
    other = queue.ask("ana", "C2")
    assert waiting not in queue.running
    assert other in queue.running


def test_a_run_that_was_taken_over_comes_before_those_that_have_not_begun():
    queue = Queue(RunLimits(runs=1))
    first, _, resumed = queue.ask("ana"), queue.ask("ben"), queue.ask("cam", is_resumed=True)
    queue.end(first)
    assert queue.running == [resumed]


def test_the_place_says_how_many_begin_until_it_is_ones_turn():
    queue = Queue(RunLimits(runs=1))
    queue.ask("ana")
    asked = [queue.ask("ana"), queue.ask("ana"), queue.ask("ben"), queue.ask("ana")]
    places = [queue.slots.place(queue.tickets[name]) for name in asked]
    assert places == [1, 3, 2, 4]


def test_of_thousands_few_keep_a_lease_and_the_next_one_is_woken_when_there_is_room():
    queue = Queue(RunLimits(runs_per_person=1))
    asked = [queue.ask("ana") for _ in range(3000)]
    shown = [name for name in asked if queue.tickets[name].is_shown]
    assert shown == asked[:6], "one at work and five that wait"
    assert queue.ask("ben") in queue.running
    queue.end(asked[0])
    assert queue.running == [asked[1], "ben3001"]
    assert queue.woken == [asked[6]]


def test_a_conversation_whose_message_is_another_persons_now_waits_for_that_one():
    queue = Queue(RunLimits(runs_per_person=1))
    queue.ask("ana")
    name = queue.ask("ana")
    ticket = queue.slots.enter(name, SlackMessage("T1", "C1", "9.0", None, "ben", "", (), direct=False))
    assert ticket.is_granted


class Slots(RuleBasedStateMachine):
    """Ask for slots and give them back in any order."""

    people = st.sampled_from("abc")
    channels = st.sampled_from(["C1", "C2", "C3"])

    def __init__(self) -> None:
        super().__init__()
        self.queue = Queue(LIMITS)

    @rule(person=people, channel=channels, is_resumed=st.booleans())
    def ask(self, person: str, channel: str, is_resumed: bool) -> None:
        self.queue.ask(person, channel, is_resumed=is_resumed)

    @precondition(lambda self: self.queue.tickets)
    @rule(data=st.data())
    def end(self, data: st.DataObject) -> None:
        queue = self.queue
        name = data.draw(st.sampled_from(sorted(queue.tickets)))
        was_waiting = list(queue.waiting)
        queue.end(name)
        for begun in set(was_waiting) & set(queue.running):
            ticket = queue.tickets[begun]
            same = [queue.tickets[each] for each in queue.waiting]
            assert not [
                each.conversation_id
                for each in same
                if (each.person, each.channel) == (ticket.person, ticket.channel) and each.order < ticket.order
            ], "a later message of the same person was served first"

    @invariant()
    def no_bound_is_exceeded(self) -> None:
        people, channels = self._at_work()
        assert people.total() <= LIMITS.runs
        assert all(count <= LIMITS.runs_per_person for count in people.values())
        assert all(count <= LIMITS.runs_per_channel for count in channels.values())

    @invariant()
    def nobody_waits_for_a_slot_that_is_free(self) -> None:
        people, channels = self._at_work()
        for name in self.queue.waiting:
            ticket = self.queue.tickets[name]
            assert (
                people.total() == LIMITS.runs
                or people[ticket.person] == LIMITS.runs_per_person
                or channels[ticket.channel] == LIMITS.runs_per_channel
            ), f"{name} waits for nothing"

    @invariant()
    def places_are_in_line(self) -> None:
        tickets = [self.queue.tickets[name] for name in self.queue.waiting]
        assert all(1 <= self.queue.slots.place(ticket) <= len(tickets) for ticket in tickets)

    def teardown(self) -> None:
        """Check that every ticket is granted once no new ones come."""
        waiting = set(self.queue.waiting)
        while self.queue.tickets:
            running = self.queue.running
            assert running, f"{self.queue.waiting} wait, and none is at work"
            self.queue.end(running[0])
        assert waiting <= set(self.queue.granted)

    def _at_work(self) -> tuple[Counter[str], Counter[str]]:
        tickets = [self.queue.tickets[name] for name in self.queue.running]
        return Counter(each.person for each in tickets), Counter(each.channel for each in tickets)


TestSlots = Slots.TestCase
TestSlots.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
