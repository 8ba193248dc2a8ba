"""Receipts: where each message stands, what may still be changed about it, and how many may wait."""

import asyncio
import dataclasses
from typing import Any

import pytest
from agents import Agent, call, delivered, echo, gated, goes_on, make_agent, never, say, soon, streaming, text_of, use

from orchestrator_interactive import Author, Injection, InjectionQueueFull, Receipt, RunFinished


def _stand(agent: Agent) -> list[tuple[str, str, int | None]]:
    return [(each.id, each.state, each.iteration) for each in agent.receipts()]


def _message(name: str, text: str = "") -> Injection:
    return Injection(text or f"this is {name}", id=name)


async def _thinking(*names: str, gate: asyncio.Event | None = None, **more: Any) -> tuple[Agent, Any, asyncio.Event]:
    """A run whose model thinks until the gate is open, and what was written meanwhile."""
    gate = gate or asyncio.Event()
    agent = await make_agent(streaming(gate, then=say("first")), say("second"), **more)
    run = agent.start()
    await agent.provider.asked(1)
    for name in names:
        agent.inject(_message(name))
    return agent, run, gate


async def _rows_with_messages(agent: Agent) -> list[list[str]]:
    rows = [row for row in await agent.history() if "injections" in (row.get("metadata") or {})]
    return [text_of(row).splitlines()[1:] for row in rows]


class TestStates:
    async def test_a_message_that_is_accepted_waits(self) -> None:
        agent, run, gate = await _thinking()
        assert agent.inject(_message("1")) == Receipt("1", "waiting", None)
        assert _stand(agent) == [("1", "waiting", None)]
        gate.set()
        await soon(run)

    async def test_one_that_the_model_reads_is_delivered_with_the_call_that_reads_it(self) -> None:
        agent = await make_agent(call(use("echo", "a")), call(use("echo", "b")), say("x"), say("y"), tools=[echo()])
        agent.inject(_message("before"))
        moments = iter(["one", "two", "three"])

        async def write(_event: str, _data: dict[str, Any]) -> None:
            if name := next(moments, None):
                agent.inject(_message(name))

        agent.hooks.register("provider:response", write)
        await agent.run()
        assert _stand(agent) == [(name, "delivered", n) for n, name in enumerate(["before", "one", "two", "three"], 1)]
        for receipt in agent.receipts():
            reads = [f"this is {receipt.id}" in str(agent.provider.sent(i)) for i in range(4)]
            assert reads.index(True) + 1 == receipt.iteration

    async def test_one_whose_author_takes_it_back_is_withdrawn_and_not_read(self) -> None:
        agent, run, gate = await _thinking("1", "2", "3")
        assert agent.withdraw("2")
        gate.set()
        await soon(run)
        assert [(name, state) for name, state, _ in _stand(agent)] == [
            ("1", "delivered"),
            ("2", "withdrawn"),
            ("3", "delivered"),
        ]
        assert await _rows_with_messages(agent) == [["- this is 1", "- this is 3"]]

    async def test_when_all_are_withdrawn_nothing_is_read_and_the_answer_is_the_last(self) -> None:
        agent, run, gate = await _thinking("1", "2")
        assert [agent.withdraw("1"), agent.withdraw("2")] == [True, True]
        gate.set()
        assert await soon(run) == "first"
        assert await _rows_with_messages(agent) == []

    async def test_plain_text_gets_a_receipt_with_an_identity_of_its_own(self) -> None:
        agent, run, gate = await _thinking()
        first, second = agent.inject("same"), agent.inject("same")
        assert first.id != second.id
        assert [each.id for each in agent.receipts()] == [first.id, second.id]
        gate.set()
        await soon(run)
        assert await delivered(agent) == [first.id, second.id]

    async def test_a_receipt_does_not_change_behind_its_readers_back(self) -> None:
        agent, run, gate = await _thinking()
        receipt = agent.inject("more")
        gate.set()
        await soon(run)
        assert receipt.state == "waiting"
        assert agent.receipts()[0].state == "delivered"
        with pytest.raises(dataclasses.FrozenInstanceError):
            receipt.state = "withdrawn"  # type: ignore[misc]

    async def test_those_of_the_last_run_stay_to_be_read_and_those_that_wait_go_on(self) -> None:
        agent = await make_agent(streaming("so far", then=never()))
        agent.inject(_message("1"))
        run = agent.start()
        await agent.provider.asked(1)
        agent.inject(_message("2"))
        agent.inject(_message("3"))
        assert agent.withdraw("3")
        agent.stop()
        await soon(run)
        assert _stand(agent) == [("1", "delivered", 1), ("2", "waiting", None), ("3", "withdrawn", None)]
        assert agent.progress.of("complete")[0]["messages"] == [
            {"id": name, "state": state, "iteration": iteration} for name, state, iteration in _stand(agent)
        ]
        await goes_on(agent)
        assert _stand(agent) == [("2", "delivered", 1)]

    async def test_between_two_runs_a_message_that_waits_may_be_changed_and_taken_back(self) -> None:
        agent = await make_agent(never())
        run = agent.start()
        await agent.provider.asked(1)
        agent.inject(_message("1"))
        agent.inject(_message("2"))
        agent.stop()
        await soon(run)
        with pytest.raises(RunFinished):
            agent.inject("late")
        assert agent.withdraw("1")
        assert agent.edit("2", "changed")
        await goes_on(agent)
        assert await _rows_with_messages(agent) == [["- changed"]]

    async def test_a_row_that_the_log_refuses_leaves_its_messages_waiting(self) -> None:
        agent, run, gate = await _thinking("1", "2")

        async def refuse(row: dict[str, Any]) -> None:
            if "injections" in (row.get("metadata") or {}):
                raise OSError("disk full")

        agent.context.before = refuse
        gate.set()
        with pytest.raises(OSError, match="disk full"):
            await soon(run)
        assert [state for _, state, _ in _stand(agent)] == ["waiting", "waiting"]
        assert agent.progress.of("complete")[0]["waiting"] == 2
        agent.context.before = None
        assert agent.withdraw("1")
        await goes_on(agent)
        assert await delivered(agent) == ["2"]

    @pytest.mark.parametrize("moment", ["before", "after"])
    async def test_while_its_row_is_written_it_is_too_late_to_change_a_message(self, moment: str) -> None:
        tried: list[bool] = []
        agent, run, gate = await _thinking("1")

        async def change(row: dict[str, Any]) -> None:
            if "injections" in (row.get("metadata") or {}):
                tried.extend([agent.edit("1", "other"), agent.withdraw("1")])

        setattr(agent.context, moment, change)
        gate.set()
        await soon(run)
        assert tried == [False, False]
        assert await _rows_with_messages(agent) == [["- this is 1"]]
        assert _stand(agent) == [("1", "delivered", 2)]


class TestEdits:
    async def test_the_new_text_stands_in_the_old_place(self) -> None:
        agent, run, gate = await _thinking("1", "2", "3")
        assert agent.edit("2", "changed")
        assert agent.edit("2", "changed again")
        gate.set()
        await soon(run)
        assert await _rows_with_messages(agent) == [["- this is 1", "- changed again", "- this is 3"]]
        assert await delivered(agent) == ["1", "2", "3"]

    async def test_author_and_files_stay(self) -> None:
        agent, run, gate = await _thinking()
        agent.inject(Injection("look", id="1", author=Author("U0ANN", "Ann"), files=("a.txt",)))
        assert agent.edit("1", "look here")
        gate.set()
        await soon(run)
        assert await _rows_with_messages(agent) == [["- Ann (U0ANN), with files a.txt: look here"]]

    async def test_after_delivery_and_for_a_stranger_it_is_too_late(self) -> None:
        agent, run, gate = await _thinking("1")
        gate.set()
        await soon(run)
        for name in ("1", "nobody"):
            assert not agent.edit(name, "other")
            assert not agent.withdraw(name)
        assert _stand(agent) == [("1", "delivered", 2)]

    async def test_what_was_withdrawn_stays_withdrawn(self) -> None:
        agent, run, gate = await _thinking("1")
        assert agent.withdraw("1")
        assert not agent.withdraw("1")
        assert not agent.edit("1", "back again")
        gate.set()
        assert await soon(run) == "first"
        assert _stand(agent) == [("1", "withdrawn", None)]

    @pytest.mark.parametrize("blank", ["", " \n\t"])
    async def test_a_blank_text_is_refused_and_the_message_stays_as_it_was(self, blank: str) -> None:
        agent, run, gate = await _thinking("1", "2")
        with pytest.raises(ValueError, match="text"):
            agent.edit("1", blank)
        gate.set()
        await soon(run)
        assert await _rows_with_messages(agent) == [["- this is 1", "- this is 2"]]

    async def test_one_that_becomes_urgent_cuts_the_answer_and_keeps_its_place(self) -> None:
        agent, run, _ = await _thinking("1", "2")
        assert agent.edit("2", "!stop that")
        assert await soon(run) == "second"
        assert agent.provider.cancelled == 1
        assert await _rows_with_messages(agent) == [["- this is 1", "- !stop that"]]

    async def test_one_that_becomes_urgent_leaves_running_tools_behind(self) -> None:
        gate = asyncio.Event()
        tool = gated(gate)
        agent = await make_agent(call(use("wait", "a")), say("meanwhile"), say("done"), tools=[tool])
        run = agent.start()
        await tool.started()
        agent.inject(_message("1"))
        assert agent.edit("1", "!now")
        await agent.progress.reached("text")
        gate.set()
        assert await soon(run) == "done"
        assert tool.cancelled == 0


class TestTheBound:
    async def test_a_full_queue_refuses_in_words_and_gives_no_receipt(self) -> None:
        agent, run, gate = await _thinking("1", "2", max_waiting=2)
        with pytest.raises(InjectionQueueFull, match="2 messages are waiting"):
            agent.inject(_message("3"))
        assert [name for name, _, _ in _stand(agent)] == ["1", "2"]
        gate.set()
        await soon(run)
        assert await delivered(agent) == ["1", "2"]

    async def test_who_takes_a_message_back_makes_room(self) -> None:
        agent, run, gate = await _thinking("1", "2", max_waiting=2)
        assert agent.withdraw("1")
        agent.inject(_message("3"))
        with pytest.raises(InjectionQueueFull):
            agent.inject(_message("4"))
        gate.set()
        await soon(run)
        assert await delivered(agent) == ["2", "3"]

    async def test_an_edit_needs_no_room(self) -> None:
        agent, run, gate = await _thinking("1", "2", max_waiting=2)
        assert agent.edit("1", "changed")
        gate.set()
        await soon(run)
        assert await delivered(agent) == ["1", "2"]
