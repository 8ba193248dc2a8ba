"""A side-effect-free tool starts while the answer is still streamed, and is dropped if the answer fails or changes."""

import asyncio
from typing import Any

import pytest
from agents.after_run import delivered, goes_on, late_results, results
from agents.milestones import LONG_S, soon
from agents.provider import answer, call, deaf, doing, fail, never, say, streaming, use
from agents.rows import told
from agents.session import Agent, make_agent
from agents.tools import Person, ScriptedTool, echo, gated, having, raising
from loop_rows import STILL_RUNNING
from virtual_time import in_virtual_time

from orchestrator_interactive import Injection
from orchestrator_interactive.kernel import HookResult
from orchestrator_interactive.kernel.contracts.errors import ProviderUnavailableError
from orchestrator_interactive.kernel.contracts.messages import TextBlock, ThinkingBlock, ToolCall, ToolCallBlock

LOOK = ToolCallBlock(id="a", name="look", input={"text": "seen"})
HM = TextBlock(text="hm")
DOWN = ProviderUnavailableError("down")


def _whole(*blocks: Any) -> Any:
    """Stream the blocks, then answer with them."""
    return streaming(*blocks, then=answer(*blocks))


def _look() -> ScriptedTool:
    return having(echo("look"), side_effect_free=True)


def _held_look(gate: asyncio.Event | None = None) -> ScriptedTool:
    return having(gated(gate or asyncio.Event(), "look"), side_effect_free=True)


def _pairs(agent: Agent) -> tuple[list[str], list[str]]:
    """The ids of the start events and of the end events."""
    begun, ended = ([data["id"] for data in agent.progress.of(f"tool:{event}")] for event in ("start", "end"))
    return sorted(begun), sorted(ended)


class TestTheStart:
    async def test_it_begins_before_the_answer_is_complete_and_its_result_is_used(self) -> None:
        gate, tool = asyncio.Event(), _look()
        agent = await make_agent(streaming(LOOK, gate, then=answer(LOOK)), say("ok"), tools=[tool])
        agent.events.listen(agent.hooks, "tool:pre", "tool:post", "provider:response")
        run = await agent.in_tool(tool)
        assert await agent.told() == [("user", "go")]
        gate.set()
        assert await soon(run) == "ok"
        assert tool.inputs == [{"text": "seen"}]
        assert await results(agent) == {"a": "seen"}
        assert agent.events.names() == ["tool:pre", "tool:post", "provider:response", "provider:response"]
        assert _pairs(agent) == (["a"], ["a"])

    async def test_one_that_still_runs_when_the_answer_is_complete_continues(self) -> None:
        gate = asyncio.Event()
        tool = _held_look(gate)
        agent = await make_agent(_whole(LOOK), say("ok"), tools=[tool])
        agent.context.act("after", lambda row: row["role"] == "assistant" and gate.set())
        assert await agent.run() == "ok"
        assert len(tool.inputs) == 1
        assert await results(agent) == {"a": "seen"}

    @pytest.mark.parametrize("attributes", [{"side_effect_free": False}, {}])
    async def test_one_with_side_effects_begins_when_its_call_is_committed(self, attributes: dict[str, Any]) -> None:
        agent = await make_agent(_whole(LOOK), say("ok"), tools=[having(echo("look"), **attributes)])
        agent.events.listen(agent.hooks, "tool:pre", "provider:response")
        await agent.run()
        assert agent.events.names()[:2] == ["provider:response", "tool:pre"]
        assert await results(agent) == {"a": "seen"}

    async def test_its_result_is_committed_first_and_those_of_other_tools_follow(self) -> None:
        calls = [ToolCallBlock(id=i, name="look" if i == "b" else "do", input={"text": i}) for i in "abc"]
        agent = await make_agent(_whole(TextBlock(text="Let me. "), *calls), say("ok"), tools=[echo("do"), _look()])
        await agent.run()
        assert list((await results(agent)).items()) == [("b", "b"), ("a", "a"), ("c", "c")]
        assert [data["id"] for data in agent.progress.of("tool:start")] == ["b", "a", "c"]
        assert agent.provider.prefix_breaks() == []

    @pytest.mark.parametrize(
        ("tool", "result"),
        [
            (raising(OSError("no disk"), "look"), "no disk"),
            (echo("other"), "There is no tool 'look'"),
            (_look(), "Denied: private"),
        ],
        ids=["failed", "unknown", "denied"],
    )
    async def test_a_failed_unknown_or_denied_call_has_its_result(self, tool: ScriptedTool, result: str) -> None:
        agent = await make_agent(_whole(LOOK), say("ok"), tools=[having(tool, side_effect_free=True)])
        if result.startswith("Denied"):
            agent.on_hook("tool:pre", HookResult(action="deny", reason="private"))
        assert await agent.run() == "ok"
        assert (await results(agent))["a"].startswith(result)
        assert len(tool.inputs) == (result == "no disk")

    async def test_injections_of_its_hooks_follow_all_results(self) -> None:
        agent = await make_agent(_whole(LOOK), say("ok"), tools=[_look()])
        agent.on_hook("tool:pre", HookResult(action="inject_context", context_injection="noted"))
        await agent.run()
        assert [role for role, _ in told(agent.provider.sent(1))] == ["user", "assistant", "tool", "system"]

    async def test_no_tool_starts_during_a_forced_answer(self) -> None:
        tool = _look()
        steps = call(use("dispatch_worker", "w")), _whole(TextBlock(text="on it"), LOOK)
        agent = await make_agent(*steps, tools=[tool, echo("dispatch_worker")])
        assert await agent.run() == "on it"
        assert tool.inputs == []

    @pytest.mark.parametrize(
        ("steps", "expected"),
        [
            ([_whole(LOOK, LOOK.model_copy(update={"input": {"text": "again"}}))], ["again", "seen"]),
            ([_whole(LOOK), _whole(LOOK)], ["seen", "seen"]),
            ([_whole(LOOK.model_copy(update={"id": ""}))], ["seen"]),
            ([_whole(LOOK.model_copy(update={"id": " "}))], ["seen"]),
            ([answer(LOOK)], ["seen"]),
        ],
        ids=["twice in an answer", "twice in a run", "blank", "space", "not streamed"],
    )
    async def test_each_call_is_made_once_whatever_its_id(self, steps: list[Any], expected: list[str]) -> None:
        tool = _look()
        agent = await make_agent(*steps, say("ok"), tools=[tool])
        assert await agent.run() == "ok"
        assert sorted((await results(agent)).values()) == expected
        assert set(agent.outcomes().values()) == {"finished"}
        assert len(agent.outcomes()) == tool.finished == len(expected)
        await goes_on(agent)


class TestAnUrgentMessage:
    @pytest.mark.parametrize("finished", [False, True])
    async def test_in_mid_stream_it_keeps_the_call_that_has_begun_and_the_text(self, *, finished: bool) -> None:
        gate = asyncio.Event()
        tool = _held_look(gate)
        signed, cut = ThinkingBlock(thinking="hm", signature="s"), ToolCallBlock(id="b", name="do", input={})
        step = streaming(signed, "I will", TextBlock(text="I will"), LOOK, cut, " and", then=never())
        agent = await make_agent(step, say("meanwhile"), say("done"), tools=[tool, echo("do")])
        run = await agent.in_tool(tool)
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
        assert (len(tool.inputs), tool.cancelled) == (1, 0)
        assert agent.provider.prefix_breaks() == []
        await goes_on(agent)

    async def test_after_it_a_call_of_the_next_answer_may_begin_early_again(self) -> None:
        gate, tool = asyncio.Event(), _look()
        again = ToolCallBlock(id="b", name="look", input={"text": "again"})
        steps = streaming(LOOK, then=never()), streaming(again, gate, then=answer(again)), say("ok")
        agent = await make_agent(*steps, tools=[tool])
        run = agent.start()
        await agent.progress.reached("tool:end")
        agent.inject("!now")
        await tool.started(2)
        gate.set()
        assert await soon(run) == "ok"
        assert await results(agent) == {"a": "seen", "b": "again"}

    async def test_from_the_last_step_of_an_answer_it_harms_no_early_call(self) -> None:
        gate = asyncio.Event()
        tool = _held_look(gate)
        step = streaming(LOOK, then=doing(lambda: agent.inject("!now"), answer(HM, LOOK)))
        agent = await make_agent(step, say("meanwhile"), say("done"), tools=[tool])
        run = await agent.asked(2)
        gate.set()
        await soon(run)
        assert (len(tool.inputs), tool.cancelled) == (1, 0)
        await goes_on(agent)

    async def test_it_does_not_approve_an_early_call(self) -> None:
        tool, person = _look(), Person()
        steps = streaming(LOOK, then=never()), say("meanwhile"), say("done")
        agent = await make_agent(*steps, tools=[tool], approvals=person)
        agent.on_hook("tool:pre", HookResult(action="ask_user", approval_prompt="Look?"))
        run = agent.start()
        await soon(person.asked.wait())
        agent.inject("!yes")
        await agent.progress.reached("text")
        assert tool.inputs == []
        person.answer.set_result("Allow")
        assert await soon(run) == "done"
        assert len(tool.inputs) == 1


class TestAFailedAnswer:
    @pytest.mark.parametrize("finished", [False, True])
    async def test_its_call_leaves_no_row_and_its_events_are_closed(self, *, finished: bool) -> None:
        gate, broken = asyncio.Event(), asyncio.Event()
        tool = _held_look(gate)
        step = streaming("I will", LOOK, broken, then=fail(DOWN))
        agent = await make_agent(step, say("ok"), tools=[tool], retry_base_delay_s=0)
        agent.events.listen(agent.hooks, "tool:pre", "tool:post", "tool:error")
        run = await agent.in_tool(tool)
        if finished:
            gate.set()
            await agent.progress.reached("tool:end")
        broken.set()
        assert await soon(run) == "ok"
        assert await agent.told() == [("user", "go"), ("assistant", "ok")]
        assert _pairs(agent) == (["a"], ["a"])
        assert agent.events.names() == ["tool:pre", "tool:post" if finished else "tool:error"]
        assert agent.outcomes() == {"a": "finished" if finished else "cancelled"}
        assert agent.token.running_tools == set()

    @pytest.mark.parametrize(
        "again",
        [LOOK, LOOK.model_copy(update={"id": "b"}), LOOK.model_copy(update={"input": {"text": "more"}})],
        ids=["the same", "with another id", "with another input"],
    )
    async def test_a_call_that_the_next_attempt_makes_is_a_new_one_and_is_reported_once(
        self, again: ToolCallBlock
    ) -> None:
        gate, broken = asyncio.Event(), asyncio.Event()
        tool = _held_look(gate)
        steps = streaming(LOOK, broken, then=fail(DOWN)), _whole(again), say("ok")
        agent = await make_agent(*steps, tools=[tool], retry_base_delay_s=0)
        run = await agent.in_tool(tool)
        broken.set()
        await tool.started(2)
        gate.set()
        assert await soon(run) == "ok"
        assert await results(agent) == {again.id: again.input["text"]}
        assert (tool.cancelled, tool.finished) == (1, 1)
        assert agent.outcomes() == {again.id: "finished"}
        await goes_on(agent)

    async def test_a_call_that_is_not_made_again_is_reported_beside_the_others(self) -> None:
        other = ToolCallBlock(id="b", name="look", input={"text": "other"})
        steps = streaming(LOOK, then=fail(DOWN)), answer(other), say("ok")
        agent = await make_agent(*steps, tools=[_look()], retry_base_delay_s=0)
        assert await agent.run() == "ok"
        assert list(agent.outcomes()) == ["a", "b"]

    async def test_a_stop_while_it_is_made_again_reports_it_once(self) -> None:
        tool, broken = _held_look(), asyncio.Event()
        again = LOOK.model_copy(update={"id": "b"})
        steps = streaming(LOOK, broken, then=fail(DOWN)), streaming(again, then=never())
        agent = await make_agent(*steps, tools=[tool], retry_base_delay_s=0)
        run = await agent.in_tool(tool)
        broken.set()
        await tool.started(2)
        await agent.stopped(run)
        assert agent.outcomes() == {"b": "cancelled"}


class TestAnAnswerThatDoesNotStand:
    @pytest.mark.parametrize("how", ["graceful", "immediate", "cancel"])
    async def test_a_stop_in_mid_stream_cancels_the_call_and_leaves_no_row(self, how: str) -> None:
        tool = _held_look()
        agent = await make_agent(streaming("I will", LOOK, then=never()), tools=[tool], stop_grace_s=LONG_S)
        before = asyncio.all_tasks()
        run = await agent.in_tool(tool)
        if how == "cancel":
            run.cancel()
        else:
            agent.stop(immediate=how == "immediate")
        await soon(asyncio.wait([run]))
        assert (await agent.told())[1:] == [("assistant", "I will")]
        assert tool.cancelled == 1
        assert asyncio.all_tasks() == before
        assert _pairs(agent) == (["a"], ["a"])
        assert agent.outcomes() == {"a": "cancelled"}
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
    async def test_when_a_hook_changes_the_calls_its_calls_are_made_and_the_early_one_ends_first(
        self, calls: list[ToolCall], inputs: list[str], left: dict[str, str]
    ) -> None:
        gate = asyncio.Event()
        tool = _held_look(gate)
        agent = await make_agent(_whole(HM, LOOK), say("ok"), tools=[tool, echo("do")])

        def change(data: dict[str, Any]) -> HookResult | None:
            response = data["response"]
            if not response.tool_calls:
                return None
            if not calls:
                agent.inject("more")
            blocks = [ToolCallBlock(id=c.id, name=c.name, input=c.arguments) for c in calls]
            changed = {"content": [HM, *blocks], "tool_calls": calls}
            return HookResult(action="modify", data={"response": response.model_copy(update=changed)})

        agent.on_hook("provider:response", change)
        agent.progress.act_on("tool:end", gate.set)
        assert await agent.run() == "ok"
        assert [given["text"] for given in tool.inputs][1:] == inputs
        assert tool.cancelled == 1
        assert await results(agent) == left
        assert _pairs(agent)[0] == _pairs(agent)[1]
        if not calls:
            assert agent.progress.names()[2:5] == ["tool:start", "tool:end", "text"]
        await goes_on(agent)

    @pytest.mark.parametrize("how", ["denied", "not committed"])
    async def test_an_answer_that_is_denied_or_not_committed_ends_its_early_calls(self, how: str) -> None:
        tool = _held_look()
        agent = await make_agent(_whole(LOOK), tools=[tool])
        if how == "denied":
            end = agent.on_hook("provider:response", HookResult(action="deny", reason="no"))
            await agent.run()
            end()
        else:
            agent.context.refuse(lambda row: row["role"] == "assistant")
            with pytest.raises(OSError, match="disk full"):
                await agent.run()
            agent.context.accept()
        assert tool.cancelled == 1
        assert await agent.told() == [("user", "go")]
        assert _pairs(agent) == (["a"], ["a"])
        await goes_on(agent)

    @pytest.mark.parametrize("how", ["urgent message", "stop", "cancel"])
    @in_virtual_time
    async def test_a_provider_that_ignores_its_cancellation_can_start_nothing_afterwards(self, how: str) -> None:
        release, tool = asyncio.Event(), _look()
        agent = await make_agent(streaming("so far", then=deaf(release, _whole(LOOK))), say("ok"), tools=[tool])
        run = await agent.asked()
        match how:
            case "urgent message":
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
