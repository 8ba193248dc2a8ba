from __future__ import annotations

from collections import Counter

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from connector.events import SlackMessage
from connector.runs.run_slots import RunLimits, RunSlot, RunSlots

LIMITS = RunLimits(runs=4, runs_per_channel=3, runs_per_person=2)


class Queue:
    """Run slots; a person requests one for each message, in the order of their posts."""

    def __init__(self, limits: RunLimits) -> None:
        self.slots = RunSlots(limits)
        self.notified: list[str] = []
        self.granted: list[str] = []
        self.requested: dict[str, RunSlot] = {}
        self.slots.watch(self.notified.append)
        self._written = 0

    def ask(self, person: str, channel: str = "C1", *, is_resumed: bool = False) -> str:
        """Request a slot; return the id of the conversation."""
        self._written += 1
        name = f"{person}{self._written}"
        message = SlackMessage("T1", channel, f"{self._written}.0", None, person, "", (), direct=False)
        self.requested[name] = self.slots.enter(name, message, is_resumed=is_resumed)
        self._note()
        return name

    def end(self, name: str) -> None:
        self.slots.leave(name)
        del self.requested[name]
        self._note()

    @property
    def running(self) -> list[str]:
        return [name for name, slot in self.requested.items() if slot.is_granted]

    @property
    def waiting(self) -> list[str]:
        return [name for name, slot in self.requested.items() if not slot.is_granted]

    def _note(self) -> None:
        self.granted += [name for name in self.running if name not in self.granted]


def test_the_runs_of_one_person_begin_in_the_order_of_their_messages():
    queue = Queue(RunLimits(runs_per_person=1))
    asked = [queue.ask("ana") for _ in range(5)]
    for name in asked:
        assert queue.running == [name]
        queue.end(name)
    assert queue.granted == asked


def test_people_take_turns_however_many_runs_of_one_of_them_wait():
    queue = Queue(RunLimits(runs=1))
    asked = [queue.ask("ana") for _ in range(100)] + [queue.ask("ben"), queue.ask("ben"), queue.ask("cam")]
    for _ in range(6):
        queue.end(queue.running[0])
    assert queue.granted == [asked[0], asked[1], asked[100], asked[102], asked[2], asked[101], asked[3]]


def test_a_person_with_many_requests_delays_no_other():
    queue = Queue(RunLimits(runs=1))
    queue.ask("ana")
    bens = queue.ask("ben")
    for _ in range(3):
        queue.ask("ana")
    queue.end(queue.running[0])
    assert queue.running == [bens]


def test_a_full_channel_delays_no_run_in_another_one():
    queue = Queue(RunLimits(runs_per_channel=1))
    queue.ask("ana", "C1")
    waiting = queue.ask("ana", "C1")
    other = queue.ask("ana", "C2")
    assert waiting not in queue.running
    assert other in queue.running


def test_a_run_that_was_taken_over_begins_before_new_ones():
    queue = Queue(RunLimits(runs=1))
    first, _, resumed = queue.ask("ana"), queue.ask("ben"), queue.ask("cam", is_resumed=True)
    queue.end(first)
    assert queue.running == [resumed]


def test_the_position_counts_the_runs_that_begin_before():
    queue = Queue(RunLimits(runs=1))
    queue.ask("ana")
    asked = [queue.ask("ana"), queue.ask("ana"), queue.ask("ben"), queue.ask("ana")]
    places = [queue.slots.place(queue.requested[name]) for name in asked]
    assert places == [1, 3, 2, 4]


def test_of_thousands_of_conversations_few_keep_a_lease_and_the_next_is_woken_when_there_is_room():
    queue = Queue(RunLimits(runs_per_person=1))
    asked = [queue.ask("ana") for _ in range(3000)]
    shown = [name for name in asked if queue.requested[name].is_shown]
    assert shown == asked[:6], "one active and five waiting"
    assert queue.ask("ben") in queue.running
    queue.end(asked[0])
    assert queue.running == [asked[1], "ben3001"]
    assert queue.notified == [asked[6]]


def test_a_conversation_whose_first_message_changes_waits_for_the_author_of_the_new_one():
    queue = Queue(RunLimits(runs_per_person=1))
    queue.ask("ana")
    name = queue.ask("ana")
    slot = queue.slots.enter(name, SlackMessage("T1", "C1", "9.0", None, "ben", "", (), direct=False))
    assert slot.is_granted


class Slots(RuleBasedStateMachine):
    """Request slots and release them in any order."""

    people = st.sampled_from("abc")
    channels = st.sampled_from(["C1", "C2", "C3"])

    def __init__(self) -> None:
        super().__init__()
        self.queue = Queue(LIMITS)

    @rule(person=people, channel=channels, is_resumed=st.booleans())
    def ask(self, person: str, channel: str, is_resumed: bool) -> None:
        self.queue.ask(person, channel, is_resumed=is_resumed)

    @precondition(lambda self: self.queue.requested)
    @rule(data=st.data())
    def end(self, data: st.DataObject) -> None:
        queue = self.queue
        name = data.draw(st.sampled_from(sorted(queue.requested)))
        was_waiting = list(queue.waiting)
        queue.end(name)
        for begun in set(was_waiting) & set(queue.running):
            slot = queue.requested[begun]
            same = [queue.requested[each] for each in queue.waiting]
            assert not [
                each.conversation_id
                for each in same
                if (each.person, each.channel) == (slot.person, slot.channel) and each.order < slot.order
            ], "a later message of the same person began first"

    @invariant()
    def no_bound_is_exceeded(self) -> None:
        people, channels = self._active()
        assert people.total() <= LIMITS.runs
        assert all(count <= LIMITS.runs_per_person for count in people.values())
        assert all(count <= LIMITS.runs_per_channel for count in channels.values())

    @invariant()
    def no_run_waits_for_a_free_slot(self) -> None:
        people, channels = self._active()
        for name in self.queue.waiting:
            slot = self.queue.requested[name]
            assert (
                people.total() == LIMITS.runs
                or people[slot.person] == LIMITS.runs_per_person
                or channels[slot.channel] == LIMITS.runs_per_channel
            ), f"{name} waits for a free slot"

    @invariant()
    def positions_are_within_the_queue(self) -> None:
        slots = [self.queue.requested[name] for name in self.queue.waiting]
        assert all(1 <= self.queue.slots.place(slot) <= len(slots) for slot in slots)

    def teardown(self) -> None:
        """Check that every slot is granted when there are no new ones."""
        waiting = set(self.queue.waiting)
        while self.queue.requested:
            running = self.queue.running
            assert running, f"{self.queue.waiting} wait, and no run is active"
            self.queue.end(running[0])
        assert waiting <= set(self.queue.granted)

    def _active(self) -> tuple[Counter[str], Counter[str]]:
        slots = [self.queue.requested[name] for name in self.queue.running]
        return Counter(each.person for each in slots), Counter(each.channel for each in slots)


TestSlots = Slots.TestCase
TestSlots.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
