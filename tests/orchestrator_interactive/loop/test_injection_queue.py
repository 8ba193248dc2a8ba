"""The injection queue, and the receipts of the messages injected into a run."""

import asyncio
import dataclasses
from collections.abc import Iterable
from math import inf
from typing import Any

import pytest
from agents import Agent, call, delivered, echo, gated, goes_on, make_agent, never, say, soon, streaming, text_of, use
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from orchestrator_interactive import Author, Injection, InjectionQueueFull, Receipt, RunFinished
from orchestrator_interactive.loop.injection_queue import InjectionQueue


def _ids(injections: Iterable[Injection]) -> list[str]:
    return [injection.id for injection in injections]


def test_drain_or_close_without_a_message_closes() -> None:
    queue = InjectionQueue()
    assert queue.drain_or_close() == ()
    with pytest.raises(RunFinished):
        queue.offer(Injection("x"))


def test_opening_clears_nothing() -> None:
    queue = InjectionQueue()
    queue.offer(Injection("x", id="1"))
    queue.is_open = False
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
        self.queue.on_change = lambda each: self.watched.update({each.id: each.text})
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
        self.queue.is_open = False
        self.is_open = False

    @invariant()
    def waiting_takes_nothing(self) -> None:
        assert {each.id: each for each in self.queue.pending.values()} == self.pending

    @invariant()
    def a_watcher_knows_the_text_of_each_pending_message(self) -> None:
        assert {each: self.watched[each] for each in self.pending} == {i: each.text for i, each in self.pending.items()}

    def teardown(self) -> None:
        self.take(self.queue.drain())


TestQueueMachine = QueueMachine.TestCase


TestQueueMachine.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)


class Thinking:
    """A run whose model thinks until `answered`, and messages that are written until then."""

    agent: Agent

    def __init__(self) -> None:
        self.gate = asyncio.Event()

    async def with_messages(self, *ids: str, **more: Any) -> Agent:
        self.agent = agent = await make_agent(streaming(self.gate, then=say("first")), say("second"), **more)
        self.run = await agent.steered(*map(_message, ids))
        return agent

    async def answered(self) -> str:
        self.gate.set()
        return await soon(self.run)


def _message(message_id: str) -> Injection:
    return Injection(f"this is {message_id}", id=message_id)


def _states(agent: Agent) -> list[tuple[str, str, int | None]]:
    return [(each.id, each.state, each.iteration) for each in agent.receipts()]


async def _rows(agent: Agent) -> list[list[str]]:
    """The items of each row of messages."""
    rows = [row for row in await agent.history() if "injections" in (row.get("metadata") or {})]
    return [text_of(row).splitlines()[1:] for row in rows]


class TestStates:
    async def test_a_message_that_is_accepted_waits(self) -> None:
        thinking = Thinking()
        agent = await thinking.with_messages()
        receipt = agent.inject(_message("1"))
        assert receipt == Receipt("1", "waiting", None)
        assert agent.receipts() == (receipt,)
        await thinking.answered()
        assert receipt.state == "waiting", "a receipt does not change"
        assert _states(agent) == [("1", "delivered", 2)]
        with pytest.raises(dataclasses.FrozenInstanceError):
            receipt.state = "withdrawn"  # type: ignore[misc]

    async def test_a_message_is_delivered_with_the_call_that_reads_it(self) -> None:
        agent = await make_agent(call(use("echo", "a")), call(use("echo", "b")), say("x"), say("y"), tools=[echo()])
        agent.inject(_message("before"))
        moments = iter(["one", "two", "three"])
        agent.on_hook("provider:response", lambda _: (name := next(moments, None)) and agent.inject(_message(name)))
        await agent.run()
        assert _states(agent) == [(name, "delivered", n) for n, name in enumerate(["before", "one", "two", "three"], 1)]
        for receipt in agent.receipts():
            reads = [f"this is {receipt.id}" in str(agent.provider.sent(i)) for i in range(4)]
            assert reads.index(True) + 1 == receipt.iteration

    async def test_plain_text_gets_a_receipt_with_an_id_of_its_own(self) -> None:
        thinking = Thinking()
        agent = await thinking.with_messages()
        first, second = agent.inject("same"), agent.inject("same")
        assert first.id != second.id
        await thinking.answered()
        assert await delivered(agent) == [first.id, second.id]

    async def test_receipts_of_the_last_run_stay_and_pending_messages_are_read_in_the_next(self) -> None:
        agent = await make_agent(streaming("so far", then=never()))
        agent.inject(_message("1"))
        run = await agent.steered(*map(_message, ("2", "3", "4", "5")))
        assert agent.withdraw("3")
        await agent.stopped(run)
        assert [state for _, state, _ in _states(agent)] == ["delivered", "waiting", "withdrawn", "waiting", "waiting"]
        assert agent.complete()["messages"] == [
            {"id": name, "state": state, "iteration": iteration} for name, state, iteration in _states(agent)
        ]
        with pytest.raises(RunFinished):
            agent.inject("late")
        assert agent.withdraw("4")
        assert agent.edit("5", "changed")
        await goes_on(agent)
        assert _states(agent) == [("2", "delivered", 1), ("5", "delivered", 1)]
        assert (await _rows(agent))[1:] == [["- this is 2", "- changed"]]

    async def test_a_row_that_the_log_refuses_leaves_its_messages_waiting(self) -> None:
        thinking = Thinking()
        agent = await thinking.with_messages("1", "2")
        agent.context.refuse(lambda row: "injections" in (row.get("metadata") or {}))
        with pytest.raises(OSError, match="disk full"):
            await thinking.answered()
        assert [state for _, state, _ in _states(agent)] == ["waiting", "waiting"]
        assert agent.complete()["waiting"] == 2
        agent.context.accept()
        assert agent.withdraw("1")
        await goes_on(agent)
        assert await delivered(agent) == ["2"]


class TestWithdrawals:
    async def test_a_withdrawn_message_is_not_read(self) -> None:
        thinking = Thinking()
        agent = await thinking.with_messages("1", "2", "3")
        assert [agent.withdraw("2"), agent.withdraw("2"), agent.edit("2", "back again")] == [True, False, False]
        await thinking.answered()
        assert [state for _, state, _ in _states(agent)] == ["delivered", "withdrawn", "delivered"]
        assert await _rows(agent) == [["- this is 1", "- this is 3"]]

    async def test_a_withdrawn_message_can_be_injected_again(self) -> None:
        thinking = Thinking()
        agent = await thinking.with_messages("1", "2")
        assert agent.withdraw("1")
        assert [agent.inject(_message("1")), agent.inject(_message("1"))] == [Receipt("1")] * 2
        await thinking.answered()
        assert _states(agent) == [("2", "delivered", 2), ("1", "delivered", 2)]
        assert await _rows(agent) == [["- this is 2", "- this is 1"]]

    async def test_when_all_are_withdrawn_the_answer_is_the_last(self) -> None:
        thinking = Thinking()
        agent = await thinking.with_messages("1", "2")
        assert [agent.withdraw("1"), agent.withdraw("2")] == [True, True]
        assert await thinking.answered() == "first"
        assert await _rows(agent) == []

    @pytest.mark.parametrize("moment", ["before", "after"])
    async def test_while_its_row_is_written_and_after_it_is_too_late_to_change_a_message(self, moment: Any) -> None:
        tried: list[bool] = []
        thinking = Thinking()
        agent = await thinking.with_messages("1")

        def change(row: dict[str, Any]) -> None:
            if "injections" in (row.get("metadata") or {}):
                tried.extend([agent.edit("1", "other"), agent.withdraw("1")])

        agent.context.act(moment, change)
        await thinking.answered()
        tried += [
            action(name) for name in ("1", "unknown") for action in (agent.withdraw, lambda i: agent.edit(i, "x"))
        ]
        assert tried == [False] * 6
        assert await _rows(agent) == [["- this is 1"]]
        assert _states(agent) == [("1", "delivered", 2)]


class TestEdits:
    async def test_an_edited_message_keeps_its_place(self) -> None:
        thinking = Thinking()
        agent = await thinking.with_messages("1", "2", "3", max_waiting=3)
        assert [agent.edit("2", "changed"), agent.edit("2", "changed again")] == [True, True]
        await thinking.answered()
        assert await _rows(agent) == [["- this is 1", "- changed again", "- this is 3"]]
        assert await delivered(agent) == ["1", "2", "3"]

    async def test_author_and_files_stay(self) -> None:
        thinking = Thinking()
        agent = await thinking.with_messages()
        agent.inject(Injection("look", id="1", author=Author("U0ANN", "Ann"), files=("a.txt",)))
        assert agent.edit("1", "look here")
        await thinking.answered()
        assert await _rows(agent) == [["- Ann (U0ANN), with files a.txt: look here"]]

    @pytest.mark.parametrize("blank", ["", " \n\t"])
    async def test_a_blank_text_is_refused_and_the_message_stays_as_it_was(self, blank: str) -> None:
        thinking = Thinking()
        agent = await thinking.with_messages("1", "2")
        with pytest.raises(ValueError, match="text"):
            agent.edit("1", blank)
        await thinking.answered()
        assert await _rows(agent) == [["- this is 1", "- this is 2"]]

    async def test_an_edit_that_makes_a_message_urgent_interrupts_the_answer(self) -> None:
        thinking = Thinking()
        agent = await thinking.with_messages("1", "2")
        assert agent.edit("2", "!stop that")
        assert await soon(thinking.run) == "second"
        assert agent.provider.cancelled == 1
        assert await _rows(agent) == [["- this is 1", "- !stop that"]]

    async def test_an_edit_that_makes_a_message_urgent_does_not_wait_for_tools(self) -> None:
        gate = asyncio.Event()
        tool = gated(gate)
        agent = await make_agent(call(use("wait", "a")), say("meanwhile"), say("done"), tools=[tool])
        run = await agent.in_tool(tool)
        agent.inject(_message("1"))
        assert agent.edit("1", "!now")
        await agent.progress.reached("text")
        gate.set()
        assert await soon(run) == "done"
        assert tool.cancelled == 0


async def test_a_full_queue_refuses_messages_until_one_is_withdrawn() -> None:
    thinking = Thinking()
    agent = await thinking.with_messages("1", "2", max_waiting=2)
    with pytest.raises(InjectionQueueFull, match="2 messages are waiting"):
        agent.inject(_message("3"))
    assert [name for name, _, _ in _states(agent)] == ["1", "2"]
    assert agent.withdraw("1")
    agent.inject(_message("3"))
    with pytest.raises(InjectionQueueFull):
        agent.inject(_message("4"))
    await thinking.answered()
    assert await delivered(agent) == ["2", "3"]
