"""Module contracts: the Testing sections. Their examples run as written, except for the import path."""

from typing import Any

import pytest
from agents import soon
from service_process import run_command

from orchestrator_interactive import InteractiveOrchestrator, testing
from orchestrator_interactive.kernel import HookRegistry, HookResult, ModuleCoordinator, ToolResult
from orchestrator_interactive.modules import provider_demo


async def my_validation_hook(_event: str, _data: dict[str, Any]) -> HookResult:
    return HookResult(action="deny", reason="Access denied")


async def mount_my_hook(coordinator: ModuleCoordinator, _config: dict[str, Any]) -> Any:
    return coordinator.hooks.register("tool:pre", my_validation_hook, priority=10)


class TestTestUtilities:
    def test_every_documented_utility_exists(self) -> None:
        names = "TestCoordinator MockCoordinator create_test_coordinator MockTool MockProvider MockContextManager"
        for name in (*names.split(), "ScriptedOrchestrator", "EventRecorder", "wait_for"):
            assert callable(getattr(testing, name))


class TestOrchestratorTesting:
    async def test_the_basic_example(self) -> None:
        orchestrator = InteractiveOrchestrator(config={})
        context = testing.MockContextManager()
        providers = {"test": testing.MockProvider()}
        tools = {"test_tool": testing.MockTool()}
        hooks = HookRegistry()
        result = await orchestrator.execute(
            prompt="Test prompt", context=context, providers=providers, tools=tools, hooks=hooks
        )
        assert isinstance(result, str)
        assert len(context.messages) > 0

    async def test_the_scripted_orchestrator_example(self) -> None:
        recorder = testing.EventRecorder()
        orchestrator = testing.ScriptedOrchestrator(responses=["Response 1", "Response 2"])
        for response in ("Response 1", "Response 2"):
            assert await orchestrator.execute("a prompt", testing.MockContextManager(), {}, {}, recorder) == response
        boundaries = ["execution:start", "execution:end", "orchestrator:complete"]
        assert [event for event, _ in recorder.get_events()] == boundaries * 2


class TestModuleTesting:
    async def test_the_tool_example(self) -> None:
        mock_tool = testing.MockTool(name="test_tool", description="Test tool", return_value="mock result")
        result = await mock_tool.execute({"path": "a.md"})
        assert isinstance(result, ToolResult)
        assert result.output == "mock result"
        assert mock_tool.call_count == 1
        assert mock_tool.last_input == {"path": "a.md"}

    async def test_the_provider_example(self) -> None:
        coordinator = testing.create_test_coordinator()
        await provider_demo.mount(coordinator, {})
        assert "demo" in coordinator.get_mounted("providers")

    async def test_the_hook_example(self) -> None:
        coordinator = testing.TestCoordinator()
        cleanup = await mount_my_hook(coordinator, {})
        result = await coordinator.hooks.emit("tool:pre", {"tool_name": "Write"})
        assert result.action == "deny"
        assert "denied" in result.reason.lower()
        cleanup()
        assert (await coordinator.hooks.emit("tool:pre", {})).action == "continue"

    async def test_the_event_recorder_example(self) -> None:
        recorder = testing.EventRecorder()
        await recorder.record("tool:pre", {"tool_name": "Write"})
        assert recorder.get_events() == [("tool:pre", {"tool_name": "Write"})]

    async def test_the_context_example(self) -> None:
        context = testing.MockContextManager()
        await context.add_message({"role": "user", "content": "Test"})
        messages = await context.get_messages_for_request()
        assert len(context.messages) == 1
        assert messages == [{"role": "user", "content": "Test"}]


class TestWaitFor:
    @pytest.mark.parametrize("holds", [True, False])
    async def test_it_returns_whether_the_condition_held_in_time(self, *, holds: bool) -> None:
        assert await soon(testing.wait_for(lambda: holds, timeout=0.01)) is holds


TOOL = """
from orchestrator_interactive.kernel import ToolResult


class MyTool:
    name = "my_tool"
    description = "Performs a specific action with the given parameters."

    async def execute(self, input):
        if not isinstance(input, dict) or not input.get("required_param"):
            return ToolResult(success=False, error={"message": "required_param is required"})
        return ToolResult(success=True, output=f"did {input['required_param']}")

    def get_schema(self):
        param = {"type": "string", "description": "What is to be done."}
        return {"type": "object", "properties": {"required_param": param}, "required": ["required_param"]}


async def mount(coordinator, config):
    tool = MyTool()
    await coordinator.mount("tools", tool, name="my_tool")
    return tool
"""

PYPROJECT = """
[project]
name = "my-tool"
version = "0.1.0"

[project.entry-points."amplifier.modules"]
my-tool = "my_tool:mount"
"""


class TestQuickValidationCommand:
    @pytest.fixture
    def project(self, tmp_path) -> Any:
        folder = tmp_path / "my-tool"
        (folder / "my_tool").mkdir(parents=True)
        (folder / "my_tool" / "__init__.py").write_text(TOOL)
        (folder / "pyproject.toml").write_text(PYPROJECT)
        return folder

    async def test_a_valid_module_passes(self, project: Any) -> None:
        ended = await run_command("module", "validate", str(project), "--type", "tool")
        assert ended.code == 0, ended.output

    async def test_the_report_of_an_invalid_module_names_the_error(self, project: Any) -> None:
        broken = TOOL.replace("async def execute", "async def run")
        (project / "my_tool" / "__init__.py").write_text(broken)
        ended = await run_command("module", "validate", str(project), "--type", "tool")
        assert ended.code != 0
        assert "execute" in ended.output
