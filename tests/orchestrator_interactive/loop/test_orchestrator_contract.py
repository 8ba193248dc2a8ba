"""The loop in the words of the orchestrator contract: its rows, events and hooks."""

import asyncio
import inspect
from typing import Any

import pytest
from agents import (
    Agent,
    ScriptedProvider,
    ScriptedTool,
    call,
    echo,
    fail,
    faults,
    make_agent,
    never,
    raising,
    say,
    soon,
    streaming,
    told,
    use,
)

from orchestrator_interactive import InteractiveOrchestrator, mount
from orchestrator_interactive.kernel import HookRegistry, HookResult, ModuleCoordinator, ToolResult
from orchestrator_interactive.kernel.contracts import events
from orchestrator_interactive.kernel.contracts.errors import LLMError, ProviderUnavailableError
from orchestrator_interactive.kernel.contracts.models import ProviderInfo
from orchestrator_interactive.kernel.contracts.protocols import Orchestrator
from orchestrator_interactive.modules.context_simple import ContextOptions, SimpleContext
from orchestrator_interactive.testing import EventRecorder, MockDisplaySystem


async def use_echo(*, rounds: int = 1, **more: Any) -> Agent:
    """Make an agent that calls a tool once in each of so many turns and then answers "ok"."""
    steps = [call(use("echo", f"c{number}", text=f"result {number}")) for number in range(rounds)]
    return await make_agent(*steps, say("ok"), tools=[echo()], **more)


class TestProtocolDefinition:
    def test_the_loop_is_an_orchestrator_with_the_documented_arguments(self) -> None:
        assert isinstance(InteractiveOrchestrator({}), Orchestrator)
        parameters = inspect.signature(InteractiveOrchestrator.execute).parameters
        assert list(parameters)[1:6] == ["prompt", "context", "providers", "tools", "hooks"]
        assert any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())

    async def test_the_kernel_passes_the_coordinator(self, coordinator: ModuleCoordinator) -> None:
        class Absorbs:
            async def execute(self, *_: Any, **kwargs: Any) -> str:
                self.kwargs = kwargs
                return ""

        orchestrator = Absorbs()
        agent = await make_agent()
        await agent.coordinator.mount("orchestrator", orchestrator)
        await agent.session.execute("go", on_progress=len)
        assert orchestrator.kwargs == {"coordinator": agent.coordinator, "on_progress": len}

    async def test_it_runs_without_a_coordinator(self) -> None:
        """The contract's Testing section passes only the five arguments."""
        hooks, tool = HookRegistry(), echo()
        context = SimpleContext(ContextOptions(), hooks)
        provider = ScriptedProvider(call(use("echo", "a")), say("ok"))
        result = await InteractiveOrchestrator({}).execute(
            prompt="Test prompt", context=context, providers={"test": provider}, tools={"echo": tool}, hooks=hooks
        )
        assert isinstance(result, str)
        assert len(await context.get_messages()) > 0


class TestExecutionFlow:
    async def test_model_and_tools_alternate_until_a_response_has_no_calls(self) -> None:
        agent = await use_echo(rounds=2)
        flow: list[str] = []

        async def note(event: str, _data: dict[str, Any]) -> HookResult:
            flow.append(event)
            return HookResult()

        async def added(row: dict[str, Any]) -> None:
            flow.append(f"add {row['role']}")

        for event in ("provider:request", "provider:response", "tool:pre", "tool:post"):
            agent.hooks.register(event, note)
        agent.context.after = added
        assert await soon(agent.session.execute("go", something_new=1)) == "ok"
        assert flow == [
            "add user",
            *("provider:request", "provider:response", "add assistant"),
            *("tool:pre", "tool:post", "add tool"),
            *("provider:request", "provider:response", "add assistant"),
            *("tool:pre", "tool:post", "add tool"),
            *("provider:request", "provider:response", "add assistant"),
        ]


class TestMountFunction:
    async def test_it_mounts_as_the_orchestrator(self, coordinator: ModuleCoordinator) -> None:
        await mount(coordinator, {})
        assert isinstance(coordinator.get("orchestrator"), Orchestrator)

    @pytest.mark.parametrize("config", [{"max_iterations": 0}, {"max_iterations": "many"}, {"speed": 1}], ids=str)
    async def test_the_error_names_a_wrong_option(self, coordinator: ModuleCoordinator, config: dict[str, Any]) -> None:
        with pytest.raises(ValueError, match=next(iter(config))):
            await mount(coordinator, config)


class TestContextManagement:
    async def test_the_rows_have_the_contracts_form(self) -> None:
        agent = await use_echo()
        await agent.run("hello")
        user, asked, result, answered = await agent.history()
        assert user == {"role": "user", "content": "hello"}
        assert asked["role"] == answered["role"] == "assistant"
        assert (result["role"], result["tool_call_id"], result["content"]) == ("tool", "c0", "result 0")
        [tool_call] = asked["tool_calls"]
        assert (tool_call["id"], tool_call["type"]) == ("c0", "function")
        assert tool_call["function"] == {"name": "echo", "arguments": '{"text": "result 0"}'}

    async def test_every_request_has_the_rows_that_the_context_returns(self) -> None:
        agent = await use_echo()

        async def only_this(**_: Any) -> list[dict[str, Any]]:
            return [{"role": "user", "content": "compacted"}]

        agent.context.get_messages_for_request = only_this
        agent.provider.add(say("ok"))
        await agent.run("a long story")
        assert told(agent.provider.sent(0)) == [("user", "compacted")]

    async def test_the_context_gets_the_provider_of_the_request(self) -> None:
        agent = await use_echo()
        inner, seen = agent.context.get_messages_for_request, []

        async def note(**given: Any) -> list[dict[str, Any]]:
            seen.append(given["provider"])
            return await inner(**given)

        agent.context.get_messages_for_request = note
        await agent.run()
        assert seen == [agent.provider, agent.provider]


class TestProviderSelection:
    @pytest.mark.parametrize(("config", "asked"), [({}, "first"), ({"default_provider": "second"}, "second")])
    async def test_the_default_is_the_first_unless_configured(self, config: dict[str, Any], asked: str) -> None:
        agent = await make_agent(say("first"), **config)
        for name in ("second", "third"):
            await agent.coordinator.mount("providers", ScriptedProvider(say(name), name=name))
        assert await agent.run() == asked

    async def test_the_error_names_a_missing_provider_and_those_mounted(self) -> None:
        agent = await make_agent(say("first"), default_provider="absent")
        with pytest.raises(RuntimeError, match=r"absent.*scripted"):
            await agent.run()


class TestObservability:
    async def test_every_event_that_the_loop_emits_is_contributed(self) -> None:
        agent, recorder = await use_echo(), EventRecorder()
        loop = InteractiveOrchestrator({"max_retries": 1, "retry_base_delay_s": 0})
        loop.inject_message("by the way")
        context = SimpleContext(ContextOptions(), recorder)
        down = fail(ProviderUnavailableError("down"))
        first = ScriptedProvider(call(use("echo", "a"), use("break", "b")), down, down)
        tools = {"echo": echo(), "break": raising(OSError("broken"))}
        with pytest.raises(ProviderUnavailableError):
            await loop.execute("go", context, {"p": first, "q": ScriptedProvider(down, down)}, tools, recorder)
        contributed = await agent.coordinator.collect_contributions("observability.events")
        emitted = {event for event, _ in recorder.get_events()}
        assert emitted - {event for each in contributed for event in each} == set()
        assert {"tool:error", "provider:error", "provider:retry", "provider:fallback", "injection:applied"} <= emitted


class TestValidationChecklist:
    """The rows that no other contract test of the orchestrator covers."""

    async def test_handles_a_tool_that_fails(self) -> None:
        agent = await make_agent(call(use("break", "a")), say("sorry"), tools=[raising(OSError("broken"))])
        assert await agent.run() == "sorry"
        assert "broken" in told(agent.provider.sent(1))[-1][1]

    async def test_implements_a_limit_of_iterations(self) -> None:
        agent = await make_agent(
            *(call(use("echo", f"c{number}")) for number in range(3)), say("that is all"), tools=[echo()],
            max_iterations=3,
        )  # fmt: skip
        assert await agent.run() == "that is all"
        assert agent.provider.requests[-1].tool_choice == "none"

    async def test_handles_provider_errors_gracefully(self) -> None:
        agent = await make_agent(fail(ProviderUnavailableError("down")), say("back again"), max_retries=0)
        with pytest.raises(LLMError, match="down"):
            await agent.run()
        assert faults(await agent.history()) == []
        assert await agent.run() == "back again"

    async def test_supports_streaming(self) -> None:
        """By the protocol `complete` returns a response; the provider streams into `stream=`."""
        agent = await make_agent(streaming("Hello, ", "wor", then=never()))
        run = agent.start()
        await agent.provider.asked(1)
        agent.stop()
        assert await soon(run) == "Hello, wor"


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


DENY = HookResult(action="deny", reason="not here")


REMEMBER = HookResult(action="inject_context", context_injection="remember")


ASK = HookResult(action="ask_user", approval_prompt="May it?")


class Person:
    def __init__(self, answer: str) -> None:
        self._answer = answer

    async def request_approval(self, *_question: Any) -> str:
        return self._answer


async def agent_and_tool(**more: Any) -> tuple[Agent, ScriptedTool]:
    tool = echo()
    agent = await make_agent(
        call(use("echo", "a", text="one"), use("echo", "b", text="two")), say("ok"), tools=[tool], **more
    )
    return agent, tool


def results(agent: Agent) -> list[str]:
    return [text for role, text in told(agent.provider.sent(1)) if role == "tool"]


EVENTS = ["prompt:submit", "provider:request", "provider:response", "tool:pre", "tool:post"]


class TestHookProcessing:
    @pytest.mark.parametrize("event", EVENTS)
    async def test_a_denied_step_is_not_taken(self, event: str) -> None:
        agent, tool = await agent_and_tool()
        agent.on_hook(event, DENY)
        answer = await agent.run()
        if event.startswith("tool:"):
            assert answer == "ok"
            assert len(tool.inputs) == (0 if event == "tool:pre" else 2)
            assert all("not here" in result and "one" not in result for result in results(agent))
        else:
            assert answer == "Operation denied: not here"

    @pytest.mark.parametrize(
        ("event", "data", "request_number", "read"),
        [
            ("tool:pre", {"tool_input": {"text": "better"}}, 1, [("tool", "better")] * 2),
            ("tool:post", {"tool_result": ToolResult(output="redacted")}, 1, [("tool", "redacted")] * 2),
            ("prompt:submit", {"prompt": "better"}, 0, [("user", "better")]),
            ("provider:request", {"messages": [{"role": "user", "content": "instead"}]}, 0, [("user", "instead")]),
        ],
    )
    async def test_modified_data_take_effect(self, event, data, request_number, read) -> None:
        agent, _ = await agent_and_tool()
        agent.on_hook(event, HookResult(action="modify", data=data))
        await agent.run("worse")
        assert told(agent.provider.sent(request_number))[-len(read) :] == read

    @pytest.mark.parametrize("role", ["system", "user"])
    @pytest.mark.parametrize("event", ["prompt:submit", "provider:request", "tool:pre", "tool:post"])
    async def test_an_injection_is_added_to_the_context_with_role_and_origin(self, event: str, role: Any) -> None:
        agent, _ = await agent_and_tool()

        async def linter(_event: str, _data: dict[str, Any]) -> HookResult:
            return REMEMBER.model_copy(update={"context_injection_role": role})

        agent.hooks.register(event, linter, name="linter")
        assert await agent.run() == "ok"
        injected = [row for row in await agent.history() if row["content"] == "remember"]
        assert {(row["role"], row["metadata"]["hook_name"]) for row in injected} == {(role, "linter")}
        assert (role, "remember") in told(agent.provider.sent(1))
        assert faults(await agent.history()) == []

    async def test_every_run_has_its_own_injection_budget(self, logs) -> None:
        agent = await make_agent(say("one"), say("two"), plan={"injection_budget_per_turn": 2})
        agent.on_hook("prompt:submit", REMEMBER)
        await agent.run()
        await agent.run()
        assert not logs.tell("warning", "budget")

    @pytest.mark.parametrize(("event", "appended"), [("tool:post", False), ("provider:request", True)])
    async def test_an_ephemeral_injection_is_in_the_next_request_only(self, event: str, *, appended: bool) -> None:
        agent, _ = await agent_and_tool()
        update = {"ephemeral": True, "append_to_last_tool_result": appended}
        agent.on_hook(event, REMEMBER.model_copy(update=update))
        await agent.run()
        if appended:
            assert results(agent) == ["one", "two\n\nremember"]
        else:
            assert ("system", "remember") in told(agent.provider.sent(1))
        assert "remember" not in str(await agent.history())

    @pytest.mark.parametrize(("answer", "runs"), [("Allow", 2), ("Deny", 0)])
    async def test_a_tool_runs_after_approval_only(self, answer: str, runs: int) -> None:
        agent, tool = await agent_and_tool(approvals=Person(answer))
        agent.on_hook("tool:pre", ASK)
        await agent.run()
        assert len(tool.inputs) == runs
        assert ["User denied: May it?" in result for result in results(agent)] == [not runs, not runs]

    async def test_a_message_to_the_user_is_shown(self) -> None:
        display = MockDisplaySystem()
        agent, _ = await agent_and_tool(display=display)
        agent.on_hook("tool:post", HookResult(user_message="look"))
        await agent.run()
        assert [message for message, *_ in display.messages] == ["look", "look"]

    @pytest.mark.parametrize("event", EVENTS)
    async def test_a_hook_that_raises_does_not_end_the_run(self, event: str) -> None:
        agent, _ = await agent_and_tool()

        async def fails(_event: str, _data: dict[str, Any]) -> HookResult:
            raise RuntimeError("a bug in the hook")

        agent.hooks.register(event, fails)
        assert await agent.run() == "ok"
