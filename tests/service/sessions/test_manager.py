from __future__ import annotations

import asyncio

import pytest
from anthropic_server import Gate, text
from session_tests import BOTH, HERE, ProgressRecorder, steering

from connector import Refused, RunFailed
from connector.protocols import QueueFull
from service.config.config import ModuleConfig


@pytest.mark.parametrize(("action", "status"), [("stop", "cancelled"), ("suspend", "suspended")])
async def test_a_run_ended_during_its_set_up_reports_it_and_does_nothing(model, manager, action, status):
    progress = ProgressRecorder()
    async with manager() as sessions:
        run = asyncio.create_task(sessions.execute("alpha", HERE, "hello", progress, message_id=HERE))
        await asyncio.sleep(0)  # the set-up has started in a thread
        assert getattr(sessions, action)("alpha", HERE)
        assert not getattr(sessions, action)("alpha", HERE)
        assert await run == ""
        assert await sessions.delivered("alpha", HERE, [HERE]) == frozenset()
    assert progress.statuses == [status]
    assert model.requests == []


@BOTH
async def test_after_a_failed_set_up_there_is_nothing_to_stop(model, manager, tmp_path):
    root = tmp_path / "files"
    async with manager() as sessions:
        root.write_text("in the way")
        with pytest.raises(RunFailed, match="files"):
            await sessions.execute("alpha", HERE, "hello")
        assert not sessions.stop("alpha", HERE)
        root.unlink()
        assert await sessions.execute("alpha", HERE, "hello again") == "fine"


@BOTH
async def test_a_stop_at_any_instant_does_not_affect_the_next_run(model, manager):
    instant, ended, cancelled = 0, False, 0
    async with manager() as sessions:
        while not ended:
            progress = ProgressRecorder()
            run = asyncio.create_task(sessions.execute("alpha", HERE, "hello", progress))
            for _ in range(instant):
                await asyncio.sleep(0)
            ended = run.done()
            stopped = sessions.stop("alpha", HERE, immediate=bool(instant % 2))
            await run
            assert stopped or progress.statuses == ["success"]
            cancelled += progress.statuses == ["cancelled"]
            await sessions.execute("alpha", HERE, "hello again", progress)
            assert progress.statuses[1:] == ["success"], instant
            instant += 1 + instant // 20
    assert not stopped
    assert cancelled > 10


@BOTH
async def test_without_a_run_nothing_can_be_stopped_or_injected(model, manager):
    async with manager() as sessions:
        for _ in range(2):
            assert not sessions.stop("alpha", HERE, immediate=True)
            assert not sessions.inject("alpha", HERE, **steering("T:C:2.0"))
            await sessions.execute("alpha", HERE, "hello")


@BOTH
async def test_an_undelivered_message_of_a_stopped_run_can_be_injected_into_the_next(model, manager):
    progress, gate, again = ProgressRecorder(), Gate(), Gate()
    message = steering("T:C:2.0")
    async with manager() as sessions:
        model.reply(gate, text("too late"))
        first = asyncio.create_task(sessions.execute("alpha", HERE, "hello", progress))
        await gate.reached.wait()
        assert sessions.inject("alpha", HERE, **message)
        sessions.stop("alpha", HERE)
        await first
        assert not await sessions.withdraw("alpha", HERE, message["message_id"])
        model.reply(again, text("fine"))
        second = asyncio.create_task(sessions.execute("alpha", HERE, "hello again", progress))
        await again.reached.wait()
        assert "and that" not in str(model.bodies[-1]["messages"])
        assert sessions.inject("alpha", HERE, **message)
        assert await sessions.edit("alpha", HERE, message["message_id"], "and that")  # it has arrived
        again.open()
        await second
    assert progress.statuses == ["cancelled", "success"]
    assert [data["waiting"] for data in progress.data("complete")] == [1, 0]
    assert str(model.bodies[-1]["messages"]).count("and that") == 1


@BOTH
async def test_a_pending_message_can_be_edited_and_withdrawn(model, manager):
    gate = Gate()
    async with manager() as sessions:
        model.reply(gate, text("fine"))
        run = asyncio.create_task(sessions.execute("alpha", HERE, "hello"))
        await gate.reached.wait()
        for number, words in enumerate(("first", "second", "third")):
            assert sessions.inject("alpha", HERE, **steering(f"T:C:{number}", words, number))
        assert await sessions.edit("alpha", HERE, "T:C:0", "changed")
        with pytest.raises(Refused, match="needs some text"):
            await sessions.edit("alpha", HERE, "T:C:2", " ")
        assert await sessions.withdraw("alpha", HERE, "T:C:1")
        assert not await sessions.withdraw("alpha", HERE, "T:C:1")
        gate.open()
        await run
        assert not await sessions.edit("alpha", HERE, "T:C:0", "too late")
    sent = str(model.bodies[-1]["messages"])
    assert [word in sent for word in ("first", "changed", "second", "third")] == [False, True, False, True]


@BOTH
async def test_injected_messages_are_ordered_by_writing_time(model, manager):
    gate = Gate()
    async with manager() as sessions:
        model.reply(gate, text("fine"))
        run = asyncio.create_task(sessions.execute("alpha", HERE, "hello"))
        await gate.reached.wait()
        for word, written_s in (("later", 3.0), ("earlier", 2.0)):
            assert sessions.inject("alpha", HERE, **steering(f"T:C:{written_s}", word, written_s))
        assert await sessions.edit("alpha", HERE, "T:C:3.0", "later")  # so that the loop has them
        gate.open()
        await run
    sent = str(model.bodies[-1]["messages"])
    assert sent.index("earlier") < sent.index("later")


async def test_a_full_queue_raises_queue_full(model, manager):
    gate = Gate()
    async with manager(orchestrator=ModuleConfig(module="loop-interactive", config={"max_waiting": 1})) as sessions:
        model.reply(gate, text("fine"))
        run = asyncio.create_task(sessions.execute("alpha", HERE, "hello"))
        await gate.reached.wait()
        assert sessions.inject("alpha", HERE, **steering("T:C:2.0"))
        with pytest.raises(QueueFull):
            sessions.inject("alpha", HERE, **steering("T:C:3.0"))
        gate.open()
        await run


@BOTH
async def test_two_instances_in_a_conversation_have_separate_sessions_and_one_folder(model, manager, tmp_path):
    async with manager("alpha", "beta") as sessions:
        for name in ("alpha", "beta"):
            await sessions.execute(name, HERE, f"hello {name}")
    assert "hello alpha" not in str(model.bodies[-1]["messages"])
    assert len(list((tmp_path / "files").iterdir())) == 1
