"""Stopping a run, in two stages, at any instant: the log stays valid and the next run is not touched."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from agents import (
    Recorder,
    ScriptedProvider,
    Shelf,
    answer,
    call,
    deaf,
    deaf_tool,
    doing,
    echo,
    fail,
    faults,
    gated,
    make_agent,
    mount_watched_context,
    never,
    returning,
    say,
    soon,
    streaming,
    told,
    use,
)

from orchestrator_interactive import RunFinished
from orchestrator_interactive.kernel import AmplifierSession, HookResult
from orchestrator_interactive.kernel.errors import ProviderUnavailableError
from orchestrator_interactive.kernel.messages import TextBlock, ThinkingBlock, ToolCallBlock

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from agents import Agent, ScriptedTool

# Far longer than a test takes: a grace period that ends by itself would be a hang.
LONG_S = 600


async def _results(agent: Agent) -> dict[str, str]:
    return {row["tool_call_id"]: row["content"] for row in await agent.history() if row["role"] == "tool"}


async def _goes_on(agent: Agent) -> None:
    """The history is valid, and the next run works."""
    assert faults(await agent.history()) == []
    assert not agent.token.is_cancelled
    agent.provider.add(say("next answer"))
    assert await agent.run("next") == "next answer"
    assert agent.progress.of("complete")[-1]["status"] == "success"


def _soon_stop(agent: Callable[[], Agent]) -> Callable[[], object]:
    """Stop right after the step that is running now, before anybody has seen its outcome."""
    return lambda: asyncio.get_running_loop().call_soon(agent().stop)


async def test_a_stop_during_the_model_call_keeps_the_text_so_far() -> None:
    agent = await make_agent(streaming("Half a ", "sentence", then=never()))
    run = agent.start()
    await agent.provider.asked(1)
    assert agent.stop()
    assert await soon(run) == "Half a sentence"
    assert (await agent.told())[1:] == [("assistant", "Half a sentence")]
    assert agent.provider.cancelled == 1
    await _goes_on(agent)


async def test_a_stop_drops_unsigned_thinking_and_tool_calls_and_keeps_the_rest() -> None:
    blocks = (
        ThinkingBlock(thinking="signed", signature="s"),
        TextBlock(text="Whole."),
        ThinkingBlock(thinking="cut"),
        ToolCallBlock(id="a", name="echo", input={}),
    )
    agent = await make_agent(streaming(*blocks, " And a tail", then=never()), tools=[echo()])
    run = agent.start()
    await agent.provider.asked(1)
    agent.stop()
    assert await soon(run) == "Whole. And a tail"
    kept = (await agent.history())[-1]["content"]
    assert [block["type"] for block in kept] == ["thinking", "text", "text"]
    assert kept[0]["signature"] == "s"
    await _goes_on(agent)


async def test_text_whose_block_is_finished_is_kept_once() -> None:
    agent = await make_agent(streaming("Wh", "ole.", TextBlock(text="Whole."), then=never()))
    run = agent.start()
    await agent.provider.asked(1)
    agent.stop()
    assert await soon(run) == "Whole."


async def test_a_stop_before_the_model_said_anything_leaves_no_answer() -> None:
    agent = await make_agent(never())
    run = agent.start()
    await agent.provider.asked(1)
    agent.stop()
    assert await soon(run) == ""
    assert await agent.told() == [("user", "go")]
    await _goes_on(agent)


async def test_thinking_alone_is_not_kept() -> None:
    agent = await make_agent(streaming(ThinkingBlock(thinking="hm", signature="s"), then=never()))
    run = agent.start()
    await agent.provider.asked(1)
    agent.stop()
    await soon(run)
    assert await agent.told() == [("user", "go")]


async def test_blank_text_alone_is_not_kept() -> None:
    agent = await make_agent(streaming(" \n", then=never()))
    run = agent.start()
    await agent.provider.asked(1)
    agent.stop()
    await soon(run)
    await _goes_on(agent)


async def test_a_stop_at_the_instant_the_answer_is_whole_runs_none_of_its_tools() -> None:
    tool = echo()
    agent = await make_agent(doing(_soon_stop(lambda: agent), call(use("echo", "a"), text="I will")), tools=[tool])
    assert await agent.run() == "I will"
    assert tool.inputs == []
    await _goes_on(agent)


async def test_a_stop_at_the_instant_the_last_answer_is_whole_keeps_it_as_cancelled() -> None:
    agent = await make_agent(doing(_soon_stop(lambda: agent), say("all of it")))
    assert await agent.run() == "all of it"
    assert agent.progress.of("complete")[0]["status"] == "cancelled"
    await _goes_on(agent)


async def test_a_stop_while_the_provider_fails_is_a_stop() -> None:
    async def fails(request: Any, stream: Any) -> Any:
        agent.stop()
        return await fail(ProviderUnavailableError("down"))(request, stream)

    agent = await make_agent(fails)
    assert await agent.run() == ""
    await _goes_on(agent)


async def test_a_provider_that_answers_its_cancellation_is_not_shown_as_done() -> None:
    async def polite(_request: Any, _stream: Any) -> Any:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return await answer(TextBlock(text="in time"), ToolCallBlock(id="a", name="echo", input={}))(None, None)

    agent = await make_agent(polite, tools=[echo()])
    run = agent.start()
    await agent.provider.asked(1)
    agent.stop()
    assert await soon(run) == "in time"
    await _goes_on(agent)


async def test_a_deaf_provider_does_not_hold_the_run() -> None:
    release = asyncio.Event()
    agent = await make_agent(streaming("so far", then=deaf(release, say("late"))))
    run = agent.start()
    await agent.provider.asked(1)
    agent.stop()
    assert await soon(run) == "so far"
    await _goes_on(agent)
    before = await agent.told()
    release.set()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert await agent.told() == before


async def _stopped_in_tools(agent: Agent, tool: ScriptedTool, count: int = 1, *, immediate: bool = False) -> Any:
    run = agent.start()
    await tool.started(count)
    assert agent.stop(immediate=immediate)
    return run


async def test_a_running_tool_may_finish_within_the_grace_period() -> None:
    gate = asyncio.Event()
    tool = gated(gate)
    agent = await make_agent(call(use("wait", "a", text="done")), tools=[tool], stop_grace_s=LONG_S)
    run = await _stopped_in_tools(agent, tool)
    gate.set()
    await soon(run)
    assert await _results(agent) == {"a": "done"}
    assert len(agent.provider.requests) == 1
    await _goes_on(agent)


async def test_after_the_grace_period_a_running_tool_is_cancelled() -> None:
    tool = gated(asyncio.Event())
    agent = await make_agent(call(use("wait", "a")), tools=[tool], stop_grace_s=0)
    await soon(await _stopped_in_tools(agent, tool))
    assert tool.cancelled == 1
    assert "unknown" in (await _results(agent))["a"]
    await _goes_on(agent)


async def test_a_tool_that_waits_for_its_hook_is_not_started() -> None:
    gate, held, tool, other = asyncio.Event(), asyncio.Event(), gated(asyncio.Event(), "first"), echo("second")
    agent = await make_agent(call(use("first", "a"), use("second", "b")), tools=[tool, other], stop_grace_s=LONG_S)

    async def hold_second(_event: str, data: dict[str, Any]) -> HookResult:
        if data["tool_name"] == "second":
            held.set()
            await gate.wait()
        return HookResult()

    agent.hooks.register("tool:pre", hold_second)
    run = agent.start()
    await tool.started()
    await soon(held.wait())
    agent.stop()
    gate.set()
    agent.stop(immediate=True)
    await soon(run)
    assert other.inputs == []
    results = await _results(agent)
    assert "unknown" in results["a"]
    assert "Not started" in results["b"]
    await _goes_on(agent)


async def test_a_stop_at_the_announcement_of_a_tool_does_not_start_it() -> None:
    tool = echo()
    agent = await make_agent(call(use("echo", "a")), tools=[tool], stop_grace_s=LONG_S)
    agent.progress.act_on("tool:start", agent.stop)
    await agent.run()
    assert tool.inputs == []
    assert list(await _results(agent)) == ["a"]
    await _goes_on(agent)


async def test_a_tool_that_never_started_is_not_said_to_have_an_unknown_outcome() -> None:
    tool, gate = echo(), asyncio.Event()
    agent = await make_agent(call(use("echo", "a")), tools=[tool])
    agent.progress.hold("tool:start", gate)
    run = agent.start()
    await agent.progress.reached("tool:start")
    agent.stop(immediate=True)
    await soon(run)
    assert tool.inputs == []
    assert "unknown" not in (await _results(agent))["a"]


async def test_a_result_that_a_hook_still_looks_at_is_not_let_past_it() -> None:
    agent = await make_agent(call(use("give", "a")), tools=[returning("secret")])
    agent.events.listen(agent.hooks, "tool:post").hold("tool:post", asyncio.Event())
    run = agent.start()
    await agent.events.reached("tool:post")
    agent.stop(immediate=True)
    await soon(run)
    assert "secret" not in (await _results(agent))["a"]
    assert "It ended" in (await _results(agent))["a"]
    assert "secret" not in str(await agent.history())


async def test_an_answer_that_a_hook_still_looks_at_is_not_let_past_it() -> None:
    agent = await make_agent(say("secret"))
    agent.events.listen(agent.hooks, "provider:response").hold("provider:response", asyncio.Event())
    run = agent.start()
    await agent.events.reached("provider:response")
    agent.stop()
    assert await soon(run) == ""
    assert "secret" not in str(await agent.history())


async def test_an_immediate_stop_cancels_running_tools() -> None:
    tool = gated(asyncio.Event())
    agent = await make_agent(call(use("wait", "a"), use("wait", "b")), tools=[tool], stop_grace_s=LONG_S)
    await soon(await _stopped_in_tools(agent, tool, 2, immediate=True))
    assert tool.cancelled == 2
    assert list(await _results(agent)) == ["a", "b"]
    await _goes_on(agent)


async def test_a_second_stop_cancels_what_the_first_let_finish() -> None:
    tool = gated(asyncio.Event())
    agent = await make_agent(call(use("wait", "a")), tools=[tool], stop_grace_s=LONG_S)
    run = await _stopped_in_tools(agent, tool)
    assert tool.cancelled == 0
    assert agent.stop(immediate=True)
    await soon(run)
    assert tool.cancelled == 1
    await _goes_on(agent)


async def test_the_same_stop_twice_changes_nothing() -> None:
    gate = asyncio.Event()
    tool = gated(gate)
    agent = await make_agent(call(use("wait", "a", text="done")), tools=[tool], stop_grace_s=LONG_S)
    run = await _stopped_in_tools(agent, tool)
    assert not agent.stop()
    gate.set()
    await soon(run)
    assert await _results(agent) == {"a": "done"}


async def test_a_finished_result_stays_when_its_sibling_is_cancelled() -> None:
    tool = gated(asyncio.Event())
    agent = await make_agent(call(use("wait", "a"), use("echo", "b", text="done")), tools=[tool, echo()])
    run = agent.start()
    await tool.started()
    await agent.progress.reached("tool:end")
    agent.stop(immediate=True)
    await soon(run)
    results = await _results(agent)
    assert "unknown" in results["a"]
    assert results["b"] == "done"
    await _goes_on(agent)


async def test_a_tool_that_finishes_while_it_is_cancelled_keeps_its_result() -> None:
    async def behave(_input: dict[str, Any]) -> str:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return "rolled back"
        return "unreachable"

    tool = gated(asyncio.Event())
    tool._behave = behave
    agent = await make_agent(call(use("wait", "a")), tools=[tool])
    await soon(await _stopped_in_tools(agent, tool, immediate=True))
    assert await _results(agent) == {"a": "rolled back"}


async def test_a_deaf_tool_does_not_hold_the_run() -> None:
    release = asyncio.Event()
    tool = deaf_tool(release)
    agent = await make_agent(call(use("deaf", "a")), tools=[tool])
    await soon(await _stopped_in_tools(agent, tool, immediate=True))
    assert "unknown" in (await _results(agent))["a"]
    await _goes_on(agent)
    release.set()


async def test_a_tool_that_was_left_behind_reports_nothing_after_the_run() -> None:
    release = asyncio.Event()
    tool = deaf_tool(release)
    agent = await make_agent(call(use("deaf", "a")), tools=[tool])
    agent.events.listen(agent.hooks, "tool:post", "tool:error")
    await soon(await _stopped_in_tools(agent, tool, immediate=True))
    release.set()
    for _ in range(10):
        await asyncio.sleep(0)
    assert tool.finished == 1
    assert agent.progress.names()[-1] == "complete"
    assert agent.events.names() == ["tool:error"]


async def test_the_events_of_a_tool_that_was_cut_are_closed() -> None:
    tool = gated(asyncio.Event())
    agent = await make_agent(call(use("wait", "a")), tools=[tool])
    agent.events.listen(agent.hooks, "tool:pre", "tool:post", "tool:error")
    await soon(await _stopped_in_tools(agent, tool, immediate=True))
    assert agent.events.names() == ["tool:pre", "tool:error"]
    assert agent.progress.of("tool:end")[0]["success"] is False


@pytest.mark.parametrize("immediate", [False, True])
@pytest.mark.parametrize("event", ["execution:start", "prompt:submit", "provider:request"])
async def test_a_stop_before_the_model_is_asked_asks_it_nothing(event: str, *, immediate: bool) -> None:
    agent = await make_agent()
    agent.events.listen(agent.hooks, event).act_on(event, lambda: agent.stop(immediate=immediate))
    await agent.run()
    assert agent.provider.requests == []
    await _goes_on(agent)


async def test_a_stop_after_the_model_was_asked_for_tools_starts_none_and_answers_all() -> None:
    tool = echo()
    agent = await make_agent(call(use("echo", "a"), use("echo", "b")), tools=[tool], stop_grace_s=LONG_S)
    agent.events.listen(agent.hooks, "provider:response").act_on("provider:response", agent.stop)
    await agent.run()
    assert tool.inputs == []
    assert all("Not started" in text for text in (await _results(agent)).values())
    await _goes_on(agent)


async def test_a_stop_while_a_hook_looks_at_the_last_answer_takes_no_message_in() -> None:
    agent = await make_agent(say("all of it"), stop_grace_s=LONG_S)
    agent.events.listen(agent.hooks, "provider:response")
    agent.events.act_on("provider:response", lambda: [agent.inject("more"), agent.stop()])
    await agent.run()
    assert agent.progress.of("complete")[0].items() >= {"status": "cancelled", "waiting": 1}.items()
    await _goes_on(agent)


async def test_a_stop_between_tools_and_the_next_call_ends_the_run() -> None:
    agent = await make_agent(call(use("echo", "a")), tools=[echo()])
    agent.progress.act_on("tool:end", agent.stop)
    await agent.run()
    assert len(agent.provider.requests) == 1
    await _goes_on(agent)


async def test_a_stop_while_an_interim_answer_is_shown_ends_the_run_and_loses_no_message() -> None:
    agent = await make_agent(doing(lambda: agent.inject("more"), say("first")))
    agent.progress.act_on("text", agent.stop)
    await agent.run()
    assert len(agent.provider.requests) == 1
    await _goes_on(agent)
    assert "more" in "".join(text for _, text in told(agent.provider.sent(1)))


@pytest.mark.parametrize("event", ["prompt:submit", "provider:request", "provider:response"])
async def test_a_stop_while_a_person_is_asked_ends_the_run(event: str) -> None:
    asked = asyncio.Event()

    class Nobody:
        async def request_approval(self, *_: Any) -> str:
            asked.set()
            await asyncio.Event().wait()
            return "Deny"

    agent = await make_agent(say("ok"), approvals=Nobody())
    agent.on_hook(event, HookResult(action="ask_user", approval_prompt="May I?"))
    run = agent.start()
    await soon(asked.wait())
    agent.stop()
    done, _ = await asyncio.wait([run], timeout=0.5)
    run.cancel()
    assert done


async def test_a_stop_while_a_person_is_asked_about_a_tool_ends_the_run() -> None:
    asked = asyncio.Event()

    class Nobody:
        async def request_approval(self, *_: Any) -> str:
            asked.set()
            await asyncio.Event().wait()
            return "Deny"

    agent = await make_agent(call(use("echo", "a")), tools=[echo()], approvals=Nobody(), stop_grace_s=LONG_S)
    end = agent.on_hook("tool:pre", HookResult(action="ask_user", approval_prompt="May I?"))
    run = agent.start()
    await soon(asked.wait())
    agent.stop()
    await soon(run)
    end()
    assert "Not started" in (await _results(agent))["a"]
    await _goes_on(agent)


async def test_a_stop_requested_before_the_run_holds_for_it_and_only_for_it() -> None:
    agent = await make_agent()
    agent.token.request_graceful()
    assert await agent.run() == ""
    assert agent.provider.requests == []
    await _goes_on(agent)


async def test_a_stop_requested_while_the_session_starts_holds_for_the_run() -> None:
    async def mount_provider(coordinator: Any, _config: Any) -> None:
        await coordinator.mount("providers", ScriptedProvider(say("went on")))

    shelf: Any = Shelf(watched=mount_watched_context, scripted=mount_provider)
    plan = {"session": {"orchestrator": "loop-interactive", "context": "watched"}, "providers": ["scripted"]}
    session = AmplifierSession(plan, loader=shelf)
    starting = Recorder().listen(session.coordinator.hooks, "session:start")
    starting.act_on("session:start", session.coordinator.cancellation.request_graceful)
    assert await soon(session.execute("go")) == ""
    assert session.status.status == "cancelled"


@pytest.mark.parametrize("event", ["execution:end", "orchestrator:complete"])
async def test_a_stop_while_the_end_is_reported_does_not_reach_the_next_run(event: str) -> None:
    agent = await make_agent(say("ok"))
    agent.events.listen(agent.hooks, event).act_on(event, lambda: [agent.stop(), agent.token.request_graceful()])
    assert await agent.run() == "ok"
    await _goes_on(agent)


async def test_a_stop_after_the_run_has_ended_does_nothing() -> None:
    agent = await make_agent(say("ok"))
    await agent.run()
    assert not agent.stop()
    assert not agent.stop(immediate=True)
    await _goes_on(agent)


async def test_a_message_after_a_stopped_run_is_refused() -> None:
    agent = await make_agent(never())
    run = agent.start()
    await agent.provider.asked(1)
    agent.stop()
    await soon(run)
    with pytest.raises(RunFinished):
        agent.inject("late")


async def test_a_stop_is_reported_with_its_stage() -> None:
    agent = await make_agent(never())
    agent.events.listen(agent.hooks, "cancel:requested", "cancel:completed")
    run = agent.start()
    await agent.provider.asked(1)
    agent.stop(immediate=True)
    await soon(run)
    seen = [(name, data.get("immediate", data.get("was_immediate"))) for name, data in agent.events.seen]
    assert seen == [("cancel:requested", True), ("cancel:completed", True)]
    assert agent.session.status.status == "cancelled"


async def test_a_stop_ends_a_run_whose_log_hangs_while_it_takes_the_calls() -> None:
    tool = echo()
    agent = await make_agent(call(use("echo", "a")), tools=[tool], stop_grace_s=0)
    writing = asyncio.Event()

    async def hang(row: dict[str, Any]) -> None:
        if row["role"] == "assistant":
            writing.set()
            await asyncio.Event().wait()

    agent.context.before = hang
    run = agent.start()
    await soon(writing.wait())
    agent.stop()
    assert await soon(run) == ""
    assert tool.inputs == []
    assert agent.progress.of("complete")[0]["status"] == "cancelled"
