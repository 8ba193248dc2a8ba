"""amplifier-core's behavioural tests, with our modules as their entry points mount them."""

import inspect
from collections.abc import AsyncIterator, Callable
from importlib.metadata import entry_points
from typing import Any

import pytest
from amplifier_core.pytest_plugin import coordinator, mock_deps  # noqa: F401 - fixtures of the tests that are inherited
from amplifier_core.validation.behavioral import (
    ContextBehaviorTests,
    OrchestratorBehaviorTests,
    ProviderBehaviorTests,
    ToolBehaviorTests,
)
from anthropic_server import AnthropicServer

Mounted = Callable[..., Any]


@pytest.fixture
async def mounted(coordinator: Any) -> AsyncIterator[Mounted]:  # noqa: F811
    """Mount a module in amplifier-core's test coordinator; return the modules of a mount point."""
    cleanups: list[Callable[[], Any]] = []

    async def mount(module_id: str, point: str, config: dict[str, Any]) -> Any:
        (entry,) = entry_points(group="amplifier.modules", name=module_id)
        returned = await entry.load()(coordinator, config)
        if inspect.isroutine(returned):
            cleanups.append(returned)
        return coordinator.mount_points[point]

    yield mount
    for cleanup in cleanups:
        if inspect.isawaitable(ended := cleanup()):
            await ended


class TestLoopInteractive(OrchestratorBehaviorTests):
    @pytest.fixture
    async def orchestrator_module(self, mounted: Mounted) -> Any:
        return await mounted("loop-interactive", "orchestrator", {})


class TestContextSimple(ContextBehaviorTests):
    @pytest.fixture
    async def context_module(self, mounted: Mounted) -> Any:
        return await mounted("context-simple", "context", {})


class TestProviderDemo(ProviderBehaviorTests):
    @pytest.fixture
    async def provider_module(self, mounted: Mounted) -> Any:
        return (await mounted("provider-demo", "providers", {}))["demo"]


class TestProviderAnthropic(ProviderBehaviorTests):
    @pytest.fixture
    async def provider_module(self, mounted: Mounted) -> AsyncIterator[Any]:
        async with AnthropicServer() as server:
            server.models = [
                {"id": "claude-a", "type": "model", "display_name": "A", "created_at": "2026-01-01T00:00:00Z"}
            ]
            config = {"api_key": "k", "base_url": server.base_url}
            yield (await mounted("provider-anthropic", "providers", config))["anthropic"]


class TestToolTodo(ToolBehaviorTests):
    @pytest.fixture
    async def tool_module(self, mounted: Mounted) -> Any:
        return (await mounted("tool-todo", "tools", {}))["todo"]


@pytest.mark.parametrize("tool_name", ["list_files", "read_file", "search_files", "write_file"])
class TestToolFilesystem(ToolBehaviorTests):
    @pytest.fixture
    async def tool_module(self, mounted: Mounted, tool_name: str, tmp_path: Any) -> Any:
        return (await mounted("tool-filesystem", "tools", {"root": str(tmp_path)}))[tool_name]
