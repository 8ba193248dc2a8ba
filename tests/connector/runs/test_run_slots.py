from __future__ import annotations

from collections import Counter

import pytest
from chat import ENVELOPE, HOURGLASS, Thread
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from connector import RunLimits
from connector.events import SlackMessage
from connector.runs.run_slots import RunSlot, RunSlots
from local_slack import ServerError

LIMITS = RunLimits(runs=4, runs_per_channel=3, runs_per_person=2)


class Queue:
    """Run slots; a person requests one for each message, in the order of their posts."""

    def __init__(self, limits: RunLimits) -> None:
        self.slots = RunSlots(limits)
        self.notified: list[str] = []
        self.granted: list[str] = []
        self.requested: dict[str, RunSlot] = {}
        self.slots.watch("T1", self.notified.append)
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


TWO = RunLimits(runs_per_person=2)
# With so many waiting runs before it, a conversation waits without a lease and without a status message.
WAITING = 6
IS_PARKED = pytest.mark.parametrize("is_parked", [False, True], ids=["shown", "parked"])


@pytest.fixture
async def chat(process):
    """A chat in which Ana has two active runs, the most that she may have."""
    async with process(limits=TWO) as chat:
        chat.active = [await chat.start(f"@alpha task {number}") for number in (1, 2)]
        yield chat


async def has_position(thread, position: int) -> None:
    text = f"⏳ Waiting, position {position} in the queue: 2 runs of yours are active."
    await thread.chat.slack.until(lambda _: thread.texts == [text])


async def waiting(chat, text: str, *, is_parked: bool = False) -> Thread:
    """Post a message whose run waits: the position in the queue shows it, or 📨 alone if many wait."""
    for number in range(WAITING if is_parked else 0):
        await chat.say(f"@alpha before {number}")
    thread = await chat.say(text)
    await (thread.marked(thread.ts, ENVELOPE) if is_parked else has_position(thread, 1))
    return thread


async def run_after_the_others(chat):
    """End an active run and those before, and return the next one."""
    await chat.active[0].run.answer("done")
    while (run := await chat.sessions.next_run()).prompt.startswith("before"):
        await run.answer("done")
    return run


async def test_further_runs_wait_with_their_positions_and_begin_in_order(chat):
    third, fourth = [await chat.say(f"@alpha task {number}") for number in (3, 4)]
    await has_position(third, 1)
    await has_position(fourth, 2)
    await third.marked(third.ts, HOURGLASS)
    assert chat.sessions.prompts == ["task 1", "task 2"]
    await chat.active[1].run.answer("done")
    run = await third.next_run()
    assert run.prompt == "task 3"
    await has_position(fourth, 1)
    await run.answer("the answer")
    await third.shows("the answer")
    assert (await fourth.next_run()).prompt == "task 4"


async def test_the_run_of_another_person_does_not_wait(chat):
    others = [await chat.say(f"@alpha more {number}") for number in range(20)]
    await has_position(others[0], 1)
    thread = Thread(chat, await chat.ben.say("general", "@alpha mine"))
    await (await thread.next_run()).answer("yours")
    await thread.shows("yours")


async def test_a_channel_and_the_process_have_limits_too(process):
    async with process(limits=RunLimits(runs=2, runs_per_channel=1)) as chat:
        await chat.start("@alpha one")
        thread = Thread(chat, await chat.ben.say("general", "@alpha two"))
        await thread.contains("⏳ Waiting, position 1 in the queue: 1 run in this channel is active.")
        await chat.ben.say("random", "@alpha three")
        assert (await chat.sessions.next_run()).prompt == "three"
        await chat.ana.dm("alpha", "four")
        dm = await chat.ana.open_dm("alpha")
        text = "⏳ Waiting, position 2 in the queue: 2 runs are active."
        await chat.slack.until(lambda ws: any(m.text == text for m in ws.messages(dm)))


@IS_PARKED
async def test_a_cross_stops_a_waiting_run_at_once(chat, is_parked):
    thread = await waiting(chat, "@alpha not this", is_parked=is_parked)
    await thread.cross()
    withdrawn = " Withdrawn: “not this”." if is_parked else ""
    await thread.shows(f"🛑 Stopped by Ana.{withdrawn}")
    await thread.marked(thread.ts, ENVELOPE, gone=True)
    for active in chat.active:
        await active.run.answer("done")
    assert "not this" not in chat.sessions.prompts


async def test_a_stop_word_stops_a_waiting_run(chat):
    thread = await waiting(chat, "@alpha not this")
    await thread.say("stop")
    await thread.shows("🛑 Stopped by Ana.")


@IS_PARKED
async def test_a_waiting_run_begins_with_the_edited_text(chat, is_parked):
    thread = await waiting(chat, "@alpha old words", is_parked=is_parked)
    await thread.edit(thread.ts, "@alpha new words")
    await chat.acknowledged()
    assert (await run_after_the_others(chat)).prompt == "new words"


@IS_PARKED
async def test_a_message_that_is_deleted_while_its_run_waits_is_never_read(chat, is_parked):
    thread = await waiting(chat, "@alpha forget it", is_parked=is_parked)
    await thread.delete(thread.ts)
    await chat.acknowledged()
    await chat.say("@alpha last")
    assert (await run_after_the_others(chat)).prompt == "last"
    assert "forget it" not in chat.sessions.prompts


@IS_PARKED
async def test_a_reply_to_a_waiting_run_is_accepted_and_injected(chat, is_parked):
    thread = await waiting(chat, "@alpha task 3", is_parked=is_parked)
    await thread.accept("@alpha and this", who="ben")
    run = await run_after_the_others(chat)
    assert run.prompt == "task 3"
    await run.injected("and this")


async def test_runs_that_wait_at_the_end_of_the_process_begin_once_in_the_next(process, sessions):
    sessions.obedient = True
    async with process(limits=TWO, shutdown_grace_s=5) as chat:
        threads = [await chat.say(f"@alpha task {number}") for number in range(10)]
        for _ in range(2):
            await sessions.next_run()
        await has_position(threads[2], 1)
        await threads[9].marked(threads[9].ts, ENVELOPE)
    sessions.obedient = False
    async with process(limits=TWO):
        for _ in range(10):
            await (await sessions.next_run()).answer("done")
        for thread in threads:
            await thread.shows("done")
    assert sorted(filter(None, sessions.prompts)) == [f"task {number}" for number in range(10)]


async def test_a_mention_waits_without_a_lease_while_its_thread_cannot_be_read(chat):
    for number in range(5):
        await chat.say(f"@alpha before {number}")
    chat.fail("conversations.replies", ServerError(503), times=20)
    thread = await chat.say("among ourselves", "random")
    await thread.accept("@alpha parked")
    assert (await run_after_the_others(chat)).prompt == "parked"
