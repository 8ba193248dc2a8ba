"""Of two processes that believe that they own a conversation, the later one does."""

from __future__ import annotations

import asyncio
from contextlib import aclosing, asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
from anthropic_server import AnthropicServer, Gate, message, text, tool_call
from tool_gate import GATED_TOOL, ToolGate

from connector.protocols import LeaseLost, MessageAuthor, RunFailed, SteeringMessage
from orchestrator_interactive.interactions.stores import open_store
from service.config.config import InstanceConfig, ModuleConfig, PersonaConfig, WorkspaceConfig
from service.sessions.manager import InProcessSessionManager
from service.sessions.workspaces import Workspaces

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

HERE = "T:C:1.0"
FIRST, SECOND = "T:C:1.0", "T:C:2.0"


@pytest.fixture
async def model(monkeypatch) -> AsyncIterator[AnthropicServer]:
    """A model that says `fine` whatever it is asked."""
    async with AnthropicServer() as model:
        monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-ant-of-the-test")
        monkeypatch.setenv("ANTHROPIC_BASE_URL", model.base_url)
        model.otherwise = lambda _: message(text("fine"))
        yield model


@pytest.fixture
def started(tmp_path):
    """Start a manager over the file of this test."""

    @asynccontextmanager
    async def started(**changes: Any) -> AsyncIterator[InProcessSessionManager]:
        instance = InstanceConfig(persona=PersonaConfig(name="Alpha", emoji=":owl:"), **changes)
        workspaces = Workspaces(WorkspaceConfig(root=tmp_path / "files"))
        async with (
            aclosing(await open_store(f"sqlite:{tmp_path}/kept.db")) as store,
            InProcessSessionManager({"alpha": instance}, "provider-anthropic", workspaces, store) as sessions,
        ):
            yield sessions

    return started


class Heard:
    """Remember what a run told."""

    def __init__(self) -> None:
        self.events: list[tuple[str, dict]] = []

    async def hear(self, event: str, data: dict) -> None:
        self.events.append((event, data))

    def of(self, event: str) -> list[dict]:
        return [data for name, data in self.events if name == event]


async def test_a_run_whose_conversation_somebody_else_has_taken_over_writes_nothing_more(model, started):
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


async def test_a_tool_of_a_run_that_was_taken_over_is_not_begun(model, started, tmp_path):
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


async def test_an_owner_that_comes_back_goes_on_from_what_the_other_one_wrote(model, started):
    async with started() as one, started() as two:
        await one.execute("alpha", HERE, "one", fence=1)
        await two.execute("alpha", HERE, "two", fence=2)
        await one.execute("alpha", HERE, "three", fence=3)
    said = str(model.bodies[-1]["messages"])
    assert [said.count(word) for word in ("one", "two", "three")] == [1, 1, 1]


async def test_the_usage_of_a_conversation_counts_the_runs_of_other_owners(model, started):
    heard = Heard()
    async with started() as one, started() as two:
        for fence, sessions in enumerate((one, two, one, one), 1):
            await sessions.execute("alpha", HERE, "hello", heard.hear, fence=fence)
    usage = [data["conversation_usage"]["input_tokens"] for data in heard.of("complete")]
    assert usage == [10, 20, 30, 40]


async def test_a_suspended_run_goes_on_in_another_process_with_its_answer_once(model, started):
    gate, heard, later = Gate(), Heard(), Heard()
    model.reply(tool_call("list_files"))
    model.reply(gate, text("given up"))
    async with started() as one:
        run = asyncio.create_task(one.execute("alpha", HERE, "one", heard.hear, message_id=FIRST, fence=1))
        await gate.reached.wait()
        assert one.inject(
            "alpha", HERE, SteeringMessage(SECOND, "and that", MessageAuthor("U0ANA", "Ana"), written_s=2.0)
        )
        assert one.suspend("alpha", HERE)
        await run
        assert not one.suspend("alpha", HERE)
    assert [data["status"] for data in heard.of("complete")] == ["suspended"]
    async with started() as two:
        assert await two.delivered("alpha", HERE, [FIRST, SECOND], fence=2) == {FIRST}
        assert await two.resume("alpha", HERE, later.hear, fence=2) == "fine"
        assert await two.resume("alpha", HERE, fence=3) == "fine"
    assert [data["status"] for data in later.of("complete")] == ["success"]
    said = str(model.bodies[-1]["messages"])
    assert ("given up" in said, "and that" in said) == (False, False)
    assert len(model.requests) == 3, "what was complete is not asked for again"


async def test_a_run_whose_caller_is_cancelled_was_stopped_by_nobody_and_goes_on_elsewhere(model, started):
    half, heard, later = Gate(), Heard(), Heard()
    model.reply(text("Half of ", half, "the answer"))
    async with started() as one:
        run = asyncio.create_task(one.execute("alpha", HERE, "one", heard.hear, message_id=FIRST, fence=1))
        await half.reached.wait()
        run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run
        assert [data["status"] for data in heard.of("complete")] == ["suspended"]
    async with started() as two:
        run = asyncio.create_task(two.resume("alpha", HERE, later.hear, fence=2))
        assert await run == "fine"
    assert [data["status"] for data in later.of("complete")] == ["success"]
    assert "Half of" not in str(model.bodies[-1])
    assert len(model.requests) == 2


async def test_a_tool_at_work_is_cut_where_the_caller_is_cancelled_and_all_know_when_it_goes_on(model, started):
    heard = Heard()
    model.reply(tool_call("run_tests"))
    async with ToolGate() as gate:
        tools = (ModuleConfig(module="gated-tool", source=str(GATED_TOOL), config={"port": gate.port}),)
        async with started(tools=tools) as one:
            run = asyncio.create_task(one.execute("alpha", HERE, "one", message_id=FIRST, fence=1))
            await gate.reached.wait()
            run.cancel()
            with pytest.raises(asyncio.CancelledError):
                await run
            await gate.left.wait()
        async with started(tools=tools) as two:
            assert await two.resume("alpha", HERE, heard.hear, fence=2) == "fine"
        async with started(tools=tools) as three:
            assert await three.resume("alpha", HERE, heard.hear, fence=3) == "fine"
        assert gate.calls == 1
    told = {"tool": "run_tests", "label": "Running the tests", "outcome": "unknown"}
    assert [[each.items() >= told.items() for each in data["tools"]] for data in heard.of("resumed")] == [[True]] * 2
    assert [data["tools"] for data in heard.of("complete")] == [data["tools"] for data in heard.of("resumed")]
    assert "its outcome is unknown" in str(model.bodies[-1]["messages"][-1])


async def test_a_run_that_is_suspended_in_its_set_up_says_so_and_has_written_nothing(model, started):
    heard = Heard()
    async with started() as one:
        run = asyncio.create_task(one.execute("alpha", HERE, "one", heard.hear, message_id=FIRST, fence=1))
        await asyncio.sleep(0)  # it has begun: its set-up is on in a thread
        assert one.suspend("alpha", HERE)
        assert not one.suspend("alpha", HERE)
        assert await run == ""
        assert await one.delivered("alpha", HERE, [FIRST], fence=2) == frozenset()
    assert [data["status"] for data in heard.of("complete")] == ["suspended"]
    assert model.requests == []


async def test_a_run_that_is_stopped_while_it_is_taken_up_tells_what_it_had_said(model, started):
    first, second, heard = Gate(), Gate(), Heard()
    model.reply(first, text("Done so far."))
    model.reply(second, text("given up"))
    async with started() as one:
        run = asyncio.create_task(one.execute("alpha", HERE, "one", message_id=FIRST, fence=1))
        await first.reached.wait()
        assert one.inject(
            "alpha", HERE, SteeringMessage(SECOND, "and that", MessageAuthor("U0ANA", "Ana"), written_s=2.0)
        )
        first.open()
        await second.reached.wait()
        one.suspend("alpha", HERE)
        await run
    async with started() as two:
        run = asyncio.create_task(two.resume("alpha", HERE, heard.hear, fence=2))
        await asyncio.sleep(0)  # it has begun: its set-up is on in a thread
        assert two.stop("alpha", HERE)
        assert await run == ""
    assert [(data["text"], data["part"]) for data in heard.of("text")] == [("Done so far.", 1)]
    assert [data["status"] for data in heard.of("complete")] == ["cancelled"]
    assert len(model.requests) == 2


async def test_one_that_is_suspended_then_leaves_that_to_whoever_takes_it_up_next(model, started):
    first, heard, later = Gate(), Heard(), Heard()
    model.reply(first, text("given up"))
    async with started() as one:
        run = asyncio.create_task(one.execute("alpha", HERE, "one", message_id=FIRST, fence=1))
        await first.reached.wait()
        one.suspend("alpha", HERE)
        await run
    async with started() as two:
        run = asyncio.create_task(two.resume("alpha", HERE, heard.hear, fence=2))
        await asyncio.sleep(0)  # it has begun: its set-up is on in a thread
        assert two.stop("alpha", HERE)
        assert two.suspend("alpha", HERE)
        assert await run == ""
    assert [data["status"] for data in heard.of("complete")] == ["suspended"]
    async with started() as three:
        run = asyncio.create_task(three.resume("alpha", HERE, later.hear, fence=3))
        await asyncio.sleep(0)
        assert three.stop("alpha", HERE)
        await run
    assert [data["status"] for data in later.of("complete")] == ["cancelled"]


async def test_what_is_delivered_is_what_the_log_has_in_a_row(model, started):
    gate, again = Gate(), Gate()
    model.reply(gate, tool_call("list_files"))
    model.reply(again, text("fine"))
    async with started() as one:
        run = asyncio.create_task(one.execute("alpha", HERE, "one", message_id=FIRST, fence=1))
        await gate.reached.wait()
        assert one.inject(
            "alpha", HERE, SteeringMessage(SECOND, "and that", MessageAuthor("U0ANA", "Ana"), written_s=2.0)
        )
        assert await one.delivered("alpha", HERE, [FIRST, SECOND, "T:C:3.0"]) == {FIRST}, "while it is on"
        gate.open()
        await again.reached.wait()
        assert await one.delivered("alpha", HERE, [FIRST, SECOND, "T:C:3.0"]) == {FIRST, SECOND}
        again.open()
        await run
        assert await one.delivered("alpha", HERE, []) == frozenset()


async def test_a_context_that_forgets_says_so_where_a_run_is_to_go_on(model, started):
    async with started(context=ModuleConfig(module="context-simple")) as one:
        await one.execute("alpha", HERE, "one", message_id=FIRST, fence=1)
        assert await one.delivered("alpha", HERE, [FIRST], fence=1) == {FIRST}
    async with started(context=ModuleConfig(module="context-simple")) as two:
        for step in (two.delivered("alpha", HERE, [FIRST], fence=2), two.resume("alpha", HERE, fence=2)):
            with pytest.raises(
                RunFailed, match=r"^I was interrupted and lost my work\. Send a message to try again\.$"
            ):
                await step
