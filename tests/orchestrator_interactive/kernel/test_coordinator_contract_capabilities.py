"""Coordinator API: register_capability, get_capability, and the Capability System."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

from orchestrator_interactive.kernel import ModuleCoordinator


class Agent:
    async def execute(self, task: str) -> str:
        return f"did {task}"


class AgentManager:
    """The document's provider of capabilities."""

    def __init__(self, coordinator: ModuleCoordinator) -> None:
        self.coordinator = coordinator
        self.agents: dict[str, Any] = {}
        coordinator.register_capability("agents.list", self.list_agents)
        coordinator.register_capability("agents.get", self.get_agent)
        coordinator.register_capability("agents.spawn", self.spawn_agent)

    def list_agents(self) -> list[str]:
        return list(self.agents.keys())

    def get_agent(self, agent_id: str) -> Any:
        return self.agents.get(agent_id)

    async def spawn_agent(self, config: dict[str, Any]) -> Agent:
        self.agents[config["name"]] = Agent()
        return self.agents[config["name"]]


class TaskTool:
    """The document's consumer of capabilities."""

    def __init__(self, coordinator: ModuleCoordinator) -> None:
        self.coordinator = coordinator

    async def execute_with_agent(self, task_config: dict[str, Any]) -> str:
        spawn_agent = self.coordinator.get_capability("agents.spawn")
        if spawn_agent is None:
            raise RuntimeError("Agent spawning not available")
        agent = await spawn_agent(task_config["agent_config"])
        return await agent.execute(task_config["task"])

    def get_available_agents(self) -> list[str]:
        list_agents = self.coordinator.get_capability("agents.list")
        return list_agents() if list_agents else []


class DynamicProvider:
    """The document's capabilities that come and go."""

    def __init__(self, coordinator: ModuleCoordinator) -> None:
        self.coordinator = coordinator
        self.active_services: dict[str, Any] = {}

    def enable_service(self, service_name: str, implementation: Any) -> None:
        self.active_services[service_name] = implementation
        self.coordinator.register_capability(f"services.{service_name}", implementation)

    def disable_service(self, service_name: str) -> None:
        if service_name in self.active_services:
            del self.active_services[service_name]
            self.coordinator.register_capability(f"services.{service_name}", None)


class ResilientConsumer:
    """The document's consumer with fallbacks."""

    def __init__(self, coordinator: ModuleCoordinator) -> None:
        self.coordinator = coordinator

    async def process_with_fallback(self, data: str) -> str:
        advanced_processor = self.coordinator.get_capability("process.advanced")
        if advanced_processor:
            try:
                return await advanced_processor(data)
            except RuntimeError:
                pass
        basic_processor = self.coordinator.get_capability("process.basic")
        if basic_processor:
            return await basic_processor(data)
        return f"built-in {data}"


class TestRegisterCapability:
    def test_its_signature(self) -> None:
        assert list(inspect.signature(ModuleCoordinator.register_capability).parameters) == ["self", "name", "value"]

    @pytest.mark.parametrize("value", [len, "data", {"a": 1}, 0, None])
    def test_any_value_is_available_at_once(self, coordinator: ModuleCoordinator, value: object) -> None:
        assert coordinator.register_capability("x.y", value) is None
        assert coordinator.get_capability("x.y") is value

    def test_it_is_logged_at_debug_level(self, coordinator: ModuleCoordinator, logs) -> None:
        coordinator.register_capability("agents.list", list)
        assert logs.tell("debug", "capability", "agents.list")

    def test_a_second_registration_replaces_the_first(self, coordinator: ModuleCoordinator) -> None:
        coordinator.register_capability("x.y", 1)
        coordinator.register_capability("x.y", 2)
        assert coordinator.get_capability("x.y") == 2

    def test_usage_example(self, coordinator: ModuleCoordinator) -> None:
        agent_registry = {"research": "an agent"}
        coordinator.register_capability("agents.list", lambda: list(agent_registry.keys()))
        coordinator.register_capability("agents.get", agent_registry.get)
        coordinator.register_capability("tools.filesystem.read", "content of {}".format)
        list_agents = coordinator.get_capability("agents.list")
        assert (list_agents() if list_agents else []) == ["research"]
        assert coordinator.get_capability("agents.get")("research") == "an agent"
        assert coordinator.get_capability("tools.filesystem.read")("a.md") == "content of a.md"


class TestGetCapability:
    def test_what_is_not_registered_is_none(self, coordinator: ModuleCoordinator) -> None:
        assert coordinator.get_capability("agents.list") is None

    def test_it_logs_nothing(self, coordinator: ModuleCoordinator, logs) -> None:
        coordinator.get_capability("agents.list")
        assert logs.count() == 0

    def test_usage_example(self, coordinator: ModuleCoordinator) -> None:
        assert coordinator.get_capability("agents.list") is None
        coordinator.register_capability("agents.get", {}.get)
        required_caps = ["tools.filesystem.read", "tools.web.fetch", "agents.get"]
        missing_caps = [cap for cap in required_caps if coordinator.get_capability(cap) is None]
        assert missing_caps == ["tools.filesystem.read", "tools.web.fetch"]


class TestCapabilitySystem:
    async def test_provider_and_consumer(self, coordinator: ModuleCoordinator) -> None:
        AgentManager(coordinator)
        tool = TaskTool(coordinator)
        assert tool.get_available_agents() == []
        assert await tool.execute_with_agent({"agent_config": {"name": "research"}, "task": "it"}) == "did it"
        assert tool.get_available_agents() == ["research"]

    async def test_a_consumer_without_its_provider_says_so(self, coordinator: ModuleCoordinator) -> None:
        tool = TaskTool(coordinator)
        assert tool.get_available_agents() == []
        with pytest.raises(RuntimeError, match="not available"):
            await tool.execute_with_agent({})

    def test_dynamic_capability_discovery(self, coordinator: ModuleCoordinator) -> None:
        offered = {"memory.search": "semantic_search", "agents.spawn": "agent_delegation"}
        coordinator.register_capability("agents.spawn", object())
        assert [what for name, what in offered.items() if coordinator.get_capability(name)] == ["agent_delegation"]

    @pytest.mark.parametrize(
        "name",
        [
            "agents.spawn",
            "context.get_messages",
            "events.tool_complete",
            "validate.tool_call",
            "transform.json_schema",
            "query.available_tools",
        ],
    )
    def test_every_naming_convention_works(self, coordinator: ModuleCoordinator, name: str) -> None:
        coordinator.register_capability(name, len)
        assert coordinator.get_capability(name) is len

    def test_capability_lifecycle_management(self, coordinator: ModuleCoordinator) -> None:
        provider = DynamicProvider(coordinator)
        provider.enable_service("search", len)
        assert coordinator.get_capability("services.search") is len
        provider.disable_service("search")
        assert coordinator.get_capability("services.search") is None

    async def test_error_handling_best_practices(self, coordinator: ModuleCoordinator) -> None:
        async def fails(_data: str) -> str:
            raise RuntimeError

        async def basic(data: str) -> str:
            return f"basic {data}"

        consumer = ResilientConsumer(coordinator)
        assert await consumer.process_with_fallback("x") == "built-in x"
        coordinator.register_capability("process.basic", basic)
        coordinator.register_capability("process.advanced", fails)
        assert await consumer.process_with_fallback("x") == "basic x"
