"""The loop in the words of the orchestrator contract: its rows, events and hooks."""

import asyncio
import inspect
import json
from decimal import Decimal
from typing import Any

import pytest
from agents.milestones import soon
from agents.provider import ScriptedProvider, call, fail, say, use
from agents.rows import told
from agents.session import Agent, make_agent
from agents.tools import echo, raising
from pydantic import BaseModel
from structlog.testing import capture_logs

from orchestrator_interactive import InteractiveOrchestrator, mount
from orchestrator_interactive.kernel import HookResult, ModuleCoordinator
from orchestrator_interactive.kernel.contracts import events
from orchestrator_interactive.kernel.contracts.errors import ProviderUnavailableError
from orchestrator_interactive.kernel.contracts.events import ALL_EVENTS
from orchestrator_interactive.kernel.contracts.messages import Usage
from orchestrator_interactive.kernel.contracts.models import ProviderInfo
from orchestrator_interactive.kernel.contracts.protocols import Orchestrator
from orchestrator_interactive.kernel.hooks import HookRegistry
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

    async def test_the_priority_of_a_provider_ranks_before_the_order_of_the_plan(self) -> None:
        agent = await make_agent(say("first"))
        for name, priority in (("second", 5), ("third", 100), ("fourth", "high")):
            provider: Any = ScriptedProvider(say(name), name=name)
            provider.priority = priority
            await agent.coordinator.mount("providers", provider)
        assert await agent.run() == "second"

    async def test_a_default_provider_that_could_not_be_mounted_is_replaced_by_the_first_with_a_warning(self) -> None:
        agent = await make_agent(say("first"), default_provider="absent")
        with capture_logs() as logs:
            assert await agent.run() == "first"
        assert [(each["provider"], each["mounted"]) for each in logs if each["log_level"] == "warning"] == [
            ("absent", ["scripted"])
        ]

    async def test_a_run_may_name_its_provider(self) -> None:
        agent = await make_agent(say("first"), say("first again"))
        await agent.coordinator.mount("providers", ScriptedProvider(say("second"), name="second"))
        assert await agent.run() == "first"
        assert await soon(agent.session.execute("go", provider="second")) == "second"
        assert await agent.run() == "first again"
        with pytest.raises(RuntimeError, match=r"no provider 'third'.*scripted, second"):
            await soon(agent.session.execute("go", provider="third"))


class TestObservability:
    async def test_every_event_that_the_loop_emits_is_contributed(self) -> None:
        agent, recorder = await use_echo(), EventRecorder()
        loop = InteractiveOrchestrator({"max_retries": 1, "retry_base_delay_s": 0})
        loop.inject_message("by the way")
        context = SimpleContext(ContextOptions(), recorder.emit)
        down = fail(ProviderUnavailableError("down"))
        first = ScriptedProvider(call(use("echo", "a"), use("break", "b")), down, down)
        tools = {"echo": echo(), "break": raising(OSError("broken"))}
        with pytest.raises(ProviderUnavailableError):
            await loop.execute("go", context, {"p": first, "q": ScriptedProvider(down, down)}, tools, recorder)
        contributed = await agent.coordinator.collect_contributions("observability.events")
        emitted = {event for event, _ in recorder.get_events()}
        assert emitted - {event for each in contributed for event in each} - set(ALL_EVENTS) == set()
        assert {"tool:error", "provider:error", "provider:retry", "provider:fallback", "injection:applied"} <= emitted


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


class TestEventData:
    async def test_a_logger_can_write_every_event_as_json(self) -> None:
        """Models in event data dump to JSON values."""
        usage = Usage(input_tokens=1, output_tokens=1, total_tokens=2, cost_usd=Decimal("0.0471"))
        agent = await make_agent(
            fail(ProviderUnavailableError("down")),
            call(use("echo", "a"), use("break", "b"), use("absent", "c"), usage=usage),
            say("ok", usage=usage),
            tools=[echo(), raising(OSError("broken"))],
            retry_base_delay_s=0,
        )
        lines: list[dict[str, Any]] = []

        async def write(event: str, data: dict[str, Any]) -> HookResult:
            plain = {key: value.model_dump() if isinstance(value, BaseModel) else value for key, value in data.items()}
            lines.append(json.loads(json.dumps({"event": event, **plain})))
            return HookResult()

        contributed = await agent.coordinator.collect_contributions("observability.events")
        for event in {*ALL_EVENTS, *(event for each in contributed for event in each)}:
            agent.hooks.register(event, write, name="logger")
        agent.progress.act_on("tool:start", lambda: agent.inject("by the way"))
        with capture_logs() as logs:
            assert await agent.run() == "ok"
        await agent.session.cleanup()
        assert [each for each in logs if each["event"] == "hook.failed"] == []
        first, last = (line for line in lines if line["event"] == "provider:response")
        assert first["usage"]["cost_usd"] == last["response"]["usage"]["cost_usd"] == "0.0471"
        written = [line["event"] for line in lines]
        assert {"provider:error", "provider:retry", "tool:post", "tool:error", "injection:applied"} <= {*written}
        assert [written.count(event) for event in ("execution:start", "execution:end", "session:end")] == [1, 1, 1]


class TestBoundaries:
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


async def test_a_denied_call_and_a_call_of_an_unknown_tool_are_heard_at_any_priority() -> None:
    hooks, heard = HookRegistry(), []

    async def deny(_event: str, data: dict[str, Any]) -> HookResult:
        return HookResult(action="deny", reason="not today") if data["tool_name"] == "echo" else HookResult()

    async def audit(event: str, data: dict[str, Any]) -> HookResult:
        heard.append((event, data["tool_name"], data["tool_result"].output))
        return HookResult()

    for event in ("tool:pre", "tool:error"):
        hooks.register(event, deny, priority=-100)
    hooks.register("tool:error", audit, priority=1000)
    provider = ScriptedProvider(call(use("echo", "a"), use("nowhere", "b")), say("ok"))
    loop = InteractiveOrchestrator({})
    await loop.execute("go", SimpleContext(ContextOptions(), hooks.emit), {"p": provider}, {"echo": echo()}, hooks)
    assert heard == [
        ("tool:error", "nowhere", "There is no tool 'nowhere'. Tools: echo."),
        ("tool:error", "echo", "Denied: not today"),
    ]


class TestACancelAtTheEnd:
    """A stop, or a cancellation of the caller, while the last row is added or while the end is announced."""

    @pytest.mark.parametrize("moment", ["the last row", "execution:end", "orchestrator:complete", "complete"])
    @pytest.mark.parametrize("how", ["caller", "graceful", "immediate"])
    async def test_the_events_the_status_and_the_answer_agree(self, how: str, moment: str) -> None:
        agent = await make_agent(say("ok"))
        agent.events.listen(agent.hooks, "cancel:completed")
        ends: list[str] = []

        def cancel(*_: Any) -> None:
            run.cancel() if how == "caller" else agent.stop(immediate=how == "immediate")

        for event in ("execution:end", "orchestrator:complete"):
            agent.on_hook(event, lambda data: ends.append(data["status"]))
        if moment == "the last row":
            agent.context.act("after", lambda row: cancel() if row["role"] == "assistant" else None)
        elif moment == "complete":
            agent.progress.act_on("complete", cancel)
        else:
            agent.on_hook(moment, cancel)
        run = agent.start()
        if moment == "the last row" and how == "caller":
            with pytest.raises(asyncio.CancelledError):
                await soon(run)
        else:
            assert await soon(run) == "ok"  # after a stop, the text so far
        is_cancelled = moment == "the last row"
        assert ends == (["cancelled", "cancelled"] if is_cancelled else ["completed", "success"])
        assert agent.complete()["status"] == ("cancelled" if is_cancelled else "success")
        assert agent.session.status.status == ("cancelled" if is_cancelled else "completed")
        assert bool(agent.events.names()) == (is_cancelled and how != "caller")
        agent.provider.add(say("next"))
        assert await agent.run() == "next"


class TestToolNames:
    async def test_a_tool_is_offered_and_called_under_its_own_name(self) -> None:
        agent = await make_agent(call(use("echo", "a", text="x")), say("ok"))
        await agent.coordinator.mount("tools", echo(), name="mounted-as")
        await agent.coordinator.mount("tools", echo("second"), name="echo-2")
        assert await agent.run() == "ok"
        assert [tool.name for tool in agent.provider.requests[0].tools or []] == ["echo", "second"]
        assert ("tool", "x") in await agent.told()

    async def test_a_tool_whose_name_is_taken_is_offered_under_the_name_of_its_mount(self) -> None:
        agent = await make_agent(call(use("other", "a", text="x")), say("ok"))
        for mounted_as in ("other", "echo"):
            await agent.coordinator.mount("tools", echo(), name=mounted_as)
        assert await agent.run() == "ok"
        assert [tool.name for tool in agent.provider.requests[0].tools or []] == ["other", "echo"]
        assert ("tool", "x") in await agent.told()

    async def test_a_tool_without_any_free_name_is_logged_with_the_tool_that_has_it(self) -> None:
        agent = await make_agent(say("ok"))
        for name, mounted_as in (("other", "first"), ("echo", "other"), ("echo", "echo")):
            await agent.coordinator.mount("tools", echo(name), name=mounted_as)
        with capture_logs() as logs:
            assert await agent.run() == "ok"
        assert [tool.name for tool in agent.provider.requests[0].tools or []] == ["other", "echo"]
        [line] = [each for each in logs if each["event"] == "tool.name_taken"]
        assert (line["tool"], line["mounted_as"], line["offered_instead"]) == ("echo", "other", "echo")

    async def test_a_tool_without_a_name_has_the_name_of_its_mount(self) -> None:
        agent, nameless = await make_agent(say("ok")), echo()
        nameless._name = None  # type: ignore[assignment]
        with capture_logs() as logs:
            await agent.coordinator.mount("tools", nameless, name="mounted-as")
            assert await agent.run() == "ok"
        assert [tool.name for tool in agent.provider.requests[0].tools or []] == ["mounted-as"]
        [line] = [each for each in logs if each["log_level"] == "warning"]
        assert "lacks name of the contract" in line["problem"]
