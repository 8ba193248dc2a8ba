"""Orchestrator contract: protocol, flow, context, providers and checklist, for `loop-interactive`."""

import inspect
from typing import Any

import pytest
from agents import (
    Agent,
    ScriptedProvider,
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
from orchestrator_interactive.kernel import HookRegistry, HookResult, ModuleCoordinator
from orchestrator_interactive.kernel.contracts.errors import LLMError, ProviderUnavailableError
from orchestrator_interactive.kernel.contracts.protocols import Orchestrator
from orchestrator_interactive.modules.context_simple import ContextOptions, SimpleContext
from orchestrator_interactive.testing import EventRecorder


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
