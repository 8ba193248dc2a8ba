"""The events that mark the boundaries of a run come exactly once on every path.

What a run tells whoever watches it, and in which order.

Notices wait for the next run; they never reach the running one, and none is lost."""

import asyncio
from typing import Any

import pytest
from agents import Agent, after, call, echo, fail, make_agent, never, raising, returning, say, soon, told, use
from structlog.testing import capture_logs

from orchestrator_interactive import InteractiveOrchestrator
from orchestrator_interactive.kernel import HookRegistry, HookResult
from orchestrator_interactive.kernel.contracts.errors import ProviderUnavailableError
from orchestrator_interactive.modules.context_simple import ContextOptions, SimpleContext

BOUNDARIES = ("execution:start", "execution:end", "orchestrator:complete")


async def _agent(*steps: Any, **more: Any) -> Agent:
    agent = await make_agent(*steps, **more)
    agent.events.listen(agent.hooks, *BOUNDARIES)
    return agent


def _ended(agent: Agent) -> tuple[str, str, str]:
    """The response and status of `execution:end`, the status of `orchestrator:complete`."""
    assert agent.events.names() == list(BOUNDARIES)
    [end], [complete] = agent.events.of("execution:end"), agent.events.of("orchestrator:complete")
    assert complete["orchestrator"] == "loop-interactive"
    return end["response"], end["status"], complete["status"]


async def test_a_run_that_succeeds() -> None:
    agent = await _agent(call(use("echo", "a")), say("ok"), tools=[echo()])
    await agent.run("hello")
    assert _ended(agent) == ("ok", "completed", "success")
    assert agent.events.of("execution:start")[0]["prompt"] == "hello"
    assert agent.events.of("orchestrator:complete")[0]["turn_count"] == 2


async def test_a_run_that_fails() -> None:
    agent = await _agent(fail(ProviderUnavailableError("down")), max_retries=0)
    with pytest.raises(ProviderUnavailableError):
        await agent.run()
    assert _ended(agent) == ("", "error", "incomplete")


async def test_a_run_that_is_stopped() -> None:
    agent = await _agent(never())
    run = agent.start()
    await agent.provider.asked(1)
    agent.stop()
    await soon(run)
    assert _ended(agent) == ("", "cancelled", "cancelled")


async def test_a_run_that_is_stopped_before_it_starts() -> None:
    agent = await _agent()
    agent.token.request_immediate()
    await agent.run()
    assert _ended(agent) == ("", "cancelled", "cancelled")
    assert agent.events.of("orchestrator:complete")[0]["turn_count"] == 0


async def test_a_run_whose_task_is_cancelled() -> None:
    agent = await _agent(never())
    run = agent.start()
    await agent.provider.asked(1)
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    assert _ended(agent) == ("", "cancelled", "cancelled")


async def test_a_run_whose_prompt_is_denied() -> None:
    agent = await _agent()
    agent.on_hook("prompt:submit", HookResult(action="deny", reason="not on Sundays"))
    assert "not on Sundays" in await agent.run()
    assert _ended(agent)[1:] == ("completed", "incomplete")


async def test_a_run_whose_context_fails() -> None:
    agent = await _agent(say("ok"))

    async def refuse(_row: Any) -> None:
        raise OSError("disk full")

    agent.context.before = refuse
    with pytest.raises(OSError, match="disk full"):
        await agent.run()
    assert _ended(agent) == ("", "error", "incomplete")


async def test_a_run_whose_provider_is_not_there() -> None:
    agent = await _agent(default_provider="absent")
    with pytest.raises(RuntimeError):
        await agent.run()
    assert _ended(agent) == ("", "error", "incomplete")


async def test_a_run_that_is_cancelled_while_its_end_is_reported() -> None:
    agent = await _agent(say("ok"))
    gate = asyncio.Event()
    agent.events.hold("execution:end", gate)
    run = agent.start()
    await agent.events.reached("execution:end")
    run.cancel()
    await asyncio.sleep(0)
    gate.set()
    await asyncio.wait([run])
    assert agent.events.names() == list(BOUNDARIES)


async def test_a_run_reports_its_own_turns_while_the_next_one_begins() -> None:
    held, gate = asyncio.Event(), asyncio.Event()
    agent = await _agent(call(use("echo", "a")), say("one"), after(gate, say("two")), tools=[echo()])
    agent.events.hold("execution:end", held)
    first = agent.start()
    await agent.events.reached("execution:end")
    second = agent.start()
    for _ in range(20):
        await asyncio.sleep(0)
    held.set()
    gate.set()
    await soon(asyncio.gather(first, second, return_exceptions=True))
    assert agent.events.of("orchestrator:complete")[0]["turn_count"] == 2


async def test_execution_start_comes_before_anything_else() -> None:
    agent = await make_agent(say("ok"))
    agent.events.listen(agent.hooks, "execution:start", "prompt:submit", "provider:request", "provider:response")
    await agent.run()
    assert agent.events.names() == ["execution:start", "prompt:submit", "provider:request", "provider:response"]


async def test_provider_events_carry_request_and_response() -> None:
    agent = await make_agent(say("ok"))
    agent.events.listen(agent.hooks, "provider:request", "provider:response")
    await agent.run()
    [request], [response] = agent.events.of("provider:request"), agent.events.of("provider:response")
    assert request["provider"] == response["provider"] == "scripted"
    assert request["messages"][0]["content"] == "go"
    assert response["response"].text == "ok"
    assert response["usage"].total_tokens == 2


async def test_tool_events_carry_call_and_result() -> None:
    agent = await make_agent(call(use("echo", "a", text="x")), say("ok"), tools=[echo()])
    agent.events.listen(agent.hooks, "tool:pre", "tool:post")
    await agent.run()
    [pre], [post] = agent.events.of("tool:pre"), agent.events.of("tool:post")
    assert pre.items() >= {"tool_name": "echo", "tool_input": {"text": "x"}}.items()
    assert post["tool_result"].output == "x"


async def test_the_loop_declares_its_own_events() -> None:
    agent = await make_agent()
    assert ["injection:applied", "provider:fallback"] in await agent.coordinator.collect_contributions(
        "observability.events"
    )


async def test_the_loop_runs_without_a_coordinator() -> None:
    hooks = HookRegistry()
    agent = await make_agent(call(use("echo", "a")), say("ok"))
    orchestrator, context = InteractiveOrchestrator({}), SimpleContext(ContextOptions(), hooks)
    orchestrator.inject_message("more")
    answer = await orchestrator.execute("go", context, {"p": agent.provider}, {"echo": echo()}, hooks)
    assert answer == "ok"
    assert [row["role"] for row in await context.get_messages()] == ["user", "user", "assistant", "tool", "assistant"]
    assert not orchestrator.stop()


async def test_an_end_that_cannot_be_told_is_logged_and_does_not_take_the_answer_along() -> None:
    class Broken(HookRegistry):
        async def emit(self, event: str, data: dict[str, Any] | None = None) -> HookResult:
            if event == "execution:end":
                raise OSError("no disk")
            return await super().emit(event, data)

    hooks = Broken()
    agent = await make_agent(say("ok"))
    agent.events.listen(hooks, "execution:end")
    orchestrator, context = InteractiveOrchestrator({}), SimpleContext(ContextOptions(), hooks)
    with capture_logs() as logs:
        assert await orchestrator.execute("go", context, {"p": agent.provider}, {}, hooks) == "ok"
    [(event, error)] = [(each["event"], each["exc_info"]) for each in logs if each["log_level"] == "error"]
    assert event == "run.end_not_reported"
    assert isinstance(error, OSError)
    agent.provider.add(say("again"))
    assert await orchestrator.execute("go", context, {"p": agent.provider}, {}, HookRegistry()) == "again"


async def test_a_hook_without_a_coordinator_still_counts() -> None:
    hooks = HookRegistry()
    agent = await make_agent(say("ok"))

    async def ask(_event: str, _data: dict[str, Any]) -> HookResult:
        return HookResult(action="ask_user", approval_prompt="May I?")

    hooks.register("prompt:submit", ask)
    context = SimpleContext(ContextOptions(), hooks)
    answer = await InteractiveOrchestrator().execute("go", context, {"p": agent.provider}, {}, hooks)
    assert "denied" in answer
    assert agent.provider.requests == []


async def test_the_events_of_a_run_come_in_order() -> None:
    agent = await make_agent(call(use("echo", "a", text="x")), say("ok"), tools=[echo()])
    await agent.run("hello")
    assert agent.progress.names() == ["executing", "thinking", "tool:start", "tool:end", "thinking", "complete"]


async def test_the_events_carry_what_the_spec_says() -> None:
    agent = await make_agent(call(use("echo", "a", text="x")), say("ok"), tools=[echo()])
    await agent.run("hello")
    progress = agent.progress
    [executing] = progress.of("executing")
    assert executing["prompt"] == "hello"
    assert isinstance(executing["run"], str)
    assert progress.of("thinking") == [{"iteration": 1}, {"iteration": 2}]
    assert progress.of("tool:start")[0].items() >= {"tool": "echo", "args": {"text": "x"}}.items()
    assert progress.of("tool:end")[0]["tool"] == "echo"
    assert progress.of("tool:end")[0]["duration"] >= 0
    assert progress.of("complete")[0].items() >= {"iterations": 2, "status": "success"}.items()


async def test_start_and_end_of_a_tool_can_be_matched_by_the_calls_id() -> None:
    agent = await make_agent(call(use("echo", "a"), use("break", "b")), say("ok"), tools=[echo(), raising(OSError())])
    await agent.run()
    assert {data["id"] for data in agent.progress.of("tool:start")} == {"a", "b"}
    assert {data["id"]: data["success"] for data in agent.progress.of("tool:end")} == {"a": True, "b": False}


async def test_the_label_of_a_tool_is_told() -> None:
    tool = returning("text", name="read")
    tool.label = lambda given: f"Reading {given['path']}"  # type: ignore[attr-defined]
    agent = await make_agent(call(use("read", "a", path="notes.md")), say("ok"), tools=[tool])
    await agent.run()
    assert agent.progress.of("tool:start")[0]["label"] == "Reading notes.md"


async def test_a_label_that_fails_does_not_keep_the_tool_from_running() -> None:
    tool = returning("text", name="read")
    tool.label = lambda given: f"Reading {given['path']}"  # type: ignore[attr-defined]
    agent = await make_agent(call(use("read", "a")), say("ok"), tools=[tool])
    await agent.run()
    assert tool.inputs == [{}]


async def test_a_watcher_that_fails_does_not_disturb_the_run() -> None:
    agent = await make_agent(call(use("echo", "a")), say("ok"), tools=[echo()])
    agent.inject("steer")
    seen: list[str] = []

    async def fails(event: str, _data: dict[str, Any]) -> None:
        seen.append(event)
        raise ConnectionError("Slack is away")

    assert await soon(agent.session.execute("go", on_progress=fails)) == "ok"
    assert seen[-1] == "complete"


async def test_a_run_needs_no_watcher() -> None:
    agent = await make_agent(call(use("echo", "a")), say("ok"), tools=[echo()])
    assert await agent.session.execute("go") == "ok"


async def test_what_still_waits_is_told_at_the_end() -> None:
    agent = await make_agent()
    agent.progress.act_on("thinking", lambda: [agent.inject("one"), agent.inject("two"), agent.stop()])
    await agent.run()
    assert agent.progress.of("complete")[0].items() >= {"status": "cancelled", "waiting": 2}.items()


NOTICE = "[This happened since your last answer:]\n"


async def test_a_notice_leads_the_next_run() -> None:
    agent = await make_agent(say("ok"))
    agent.notify("the worker is done")
    agent.notify("so is the other")
    await agent.run()
    assert (await agent.told())[:2] == [("user", NOTICE + "- the worker is done\n- so is the other"), ("user", "go")]


async def test_a_notice_during_a_run_does_not_reach_it() -> None:
    gate = asyncio.Event()
    agent = await make_agent(call(use("echo", "a")), after(gate, say("one")), say("two"), tools=[echo()])
    agent.progress.act_on("tool:start", lambda: agent.notify("later"))
    run = agent.start()
    await agent.provider.asked(2)
    agent.notify("later still")
    gate.set()
    assert await run == "one"
    assert "later" not in str(told(agent.provider.sent()))
    await agent.run("next")
    assert told(agent.provider.sent())[-2:] == [("user", NOTICE + "- later\n- later still"), ("user", "next")]


async def test_a_notice_is_given_once() -> None:
    agent = await make_agent(say("one"), say("two"))
    agent.notify("done")
    await agent.run()
    await agent.run()
    assert str(await agent.told()).count("- done") == 1


async def test_a_notice_that_could_not_be_committed_is_not_lost() -> None:
    agent = await make_agent(say("ok"))
    agent.notify("done")

    async def refuse(_row: dict[str, Any]) -> None:
        raise OSError("disk full")

    agent.context.before = refuse
    with pytest.raises(OSError, match="disk full"):
        await agent.run()
    agent.context.before = None
    await agent.run()
    assert str(await agent.told()).count("- done") == 1


@pytest.mark.parametrize("moment", ["before", "after"])
async def test_a_notice_while_another_is_committed_is_not_lost(moment: str) -> None:
    agent = await make_agent(say("one"), say("two"))
    agent.notify("first")

    async def at_row(row: dict[str, Any]) -> None:
        if "first" in str(row["content"]):
            agent.notify("second")

    setattr(agent.context, moment, at_row)
    await agent.run()
    setattr(agent.context, moment, None)
    await agent.run()
    assert str(await agent.told()).count("- first") == 1
    assert str(await agent.told()).count("- second") == 1


async def test_a_notice_after_a_force_respond_tool_does_not_disturb_the_answer() -> None:
    agent = await make_agent(call(use("dispatch_worker", "a")), say("on it"), tools=[echo("dispatch_worker")])
    agent.progress.act_on("tool:end", lambda: agent.notify("the worker is done"))
    assert await agent.run() == "on it"
    assert len(agent.provider.requests) == 2
