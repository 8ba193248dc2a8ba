"""Hook contract: handlers, modules of hooks, the common events, and handlers that go wrong."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from agents import Recorder, call, echo, make_agent, raising, say, soon, use

from orchestrator_interactive.kernel import AmplifierSession, HookRegistry, HookResult, ModuleCoordinator
from orchestrator_interactive.kernel.contracts.protocols import HookHandler
from orchestrator_interactive.kernel.loading.loader import ModuleLoader


async def denies(_event: str, _data: dict[str, Any]) -> HookResult:
    return HookResult(action="deny", reason="Access denied")


@pytest.fixture
def hooks() -> HookRegistry:
    return HookRegistry()


class TestProtocolDefinition:
    @pytest.mark.parametrize("handler", [denies, Recorder()], ids=["function", "object"])
    def test_what_can_be_called_is_a_handler(self, handler: Any) -> None:
        assert isinstance(handler, HookHandler)

    async def test_it_is_called_with_event_and_data(self, hooks: HookRegistry) -> None:
        heard: list[tuple[str, dict[str, Any]]] = []

        async def handler(event: str, data: dict[str, Any]) -> HookResult:
            heard.append((event, data))
            return HookResult()

        hooks.register("tool:pre", handler)
        await hooks.emit("tool:pre", {"tool_name": "Write"})
        assert heard == [("tool:pre", {"tool_name": "Write"})]


async def mount_my_hook(coordinator: ModuleCoordinator, config: dict[str, Any]) -> Any:
    """The contract's example of a module; the events are configured."""
    handlers = [
        coordinator.hooks.register(event, denies, priority=10) for event in config.get("enabled_events", ["tool:pre"])
    ]
    coordinator.register_contributor(
        "observability.events", "my-hook", lambda: ["my-hook:validation_failed", "my-hook:approved"]
    )

    def cleanup() -> None:
        for unregister in handlers:
            unregister()

    return cleanup


class HookLoader(ModuleLoader):
    """A loader that knows `my-hook` besides what is installed."""

    async def load(self, module_id: str, config: dict[str, Any] | None = None, profile_source: Any = None) -> Any:
        if module_id != "my-hook":
            return await super().load(module_id, config, profile_source)

        async def mount(coordinator: ModuleCoordinator) -> Any:
            return await mount_my_hook(coordinator, config or {})

        return mount


class TestMountFunction:
    async def test_it_listens_until_the_session_ends(self, shipped_plan: dict[str, Any]) -> None:
        session = AmplifierSession({**shipped_plan, "hooks": [{"module": "my-hook"}]}, loader=HookLoader())
        hooks = session.coordinator.hooks
        async with session:
            assert (await hooks.emit("tool:pre", {})).reason == "Access denied"
        assert (await hooks.emit("tool:pre", {})).action == "continue"

    async def test_configuration_and_custom_events(self, shipped_plan: dict[str, Any]) -> None:
        hook = {"module": "my-hook", "config": {"enabled_events": ["tool:post"], "log_level": "info"}}
        session = AmplifierSession({**shipped_plan, "hooks": [hook]}, loader=HookLoader())
        async with session:
            assert (await session.coordinator.hooks.emit("tool:pre", {})).action == "continue"
            assert (await session.coordinator.hooks.emit("tool:post", {})).action == "deny"
            contributed = await session.coordinator.collect_contributions("observability.events")
        assert ["my-hook:validation_failed", "my-hook:approved"] in contributed


class TestCommonEvents:
    async def test_session_start_and_end(self, shipped_plan: dict[str, Any]) -> None:
        session = AmplifierSession(shipped_plan, session_id="s")
        recorder = Recorder().listen(session.coordinator.hooks, "session:start", "session:end")
        async with session:
            await session.execute("Hello")
        [start], [end] = recorder.of("session:start"), recorder.of("session:end")
        assert (start["session_id"], start["config"]) == ("s", shipped_plan)
        assert end["session_id"] == "s"
        assert end["stats"]

    @pytest.mark.parametrize(
        ("event", "includes"),
        [
            ("prompt:submit", {"prompt"}),
            ("tool:pre", {"tool_name", "tool_input"}),
            ("tool:post", {"tool_name", "tool_result"}),
            ("tool:error", {"tool_name", "error"}),
            ("provider:request", {"provider", "messages"}),
            ("provider:response", {"provider", "response", "usage"}),
        ],
    )
    async def test_the_events_of_a_run(self, event: str, includes: set[str]) -> None:
        tools = [echo(), raising(OSError("broken"))]
        agent = await make_agent(call(use("echo", "a"), use("break", "b")), say("ok"), tools=tools)
        agent.events.listen(agent.hooks, event)
        await agent.run("hello")
        assert includes <= set(agent.events.of(event)[0])


class TestHandlesExceptionsGracefully:
    async def test_a_handler_that_raises_is_logged_and_counts_as_continue(self, hooks: HookRegistry, logs) -> None:
        async def fails(_event: str, _data: dict[str, Any]) -> HookResult:
            raise RuntimeError("a bug in the hook")

        hooks.register("e", fails, name="the hook")
        hooks.register("e", denies)
        assert (await hooks.emit("e", {})).action == "deny"
        assert logs.tell("error", "hook.failed", "the hook")

    async def test_a_handler_that_hangs_is_logged_and_counts_as_continue(self, logs) -> None:
        hooks = HookRegistry(timeout_s=0.01)

        async def hangs(_event: str, _data: dict[str, Any]) -> None:
            await asyncio.Event().wait()

        hooks.register("e", hangs, name="the hook")
        hooks.register("e", denies)
        assert (await soon(hooks.emit("e", {}))).action == "deny"
        assert logs.tell("warning", "hook.timeout", "the hook")

    @pytest.mark.parametrize(
        "nonsense", ["deny", {"action": "deny"}, 0, object()], ids=["word", "dict", "zero", "object"]
    )
    async def test_a_handler_that_returns_nonsense_is_logged_and_counts_as_continue(
        self, hooks: HookRegistry, logs, nonsense: Any
    ) -> None:
        async def babbles(_event: str, _data: dict[str, Any]) -> Any:
            return nonsense

        hooks.register("e", babbles, name="the hook")
        assert (await hooks.emit("e", {})).action == "continue"
        assert logs.tell("warning", "hook.result_invalid", "the hook")

    async def test_a_handler_that_returns_nothing_counts_as_continue(self, hooks: HookRegistry) -> None:
        async def only_looks(_event: str, _data: dict[str, Any]) -> None:
            return None

        hooks.register("e", only_looks)
        assert (await hooks.emit("e", {})).action == "continue"


class TestTesting:
    async def test_the_contracts_example(self) -> None:
        async def my_validation_hook(_event: str, data: dict[str, Any]) -> HookResult:
            if data["tool_input"]["file_path"].startswith("/etc"):
                return HookResult(action="deny", reason="Access denied")
            return HookResult()

        result = await my_validation_hook(
            "tool:pre", {"tool_name": "Write", "tool_input": {"file_path": "/etc/passwd"}}
        )
        assert result.action == "deny"
        assert "denied" in result.reason.lower()
