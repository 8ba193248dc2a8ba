"""Fencing tokens: if two processes believe that they own a conversation, only the later one writes."""

from __future__ import annotations

import asyncio

import pytest
from anthropic_server import Gate, text, tool_call
from session_tests import BOTH, HERE, ProgressRecorder, steering

from connector.protocols import LeaseLost, RunFailed
from service.config.config import ModuleConfig

FIRST, SECOND = HERE, "T:C:2.0"


@BOTH
async def test_after_a_takeover_the_earlier_owner_writes_nothing(model, started):
    gate = Gate()
    model.reply(gate, text("too late"))
    async with started() as one, started() as two:
        run = asyncio.create_task(one.execute("alpha", HERE, "one", message_id=FIRST, fence=1))
        await gate.reached.wait()
        assert await two.delivered("alpha", HERE, [FIRST, SECOND], fence=2) == {FIRST}
        gate.open()
        with pytest.raises(LeaseLost):
            await run
        assert await two.resume("alpha", HERE, fence=2) == "fine"
        for late in (
            one.execute("alpha", HERE, "late", fence=1),
            one.resume("alpha", HERE, fence=1),
            one.delivered("alpha", HERE, [FIRST], fence=1),
        ):
            with pytest.raises(LeaseLost):
                await late
    assert "too late" not in str(model.bodies[-1])
    assert len(model.requests) == 2


@BOTH
async def test_after_a_takeover_the_earlier_owner_starts_no_tool(model, started, tmp_path):
    gate = Gate()
    model.reply(gate, tool_call("write_file", {"path": "late.md", "content": "late"}))
    async with started() as one, started() as two:
        run = asyncio.create_task(one.execute("alpha", HERE, "one", message_id=FIRST, fence=1))
        await gate.reached.wait()
        await two.delivered("alpha", HERE, [], fence=2)
        gate.open()
        with pytest.raises(LeaseLost):
            await run
    assert not list(tmp_path.rglob("late.md"))


@BOTH
async def test_a_returning_owner_continues_from_the_log_and_usage_counts_all_runs(model, started):
    progress = ProgressRecorder()
    async with started() as one, started() as two:
        for fence, (sessions, prompt) in enumerate(((one, "one"), (two, "two"), (one, "three"), (one, "four")), 1):
            await sessions.execute("alpha", HERE, prompt, progress, fence=fence)
    sent = str(model.bodies[-1]["messages"])
    assert [sent.count(word) for word in ("one", "two", "three", "four")] == [1, 1, 1, 1]
    usage = [data["conversation_usage"]["input_tokens"] for data in progress.data("complete")]
    assert usage == [10, 20, 30, 40]
    assert [data["usage"]["input_tokens"] for data in progress.data("complete")] == [10] * 4


@BOTH
async def test_a_suspended_run_is_resumed_by_another_process_and_answered_once(model, started):
    gate, progress, later = Gate(), ProgressRecorder(), ProgressRecorder()
    model.reply(tool_call("list_files"))
    model.reply(gate, text("given up"))
    async with started() as one:
        run = asyncio.create_task(one.execute("alpha", HERE, "one", progress, message_id=FIRST, fence=1))
        await gate.reached.wait()
        assert one.inject("alpha", HERE, **steering(SECOND))
        assert one.suspend("alpha", HERE)
        await run
        assert not one.suspend("alpha", HERE)
    assert progress.statuses == ["suspended"]
    async with started() as two:
        assert await two.delivered("alpha", HERE, [FIRST, SECOND], fence=2) == {FIRST}
        assert await two.resume("alpha", HERE, later, fence=2) == "fine"
        assert await two.resume("alpha", HERE, fence=3) == "fine"
    assert later.statuses == ["success"]
    sent = str(model.bodies[-1]["messages"])
    assert ("given up" in sent, "and that" in sent) == (False, False)
    assert len(model.requests) == 3, "a finished run makes no further model call"


async def suspended(model, started):
    """Suspend a run while it asks the model."""
    gate = Gate()
    model.reply(gate, text("given up"))
    async with started() as one:
        run = asyncio.create_task(one.execute("alpha", HERE, "one", message_id=FIRST, fence=1))
        await gate.reached.wait()
        one.suspend("alpha", HERE)
        await run


async def test_a_resumed_run_is_suspended_at_any_instant_and_a_stop_after_it_is_left_to_the_next_owner(model, started):
    await suspended(model, started)
    model.reply(Gate(), text("given up, too"))
    instant = 1
    async with started() as two:
        while len(model.requests) < 2:  # until it asks the model
            progress = ProgressRecorder()
            run = asyncio.create_task(two.resume("alpha", HERE, progress, fence=2))
            for _ in range(instant):
                await asyncio.sleep(0)
            two.suspend("alpha", HERE)
            two.stop("alpha", HERE, immediate=True)
            assert await run == ""
            assert progress.statuses == ["suspended"], instant
            instant += 1 + instant // 100
        assert await two.resume("alpha", HERE, fence=2) == "fine"
    assert instant > 10


async def test_a_run_whose_caller_is_cancelled_is_suspended_and_resumable(model, started):
    half, progress, later = Gate(), ProgressRecorder(), ProgressRecorder()
    model.reply(text("Half of ", half, "the answer"))
    async with started() as one:
        run = asyncio.create_task(one.execute("alpha", HERE, "one", progress, message_id=FIRST, fence=1))
        await half.reached.wait()
        run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run
    assert progress.statuses == ["suspended"]
    async with started() as two:
        assert await two.resume("alpha", HERE, later, fence=2) == "fine"
    assert later.statuses == ["success"]
    assert "Half of" not in str(model.bodies[-1])
    assert len(model.requests) == 2


@BOTH
async def test_a_run_stopped_while_it_is_resumed_reports_its_text_so_far(model, started):
    first, second, progress = Gate(), Gate(), ProgressRecorder()
    model.reply(first, text("Done so far."))
    model.reply(second, text("given up"))
    async with started() as one:
        run = asyncio.create_task(one.execute("alpha", HERE, "one", message_id=FIRST, fence=1))
        await first.reached.wait()
        assert one.inject("alpha", HERE, **steering(SECOND))
        assert await one.edit("alpha", HERE, SECOND, "and that")  # so that the loop has it
        first.open()
        await second.reached.wait()
        one.suspend("alpha", HERE)
        await run
    async with started() as two:
        run = asyncio.create_task(two.resume("alpha", HERE, progress, fence=2))
        await asyncio.sleep(0)  # the set-up has started in a thread
        assert two.stop("alpha", HERE)
        assert await run == ""
    assert [(data["text"], data["part"]) for data in progress.data("text")] == [("Done so far.", 1)]
    assert progress.statuses == ["cancelled"]
    assert len(model.requests) == 2


@BOTH
async def test_a_run_suspended_after_a_stop_leaves_the_stop_to_the_next_owner(model, started):
    progress, later = ProgressRecorder(), ProgressRecorder()
    await suspended(model, started)
    async with started() as two:
        run = asyncio.create_task(two.resume("alpha", HERE, progress, fence=2))
        await asyncio.sleep(0)  # the set-up has started in a thread
        assert two.stop("alpha", HERE)
        assert two.suspend("alpha", HERE)
        assert await run == ""
    assert progress.statuses == ["suspended"]
    async with started() as three:
        run = asyncio.create_task(three.resume("alpha", HERE, later, fence=3))
        await asyncio.sleep(0)
        assert three.stop("alpha", HERE)
        await run
    assert later.statuses == ["cancelled"]


@BOTH
async def test_a_message_is_delivered_once_a_row_with_it_is_committed(model, started):
    gate, again, ids = Gate(), Gate(), [FIRST, SECOND, "T:C:3.0"]
    model.reply(gate, tool_call("list_files"))
    model.reply(again, text("fine"))
    async with started() as one:
        run = asyncio.create_task(one.execute("alpha", HERE, "one", message_id=FIRST, fence=1))
        await gate.reached.wait()
        assert one.inject("alpha", HERE, **steering(SECOND))
        assert await one.delivered("alpha", HERE, ids) == {FIRST}
        assert await one.edit("alpha", HERE, SECOND, "and that")
        gate.open()
        await again.reached.wait()
        assert await one.delivered("alpha", HERE, ids) == {FIRST, SECOND}
        again.open()
        await run
        assert await one.delivered("alpha", HERE, []) == frozenset()


@BOTH
async def test_a_run_whose_context_keeps_no_log_cannot_be_resumed_elsewhere(model, started):
    context = ModuleConfig(module="context-simple")
    async with started(context=context) as one:
        await one.execute("alpha", HERE, "one", message_id=FIRST, fence=1)
        assert await one.delivered("alpha", HERE, [FIRST], fence=1) == {FIRST}
    async with started(context=context) as two:
        for step in (two.delivered("alpha", HERE, [FIRST], fence=2), two.resume("alpha", HERE, fence=2)):
            with pytest.raises(
                RunFailed, match=r"^I was interrupted and lost my work\. Send a message to try again\.$"
            ):
                await step
