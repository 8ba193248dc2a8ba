"""Receipts: the state of each message, what may still be changed about it, and how many may be pending."""

import asyncio
import dataclasses
from typing import Any

import pytest
from agents import Agent, call, delivered, echo, gated, goes_on, make_agent, never, say, soon, streaming, text_of, use

from orchestrator_interactive import Author, Injection, InjectionQueueFull, Receipt, RunFinished


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
