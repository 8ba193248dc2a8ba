"""The events that mark the boundaries of a run come exactly once on every path."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from agents import after, call, echo, fail, make_agent, never, say, soon, use
from structlog.testing import capture_logs

from orchestrator_interactive import InteractiveOrchestrator
from orchestrator_interactive.kernel import HookRegistry, HookResult
from orchestrator_interactive.kernel.contracts.errors import ProviderUnavailableError
from orchestrator_interactive.modules.context_simple import ContextOptions, SimpleContext

if TYPE_CHECKING:
    from typing import Any

    from agents import Agent

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
