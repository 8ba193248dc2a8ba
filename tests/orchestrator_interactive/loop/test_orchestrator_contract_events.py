"""Orchestrator contract: the events of a run and their fields."""

import asyncio
from typing import Any

import pytest
from agents import Agent, ScriptedProvider, call, echo, fail, make_agent, never, raising, say, soon, use

from orchestrator_interactive.kernel import HookResult
from orchestrator_interactive.kernel.contracts import events
from orchestrator_interactive.kernel.contracts.errors import ProviderUnavailableError
from orchestrator_interactive.kernel.contracts.models import ProviderInfo

BOUNDARIES = ("execution:start", "execution:end", "orchestrator:complete")


async def watched(*steps: Any, events: tuple[str, ...] = BOUNDARIES, **more: Any) -> Agent:
    agent = await make_agent(*steps, **more)
    agent.events.listen(agent.hooks, *events)
    return agent


class Named(ScriptedProvider):
    """A provider with a default model."""

    def get_info(self) -> ProviderInfo:
        return super().get_info().model_copy(update={"defaults": {"model": "model-v1"}})


class TestEventEmission:
    async def test_provider_events_have_request_and_response(self) -> None:
        agent = await watched(provider=Named(say("ok")), events=("provider:request", "provider:response"))
        await agent.run("hello")
        [request], [response] = agent.events.of("provider:request"), agent.events.of("provider:response")
        assert request["provider"] == response["provider"] == "scripted"
        assert request["model"] == "model-v1"
        assert request["messages"] == [{"role": "user", "content": "hello"}]
        assert response["response"].text == "ok"
        assert response["usage"].total_tokens == 2

    async def test_tool_events_have_name_input_and_result(self) -> None:
        agent = await watched(
            call(use("echo", "a", text="x")), say("ok"), tools=[echo()], events=("tool:pre", "tool:post")
        )
        await agent.run()
        [pre], [post] = agent.events.of("tool:pre"), agent.events.of("tool:post")
        for data in (pre, post):
            assert (data["tool_name"], data["tool_input"]) == ("echo", {"text": "x"})
        assert (post["tool_result"].success, post["tool_result"].output) == (True, "x")

    async def test_a_failed_tool_is_a_tool_error_and_no_tool_post(self) -> None:
        tools = [raising(OSError("broken"))]
        agent = await watched(call(use("break", "a")), say("ok"), tools=tools, events=("tool:post", "tool:error"))
        await agent.run()
        assert agent.events.names() == ["tool:error"]
        [error] = agent.events.of("tool:error")
        assert error["tool_name"] == "break"
        assert error["error"] == {"message": "broken", "type": "OSError"}


async def deny(agent: Agent) -> None:
    agent.on_hook("prompt:submit", HookResult(action="deny", reason="no"))
    await agent.run()


async def run_to_the_end(agent: Agent) -> None:
    await agent.run()


async def fail_to_run(agent: Agent) -> None:
    with pytest.raises(ProviderUnavailableError):
        await agent.run()


async def stop(agent: Agent) -> None:
    run = agent.start()
    await agent.provider.asked(1)
    agent.stop()
    await soon(run)


async def cancel_the_task(agent: Agent) -> None:
    run = agent.start()
    await agent.provider.asked(1)
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    assert agent.provider.cancelled == 1


class TestBoundaries:
    @pytest.mark.parametrize(
        ("steps", "act", "complete", "end"),
        [
            ([call(use("echo", "a")), say("ok")], run_to_the_end, "success", ("completed", "ok")),
            ([call(use("echo", str(n))) for n in range(4)] + [say("all")], run_to_the_end, "incomplete", None),
            ([], deny, "incomplete", None),
            ([never()], stop, "cancelled", ("cancelled", "")),
            ([never()], cancel_the_task, "cancelled", ("cancelled", "")),
            ([fail(ProviderUnavailableError("down"))], fail_to_run, "incomplete", ("error", "")),
        ],
        ids=["success", "iterations used up", "denied", "stopped", "task cancelled", "failed"],
    )
    async def test_each_boundary_is_emitted_once_with_the_status_of_the_run(self, steps, act, complete, end) -> None:
        """The contract knows three statuses of `orchestrator:complete`: a failed run is incomplete."""
        agent = await watched(*steps, tools=[echo()], max_iterations=4, max_retries=0)
        await act(agent)
        assert agent.events.names() == list(BOUNDARIES)
        [completed], [ended] = agent.events.of("orchestrator:complete"), agent.events.of("execution:end")
        assert (completed["orchestrator"], completed["status"]) == ("loop-interactive", complete)
        if end:
            assert (ended["status"], ended["response"]) == end

    async def test_orchestrator_complete_counts_the_turns(self) -> None:
        agent = await watched(call(use("echo", "a")), say("ok"), tools=[echo()])
        await agent.run()
        assert agent.events.of("orchestrator:complete")[0]["turn_count"] == 2

    async def test_execution_start_comes_first_and_orchestrator_complete_last(self) -> None:
        everything = ("provider:request", "provider:response", "prompt:submit", *BOUNDARIES)
        agent = await watched(say("ok"), events=everything)
        rows_at_start: list[int] = []

        async def count(_event: str, _data: dict[str, Any]) -> HookResult:
            rows_at_start.append(len(await agent.history()))
            return HookResult()

        agent.hooks.register("execution:start", count)
        await agent.run("hello")
        assert agent.events.of("execution:start")[0]["prompt"] == "hello"
        assert rows_at_start == [0]
        assert (agent.events.names()[0], agent.events.names()[-1]) == ("execution:start", "orchestrator:complete")


class TestEventNames:
    def test_every_documented_event_has_a_constant(self) -> None:
        names = """execution:start execution:end orchestrator:complete provider:request provider:response tool:pre
            tool:post tool:error session:start session:end session:fork prompt:submit context:pre_compact
            context:post_compact"""
        for name in names.split():
            assert getattr(events, name.upper().replace(":", "_")) == name
            assert name in events.ALL_EVENTS
