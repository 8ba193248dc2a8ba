"""A tool without side effects begins while the answer is still on its way, and nothing else differs.

A call that began early, and that no answer asks for after all: it leaves nothing behind."""

import asyncio
from typing import Any

import pytest
from agents import (
    Agent,
    ScriptedTool,
    answer,
    call,
    deaf,
    delivered,
    doing,
    echo,
    fail,
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
from virtual_time import in_virtual_time

from orchestrator_interactive import Injection
from orchestrator_interactive.kernel import HookResult
from orchestrator_interactive.kernel.contracts.errors import ProviderUnavailableError
from orchestrator_interactive.kernel.contracts.messages import TextBlock, ThinkingBlock, ToolCall, ToolCallBlock
from orchestrator_interactive.loop.tool_results import STILL_RUNNING

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
        assert agent.progress.of("text")[0] == {"text": "I will and", "part": 1, "cut": True}
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


# Far longer than a test takes: a grace period that ends by itself would be a hang.
LONG_S = 600


DOWN = ProviderUnavailableError("down")


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
