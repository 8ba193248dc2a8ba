"""A call that began early, and that no answer asks for after all: it leaves nothing behind."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from agents import (
    answer,
    deaf,
    echo,
    fail,
    gated,
    goes_on,
    having,
    make_agent,
    never,
    results,
    say,
    soon,
    streaming,
)
from virtual_time import in_virtual_time

from orchestrator_interactive.kernel import HookResult
from orchestrator_interactive.kernel.contracts.errors import ProviderUnavailableError
from orchestrator_interactive.kernel.contracts.messages import TextBlock, ToolCall, ToolCallBlock

if TYPE_CHECKING:
    from typing import Any

    from agents import Agent, ScriptedTool

# Far longer than a test takes: a grace period that ends by itself would be a hang.
LONG_S = 600
LOOK = ToolCallBlock(id="a", name="look", input={"text": "seen"})
DOWN = ProviderUnavailableError("down")


def _look(*blocks: Any) -> Any:
    return answer(*blocks, LOOK)


def _harmless(tool: ScriptedTool) -> ScriptedTool:
    return having(tool, side_effect_free=True)


def _listen(agent: Agent) -> None:
    agent.events.listen(agent.hooks, "tool:pre", "tool:post", "tool:error", "provider:response", "provider:error")


def _pairs(agent: Agent) -> tuple[list[str], list[str]]:
    """The ids of the calls that began and ended, as progress tells of them."""
    begun, ended = ([data["id"] for data in agent.progress.of(f"tool:{event}")] for event in ("start", "end"))
    return sorted(begun), sorted(ended)


def _told(agent: Agent) -> list[tuple[str, str]]:
    """What the end tells of each call: its id, and what became of it."""
    return [(each["id"], each["outcome"]) for each in agent.progress.of("complete")[0]["tools"]]


class TestAnAnswerThatIsNot:
    @pytest.mark.parametrize("finished", [False, True])
    async def test_one_of_an_answer_that_failed_leaves_no_row_and_its_events_are_closed(
        self, *, finished: bool
    ) -> None:
        gate, broken = asyncio.Event(), asyncio.Event()
        tool = _harmless(gated(gate, "look"))
        agent = await make_agent(
            streaming("I will", LOOK, broken, then=fail(DOWN)), say("ok"), tools=[tool], retry_base_delay_s=0
        )
        _listen(agent)
        run = agent.start()
        await tool.started()
        if finished:
            gate.set()
            await agent.progress.reached("tool:end")
        broken.set()
        assert await soon(run) == "ok"
        assert await agent.told() == [("user", "go"), ("assistant", "ok")]
        assert _pairs(agent) == (["a"], ["a"])
        assert agent.events.names()[:2] == ["tool:pre", "tool:post" if finished else "tool:error"]
        outcome = "finished" if finished else "cancelled"
        assert agent.progress.of("complete")[0]["tools"] == [
            {"tool": "look", "id": "a", "label": None, "outcome": outcome}
        ]

    async def test_the_same_call_in_the_next_attempt_is_a_new_one(self) -> None:
        tool = _harmless(echo("look"))
        steps = streaming(LOOK, then=fail(DOWN)), streaming(LOOK, then=_look()), say("ok")
        agent = await make_agent(*steps, tools=[tool], retry_base_delay_s=0)
        assert await agent.run() == "ok"
        assert await results(agent) == {"a": "seen"}
        await goes_on(agent)

    @pytest.mark.parametrize(
        "again",
        [LOOK, LOOK.model_copy(update={"id": "b"}), LOOK.model_copy(update={"input": {"text": "more"}})],
        ids=["the same", "with another id", "with another input"],
    )
    async def test_one_that_the_next_attempt_makes_is_told_at_the_end_as_what_it_came_to(
        self, again: ToolCallBlock
    ) -> None:
        gate, broken = asyncio.Event(), asyncio.Event()
        tool = _harmless(gated(gate, "look"))
        steps = streaming(LOOK, broken, then=fail(DOWN)), answer(again), say("ok")
        agent = await make_agent(*steps, tools=[tool], retry_base_delay_s=0)
        run = agent.start()
        await tool.started()
        broken.set()
        await agent.provider.asked(2)
        gate.set()
        assert await soon(run) == "ok"
        assert tool.cancelled == 1
        assert _told(agent) == [(again.id, "finished")]

    async def test_one_that_is_not_made_again_is_told_at_the_end_beside_others(self) -> None:
        other = ToolCallBlock(id="b", name="look", input={"text": "other"})
        step = streaming(LOOK, then=fail(DOWN))
        agent = await make_agent(step, answer(other), say("ok"), tools=[_harmless(echo("look"))], retry_base_delay_s=0)
        assert await agent.run() == "ok"
        assert [each for each, _ in _told(agent)] == ["a", "b"]

    async def test_a_stop_while_it_comes_again_tells_it_once(self) -> None:
        tool = _harmless(gated(asyncio.Event(), "look"))
        again = LOOK.model_copy(update={"id": "b"})
        broken = asyncio.Event()
        steps = streaming(LOOK, broken, then=fail(DOWN)), streaming(again, then=never())
        agent = await make_agent(*steps, tools=[tool], retry_base_delay_s=0)
        run = agent.start()
        await tool.started()
        broken.set()
        await tool.started(2)
        agent.stop()
        await soon(run)
        assert _told(agent) == [("b", "cancelled")]

    async def test_calls_of_one_answer_that_are_alike_are_all_told(self) -> None:
        twice = LOOK, LOOK.model_copy(update={"id": "b"})
        agent = await make_agent(streaming(*twice, then=answer(*twice)), say("ok"), tools=[_harmless(echo("look"))])
        assert await agent.run() == "ok"
        assert _told(agent) == [("a", "finished"), ("b", "finished")]

    @pytest.mark.parametrize("immediate", [False, True])
    async def test_a_stop_in_mid_stream_cuts_it_and_leaves_no_row(self, *, immediate: bool) -> None:
        tool = _harmless(gated(asyncio.Event(), "look"))
        agent = await make_agent(streaming("I will", LOOK, then=never()), tools=[tool], stop_grace_s=LONG_S)
        run = agent.start()
        await tool.started()
        agent.stop(immediate=immediate)
        assert await soon(run) == "I will"
        assert (await agent.told())[1:] == [("assistant", "I will")]
        assert tool.cancelled == 1
        assert _pairs(agent) == (["a"], ["a"])
        assert agent.progress.of("complete")[0]["tools"][0]["outcome"] == "cancelled"
        await goes_on(agent)

    async def test_a_cancellation_in_mid_stream_cuts_it_and_leaves_no_task(self) -> None:
        tool = _harmless(gated(asyncio.Event(), "look"))
        agent = await make_agent(streaming(LOOK, then=never()), tools=[tool])
        before = asyncio.all_tasks()
        run = agent.start()
        await tool.started()
        run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await soon(run)
        assert asyncio.all_tasks() == before
        assert _pairs(agent) == (["a"], ["a"])
        await goes_on(agent)

    @pytest.mark.parametrize(
        ("calls", "inputs", "left"),
        [
            ([], [], {}),
            ([ToolCall(id="a", name="look", arguments={"text": "other"})], ["other"], {"a": "other"}),
            ([ToolCall(id="b", name="look", arguments={"text": "seen"})], ["seen"], {"b": "seen"}),
            ([ToolCall(id="a", name="do", arguments={"text": "seen"})], [], {"a": "seen"}),
        ],
        ids=["gone", "another input", "another id", "another tool"],
    )
    async def test_when_a_hook_changes_the_calls_those_that_it_left_are_made(
        self, calls: list[ToolCall], inputs: list[str], left: dict[str, str]
    ) -> None:
        gate = asyncio.Event()
        tool = _harmless(gated(gate, "look"))
        agent = await make_agent(streaming(LOOK, then=_look(TextBlock(text="hm"))), say("ok"), tools=[tool, echo("do")])

        async def change(_event: str, data: dict[str, Any]) -> HookResult:
            response = data["response"]
            if not response.tool_calls:
                return HookResult()
            blocks = [ToolCallBlock(id=c.id, name=c.name, input=c.arguments) for c in calls]
            changed = {"content": [TextBlock(text="hm"), *blocks], "tool_calls": calls}
            return HookResult(action="modify", data={"response": response.model_copy(update=changed)})

        agent.hooks.register("provider:response", change)
        agent.progress.act_on("tool:end", gate.set)
        agent.inject("more")
        await agent.run()
        assert [given["text"] for given in tool.inputs][1:] == inputs
        assert tool.cancelled == 1
        assert await results(agent) == left
        begun, ended = _pairs(agent)
        assert begun == ended
        await goes_on(agent)

    async def test_one_that_a_hook_took_out_has_ended_before_the_model_is_asked_again(self) -> None:
        tool = _harmless(gated(asyncio.Event(), "look"))
        agent = await make_agent(streaming(LOOK, then=_look(TextBlock(text="hm"))), say("ok"), tools=[tool])

        async def take_out(_event: str, data: dict[str, Any]) -> HookResult:
            if tool.cancelled:
                return HookResult()
            agent.inject("more")
            only_text = {"content": [TextBlock(text="hm")], "tool_calls": None}
            return HookResult(action="modify", data={"response": data["response"].model_copy(update=only_text)})

        agent.hooks.register("provider:response", take_out)
        assert await agent.run() == "ok"
        assert agent.progress.names()[2:5] == ["tool:start", "tool:end", "text"]

    async def test_a_refused_answer_ends_its_early_calls(self) -> None:
        tool = _harmless(gated(asyncio.Event(), "look"))
        agent = await make_agent(streaming(LOOK, then=_look()), tools=[tool])
        end = agent.on_hook("provider:response", HookResult(action="deny", reason="no"))
        await agent.run()
        end()
        assert tool.cancelled == 1
        assert await agent.told() == [("user", "go")]
        await goes_on(agent)

    async def test_an_answer_whose_row_the_log_refuses_ends_its_early_calls(self) -> None:
        tool = _harmless(gated(asyncio.Event(), "look"))
        agent = await make_agent(streaming(LOOK, then=_look()), tools=[tool])

        async def refuse(row: dict[str, Any]) -> None:
            if row["role"] == "assistant":
                raise OSError("disk full")

        agent.context.before = refuse
        with pytest.raises(OSError, match="disk full"):
            await agent.run()
        agent.context.before = None
        assert tool.cancelled == 1
        assert _pairs(agent) == (["a"], ["a"])
        await goes_on(agent)

    @pytest.mark.parametrize("how", ["!", "stop", "cancel"])
    @in_virtual_time
    async def test_a_deaf_provider_can_begin_nothing_after_its_call_was_cut(self, how: str) -> None:
        release, tool = asyncio.Event(), _harmless(echo("look"))
        deaf_step = streaming("so far", then=deaf(release, streaming(LOOK, then=_look())))
        agent = await make_agent(deaf_step, say("ok"), tools=[tool])
        run = agent.start()
        await agent.provider.asked(1)
        match how:
            case "!":
                agent.inject("!now")
            case "stop":
                agent.stop()
            case _:
                run.cancel()
        await soon(asyncio.wait([run]))
        release.set()
        for _ in range(10):
            await asyncio.sleep(0)
        assert tool.inputs == []
        assert run.cancelled() == (how == "cancel")
