"""Orchestrator contract: Event Emission, and the events that are required on every path."""

from __future__ import annotations

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
    """A provider that says which model it asks."""

    def get_info(self) -> ProviderInfo:
        return super().get_info().model_copy(update={"defaults": {"model": "model-v1"}})


class TestEventEmission:
    async def test_provider_request_has_provider_and_messages(self) -> None:
        agent = await watched(say("ok"), events=("provider:request",))
        await agent.run("hello")
        [request] = agent.events.of("provider:request")
        assert request["provider"] == "scripted"
        assert request["messages"] == [{"role": "user", "content": "hello"}]

    async def test_provider_request_has_the_model(self) -> None:
        agent = await watched(provider=Named(say("ok")), events=("provider:request",))
        await agent.run()
        assert agent.events.of("provider:request")[0]["model"] == "model-v1"

    async def test_provider_response_has_provider_response_and_usage(self) -> None:
        agent = await watched(say("ok"), events=("provider:response",))
        await agent.run()
        [response] = agent.events.of("provider:response")
        assert response["provider"] == "scripted"
        assert response["response"].text == "ok"
        assert response["usage"].total_tokens == 2

    async def test_tool_pre_has_name_and_input(self) -> None:
        agent = await watched(call(use("echo", "a", text="x")), say("ok"), tools=[echo()], events=("tool:pre",))
        await agent.run()
        [pre] = agent.events.of("tool:pre")
        assert (pre["tool_name"], pre["tool_input"]) == ("echo", {"text": "x"})

    async def test_tool_post_has_name_input_and_result(self) -> None:
        agent = await watched(call(use("echo", "a", text="x")), say("ok"), tools=[echo()], events=("tool:post",))
        await agent.run()
        [post] = agent.events.of("tool:post")
        assert (post["tool_name"], post["tool_input"]) == ("echo", {"text": "x"})
        assert (post["tool_result"].success, post["tool_result"].output) == (True, "x")

    async def test_a_tool_that_fails_is_a_tool_error_instead_of_a_tool_post(self) -> None:
        tools = [raising(OSError("broken"))]
        agent = await watched(call(use("break", "a")), say("ok"), tools=tools, events=("tool:post", "tool:error"))
        await agent.run()
        assert agent.events.names() == ["tool:error"]
        [error] = agent.events.of("tool:error")
        assert error["tool_name"] == "break"
        assert error["error"] == {"message": "broken", "type": "OSError"}


class TestOrchestratorComplete:
    async def test_it_has_name_turns_and_status(self) -> None:
        agent = await watched(call(use("echo", "a")), say("ok"), tools=[echo()])
        await agent.run()
        [complete] = agent.events.of("orchestrator:complete")
        assert complete["orchestrator"] == "loop-interactive"
        assert (complete["turn_count"], complete["status"]) == (2, "success")

    async def test_it_comes_last(self) -> None:
        everything = ("provider:request", "provider:response", "prompt:submit", *BOUNDARIES)
        agent = await watched(say("ok"), events=everything)
        await agent.run()
        assert agent.events.names()[-1] == "orchestrator:complete"

    async def test_a_run_that_used_up_its_iterations_is_incomplete(self) -> None:
        agent = await watched(call(use("echo", "a")), say("that is all"), tools=[echo()], max_iterations=1)
        await agent.run()
        assert agent.events.of("orchestrator:complete")[0]["status"] == "incomplete"

    async def test_a_run_that_was_denied_is_incomplete(self) -> None:
        agent = await watched()
        agent.on_hook("prompt:submit", HookResult(action="deny", reason="no"))
        await agent.run()
        assert agent.events.of("orchestrator:complete")[0]["status"] == "incomplete"

    async def test_a_run_that_was_stopped_is_cancelled(self) -> None:
        agent = await watched(never())
        run = agent.start()
        await agent.provider.asked(1)
        agent.stop()
        await soon(run)
        assert agent.events.of("orchestrator:complete")[0]["status"] == "cancelled"

    async def test_a_run_that_failed_is_incomplete(self) -> None:
        """The contract knows no fourth status."""
        agent = await watched(fail(ProviderUnavailableError("down")), max_retries=0)
        with pytest.raises(ProviderUnavailableError):
            await agent.run()
        assert agent.events.of("orchestrator:complete")[0]["status"] == "incomplete"


class TestExecutionStartAndEnd:
    async def test_execution_start_comes_before_any_other_work(self) -> None:
        agent = await watched(say("ok"), events=("execution:start", "prompt:submit", "provider:request"))
        rows_at_start: list[int] = []

        async def count(_event: str, _data: dict[str, Any]) -> HookResult:
            rows_at_start.append(len(await agent.history()))
            return HookResult()

        agent.hooks.register("execution:start", count)
        await agent.run("hello")
        assert agent.events.names()[0] == "execution:start"
        assert agent.events.of("execution:start")[0]["prompt"] == "hello"
        assert rows_at_start == [0]

    async def test_success_is_completed_with_the_response(self) -> None:
        agent = await watched(say("ok"))
        await agent.run()
        [end] = agent.events.of("execution:end")
        assert (end["response"], end["status"]) == ("ok", "completed")

    async def test_an_error_is_error_without_a_response(self) -> None:
        agent = await watched(fail(ProviderUnavailableError("down")), max_retries=0)
        with pytest.raises(ProviderUnavailableError):
            await agent.run()
        [end] = agent.events.of("execution:end")
        assert (end["response"], end["status"]) == ("", "error")

    @pytest.mark.parametrize("how", ["stopped", "task cancelled"])
    async def test_a_cancellation_is_cancelled_without_a_response(self, how: str) -> None:
        agent = await watched(never())
        run = agent.start()
        await agent.provider.asked(1)
        if how == "stopped":
            agent.stop()
        else:
            run.cancel()
        await soon(asyncio.wait([run]))
        [end] = agent.events.of("execution:end")
        assert (end["response"], end["status"]) == ("", "cancelled")

    async def test_a_cancelled_task_cancels_what_the_loop_does_and_raises(self) -> None:
        agent = await watched(never())
        run = agent.start()
        await agent.provider.asked(1)
        run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run
        assert agent.provider.cancelled == 1

    async def test_each_boundary_comes_once_in_a_run_of_many_turns(self) -> None:
        agent = await watched(*(call(use("echo", f"c{n}")) for n in range(3)), say("ok"), tools=[echo()])
        await agent.run()
        assert agent.events.names() == list(BOUNDARIES)

    @pytest.mark.parametrize(
        ("constant", "event"),
        [
            ("EXECUTION_START", "execution:start"),
            ("EXECUTION_END", "execution:end"),
            ("ORCHESTRATOR_COMPLETE", "orchestrator:complete"),
            ("PROVIDER_REQUEST", "provider:request"),
            ("PROVIDER_RESPONSE", "provider:response"),
            ("TOOL_PRE", "tool:pre"),
            ("TOOL_POST", "tool:post"),
            ("TOOL_ERROR", "tool:error"),
            ("SESSION_START", "session:start"),
            ("SESSION_END", "session:end"),
            ("SESSION_FORK", "session:fork"),
            ("PROMPT_SUBMIT", "prompt:submit"),
            ("CONTEXT_PRE_COMPACT", "context:pre_compact"),
            ("CONTEXT_POST_COMPACT", "context:post_compact"),
        ],
    )
    def test_there_are_constants_for_the_names(self, constant: str, event: str) -> None:
        assert getattr(events, constant) == event
        assert event in events.ALL_EVENTS
