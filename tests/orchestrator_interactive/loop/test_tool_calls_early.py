"""A tool without side effects begins while the answer is still on its way, and nothing else differs."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from agents import (
    answer,
    call,
    delivered,
    doing,
    echo,
    faults,
    gated,
    goes_on,
    having,
    late_results,
    make_agent,
    never,
    raising,
    results,
    say,
    soon,
    streaming,
    told,
    use,
)

from orchestrator_interactive import Injection
from orchestrator_interactive.kernel import HookResult
from orchestrator_interactive.kernel.contracts.messages import TextBlock, ThinkingBlock, ToolCallBlock
from orchestrator_interactive.loop.tool_results import STILL_RUNNING

if TYPE_CHECKING:
    from typing import Any

    from agents import Agent, ScriptedTool

LOOK = ToolCallBlock(id="a", name="look", input={"text": "seen"})


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


class TestTheBeginning:
    async def test_it_begins_before_the_answer_is_complete_and_its_result_is_used(self) -> None:
        gate, tool = asyncio.Event(), _harmless(echo("look"))
        agent = await make_agent(streaming(LOOK, gate, then=_look()), say("ok"), tools=[tool])
        _listen(agent)
        run = agent.start()
        await tool.started()
        assert await agent.told() == [("user", "go")]
        gate.set()
        assert await soon(run) == "ok"
        assert tool.inputs == [{"text": "seen"}]
        assert await results(agent) == {"a": "seen"}
        assert agent.events.names() == ["tool:pre", "tool:post", "provider:response", "provider:response"]
        assert _pairs(agent) == (["a"], ["a"])

    async def test_one_that_is_still_at_work_when_the_answer_is_complete_goes_on(self) -> None:
        gate = asyncio.Event()
        tool = _harmless(gated(gate, "look"))
        agent = await make_agent(streaming(LOOK, then=_look()), say("ok"), tools=[tool])
        run = agent.start()

        async def after_row(row: dict[str, Any]) -> None:
            if row["role"] == "assistant":
                gate.set()

        agent.context.after = after_row
        assert await soon(run) == "ok"
        assert len(tool.inputs) == 1
        assert await results(agent) == {"a": "seen"}

    @pytest.mark.parametrize("free", [False, None])
    async def test_one_with_side_effects_begins_when_its_call_is_committed(self, *, free: bool | None) -> None:
        gate, tool = asyncio.Event(), echo("look")
        if free is not None:
            having(tool, side_effect_free=free)
        agent = await make_agent(streaming(LOOK, gate, then=_look()), say("ok"), tools=[tool])
        _listen(agent)
        run = agent.start()
        await agent.provider.asked(1)
        gate.set()
        await soon(run)
        assert agent.events.names()[:2] == ["provider:response", "tool:pre"]
        assert await results(agent) == {"a": "seen"}

    async def test_its_result_stands_at_once_and_those_of_other_tools_follow(self) -> None:
        calls = [ToolCallBlock(id=i, name=name, input={"text": i}) for i, name in zip("abc", ["do", "look", "do"])]  # noqa: B905
        tools = [echo("do"), _harmless(echo("look"))]
        agent = await make_agent(streaming("Let me. ", *calls, then=answer(*calls)), say("ok"), tools=tools)
        await agent.run()
        assert list((await results(agent)).items()) == [("b", "b"), ("a", "a"), ("c", "c")]
        assert [data["id"] for data in agent.progress.of("tool:start")] == ["b", "a", "c"]
        assert agent.provider.prefix_breaks() == []

    async def test_a_failure_is_a_failed_call(self) -> None:
        tools = [_harmless(raising(OSError("no disk"), "look"))]
        agent = await make_agent(streaming(LOOK, then=_look()), say("ok"), tools=tools)
        assert await agent.run() == "ok"
        assert await results(agent) == {"a": "no disk"}

    async def test_one_that_a_hook_denies_does_not_run(self) -> None:
        tool = _harmless(echo("look"))
        agent = await make_agent(streaming(LOOK, then=_look()), say("ok"), tools=[tool])
        agent.on_hook("tool:pre", HookResult(action="deny", reason="private"))
        assert await agent.run() == "ok"
        assert tool.inputs == []
        assert await results(agent) == {"a": "Denied: private"}

    async def test_what_hooks_wish_follows_all_results(self) -> None:
        agent = await make_agent(streaming(LOOK, then=_look()), say("ok"), tools=[_harmless(echo("look"))])
        agent.on_hook("tool:pre", HookResult(action="inject_context", context_injection="noted"))
        await agent.run()
        assert [role for role, _ in told(agent.provider.sent(1))] == ["user", "assistant", "tool", "system"]

    async def test_an_unknown_tool_is_told_to_the_model(self) -> None:
        unknown = ToolCallBlock(id="a", name="peek", input={})
        agent = await make_agent(streaming(unknown, then=answer(unknown)), say("ok"), tools=[_harmless(echo("look"))])
        assert await agent.run() == "ok"
        assert "no tool 'peek'" in (await results(agent))["a"]

    async def test_a_call_that_must_not_be_does_not_begin(self) -> None:
        tool = _harmless(echo("look"))
        steps = call(use("dispatch_worker", "w")), streaming(LOOK, then=_look(TextBlock(text="on it")))
        agent = await make_agent(*steps, tools=[tool, echo("dispatch_worker")])
        assert await agent.run() == "on it"
        assert tool.inputs == []

    async def test_a_provider_that_tells_of_no_blocks_loses_nothing(self) -> None:
        tool = _harmless(echo("look"))
        agent = await make_agent(_look(), say("ok"), tools=[tool])
        assert await agent.run() == "ok"
        assert await results(agent) == {"a": "seen"}

    async def test_two_calls_with_one_id_both_have_a_result(self) -> None:
        tool = _harmless(echo("look"))
        twice = LOOK, ToolCallBlock(id="a", name="look", input={"text": "again"})
        agent = await make_agent(streaming(*twice, then=answer(*twice)), say("ok"), tools=[tool])
        assert await agent.run() == "ok"
        assert sorted((await results(agent)).values()) == ["again", "seen"]
        assert tool.finished == 2

    @pytest.mark.parametrize("blank", ["", " "])
    async def test_a_call_with_a_blank_id_is_made_once(self, blank: str) -> None:
        tool = _harmless(echo("look"))
        nameless = ToolCallBlock(id=blank, name="look", input={"text": "seen"})
        agent = await make_agent(streaming(nameless, then=answer(nameless)), say("ok"), tools=[tool])
        assert await agent.run() == "ok"
        assert len(tool.inputs) == 1
        assert await results(agent) == {"call": "seen"}

    async def test_an_id_of_an_earlier_answer_gets_another_name_and_one_result(self) -> None:
        tool = _harmless(echo("look"))
        agent = await make_agent(streaming(LOOK, then=_look()), streaming(LOOK, then=_look()), say("ok"), tools=[tool])
        assert await agent.run() == "ok"
        assert len(await results(agent)) == 2
        assert tool.finished == 2
        await goes_on(agent)


class TestAnUrgentMessage:
    @pytest.mark.parametrize("finished", [False, True])
    async def test_in_mid_stream_it_keeps_the_call_that_has_begun_and_the_text(self, *, finished: bool) -> None:
        gate = asyncio.Event()
        tool = _harmless(gated(gate, "look"))
        signed = ThinkingBlock(thinking="hm", signature="s")
        cut = ToolCallBlock(id="b", name="do", input={})
        step = streaming(signed, "I will", TextBlock(text="I will"), LOOK, cut, " and", then=never())
        agent = await make_agent(step, say("meanwhile"), say("done"), tools=[tool, echo("do")])
        run = agent.start()
        await tool.started()
        if finished:
            gate.set()
            await agent.progress.reached("tool:end")
        agent.inject(Injection("!now", id="1"))
        await agent.provider.asked(2)
        gate.set()
        await soon(run)
        rows = await agent.history()
        assert [block["type"] for block in rows[1]["content"]] == ["thinking", "text", "tool_call", "text"]
        assert await results(agent) == {"a": "seen" if finished else STILL_RUNNING}
        assert len(await late_results(agent)) == (not finished)
        assert await delivered(agent) == ["1"]
        assert agent.progress.of("text")[0] == {"text": "I will and", "part": 1, "partial": True}
        assert len(tool.inputs) == 1
        assert tool.cancelled == 0
        assert agent.provider.prefix_breaks() == []
        await goes_on(agent)

    async def test_after_it_a_call_of_the_next_answer_may_begin_early_again(self) -> None:
        gate, tool = asyncio.Event(), _harmless(echo("look"))
        again = ToolCallBlock(id="b", name="look", input={"text": "again"})
        steps = streaming(LOOK, then=never()), streaming(again, gate, then=answer(again)), say("ok")
        agent = await make_agent(*steps, tools=[tool])
        run = agent.start()
        await agent.progress.reached("tool:end")
        agent.inject("!now")
        await tool.started(2)
        assert faults(await agent.history()) == []
        gate.set()
        assert await soon(run) == "ok"
        assert await results(agent) == {"a": "seen", "b": "again"}

    async def test_from_the_last_step_of_an_answer_it_harms_no_early_call(self) -> None:
        gate = asyncio.Event()
        tool = _harmless(gated(gate, "look"))
        step = streaming(LOOK, then=doing(lambda: agent.inject("!now"), _look(TextBlock(text="hm"))))
        agent = await make_agent(step, say("meanwhile"), say("done"), tools=[tool])
        run = agent.start()
        await agent.provider.asked(2)
        gate.set()
        await soon(run)
        assert tool.cancelled == 0
        assert len(tool.inputs) == 1
        await goes_on(agent)

    async def test_while_a_person_is_asked_about_an_early_call_it_approves_nothing(self) -> None:
        asked, allowed = asyncio.Event(), asyncio.Event()

        class Person:
            async def request_approval(self, *_: Any) -> str:
                asked.set()
                await allowed.wait()
                return "Allow"

        tool = _harmless(echo("look"))
        agent = await make_agent(
            streaming(LOOK, then=never()), say("meanwhile"), say("done"), tools=[tool], approvals=Person()
        )
        agent.on_hook("tool:pre", HookResult(action="ask_user", approval_prompt="Look?"))
        run = agent.start()
        await soon(asked.wait())
        agent.inject("!yes")
        await agent.progress.reached("text")
        assert tool.inputs == []
        allowed.set()
        assert await soon(run) == "done"
        assert len(tool.inputs) == 1
