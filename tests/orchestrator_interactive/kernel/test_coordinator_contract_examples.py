"""Coordinator API: the examples, as the document writes them where its own text allows."""

from __future__ import annotations

from typing import Any

import pytest
from agents import Recorder

from orchestrator_interactive.kernel import AmplifierSession, HookRegistry, HookResult, ModuleCoordinator
from orchestrator_interactive.modules import context_simple


class SmartOrchestrator:
    """The document's orchestrator that uses other modules."""

    def __init__(self, coordinator: ModuleCoordinator) -> None:
        self.coordinator = coordinator

    async def process_request(self, _user_input: str) -> str:
        context = self.coordinator.get("context")
        file_tool = self.coordinator.get("tools", "filesystem")
        if context is None:
            return "No context manager available"
        if file_tool is None:
            return "Filesystem tool not available"
        current_context = await context.get_messages()
        file_result = await file_tool.list_files("/workspace")
        return f"Found {len(file_result)} files in context of {len(current_context)} messages"


class FileTool:
    async def list_files(self, _folder: str) -> list[str]:
        return ["a.md", "b.md"]


class TestMultiModuleAccess:
    async def test_the_orchestrator_checks_what_is_mounted(self, coordinator: ModuleCoordinator) -> None:
        orchestrator = SmartOrchestrator(coordinator)
        assert await orchestrator.process_request("x") == "No context manager available"
        context = await context_simple.mount(coordinator, {})
        assert await orchestrator.process_request("x") == "Filesystem tool not available"
        await coordinator.mount("tools", FileTool(), "filesystem")
        await context.add_message({"role": "user", "content": "hello"})
        assert await orchestrator.process_request("x") == "Found 2 files in context of 1 messages"


class AgentManager:
    """The document's agents as capabilities; it leaves out `_merge_configs`, here that of the session."""

    def __init__(self, coordinator: ModuleCoordinator) -> None:
        self.coordinator = coordinator
        self.agent_configs: dict[str, Any] = {}
        coordinator.register_capability("agents.list", lambda: list(self.agent_configs.keys()))
        coordinator.register_capability("agents.spawn", self.spawn_agent)

    async def spawn_agent(self, agent_type: str, task_prompt: str) -> str:
        base_config = self.coordinator.config
        agent_overlay = self.agent_configs.get(agent_type, {})
        child_config = self.coordinator.session._merge_configs(base_config, agent_overlay)
        child_session = AmplifierSession(
            config=child_config,
            parent_id=self.coordinator.session_id,
            approval_system=self.coordinator.approval_system,
            display_system=self.coordinator.display_system,
        )
        async with child_session:
            return await child_session.execute(task_prompt)


class TestCapabilityRegistration:
    async def test_a_hook_finds_the_agents_and_spawns_one(self, shipped_plan: dict[str, Any]) -> None:
        async with AmplifierSession(shipped_plan) as session:
            coordinator = session.coordinator
            manager = AgentManager(coordinator)

            async def task_hook(_event: str, _data: dict[str, Any]) -> HookResult:
                list_agents = coordinator.get_capability("agents.list")
                spawn_agent = coordinator.get_capability("agents.spawn")
                if list_agents and spawn_agent and "research" in list_agents():
                    result = await spawn_agent("research", "Hello")
                    return HookResult(action="inject_context", context_injection=f"Research result: {result}")
                return HookResult(action="continue")

            coordinator.hooks.register("tool:post", task_hook)
            assert (await coordinator.hooks.emit("tool:post", {})).action == "continue"
            manager.agent_configs["research"] = {"session": {"injection_size_limit": 500}}
            result = await coordinator.hooks.emit("tool:post", {})
            assert result.context_injection.startswith("Research result: ")
            assert len(result.context_injection) > len("Research result: ")


class PipelineOrchestrator:
    """The document's orchestrator pattern.

    By the text `emit` returns one result, so the loop iterates over `emit_and_collect`; `modify` changes the input.
    """

    def __init__(self, coordinator: ModuleCoordinator) -> None:
        self.coordinator = coordinator

    async def execute(self, user_input: str) -> str | None:
        pre_results = await self.coordinator.hooks.emit_and_collect("orchestrator:pre_execute", {"input": user_input})
        for result in pre_results:
            processed = await self.coordinator.process_hook_result(result, "orchestrator:pre_execute", result.hook_name)
            if processed.action == "deny":
                return f"Operation denied: {processed.reason}"
            if processed.action == "modify":
                user_input = processed.data["input"]
        response = f"answer to {user_input}"
        post_results = await self.coordinator.hooks.emit_and_collect(
            "orchestrator:post_execute", {"input": user_input, "response": response}
        )
        suppress_output = False
        for result in post_results:
            processed = await self.coordinator.process_hook_result(
                result, "orchestrator:post_execute", result.hook_name
            )
            if processed.suppress_output:
                suppress_output = True
        return None if suppress_output else response


def answer_with(hooks: HookRegistry, event: str, **fields: Any) -> None:
    async def handler(_event: str, _data: dict[str, Any]) -> HookResult:
        return HookResult(**fields)

    hooks.register(event, handler, name="the hook")


class TestHookResultProcessing:
    @pytest.mark.parametrize(
        ("event", "fields", "answer"),
        [
            ("nothing", {}, "answer to x"),
            ("orchestrator:pre_execute", {"action": "deny", "reason": "not today"}, "Operation denied: not today"),
            ("orchestrator:pre_execute", {"action": "modify", "data": {"input": "y"}}, "answer to y"),
            ("orchestrator:post_execute", {"suppress_output": True}, None),
        ],
    )
    async def test_a_pipeline_applies_the_result_of_a_hook(
        self, coordinator: ModuleCoordinator, event: str, fields: dict[str, Any], answer: str | None
    ) -> None:
        answer_with(coordinator.hooks, event, **fields)
        assert await PipelineOrchestrator(coordinator).execute("x") == answer

    async def test_an_injection_names_its_hook(self, coordinator: ModuleCoordinator) -> None:
        context = await context_simple.mount(coordinator, {})
        answer_with(
            coordinator.hooks, "orchestrator:pre_execute", action="inject_context", context_injection="remember"
        )
        await PipelineOrchestrator(coordinator).execute("x")
        [row] = await context.get_messages()
        assert row["metadata"]["hook_name"] == "the hook"


async def delegate_to_research_agent(coordinator: ModuleCoordinator, query: str, recorder: Recorder) -> str:
    """The document's delegation; `recorder` records the events of the child."""
    parent_session = coordinator.session
    agent_configs = coordinator.config.get("agents", {})
    research_config = agent_configs.get("research", {})
    child_config = parent_session._merge_configs(parent_session.config, research_config)
    child_session = AmplifierSession(
        config=child_config,
        parent_id=parent_session.session_id,
        approval_system=coordinator.approval_system,
        display_system=coordinator.display_system,
    )
    recorder.listen(
        child_session.coordinator.hooks, "session:fork", "session:start", "execution:start", "provider:request"
    )
    async with child_session:
        return await child_session.execute(query)


class TestChildSessionSpawning:
    async def test_the_child_has_the_parents_modules_with_the_overlay(self, shipped_plan: dict[str, Any]) -> None:
        plan = {**shipped_plan, "agents": {"research": {"context": {"config": {"system_prompt": "You do research."}}}}}
        child = Recorder()
        async with AmplifierSession(plan, session_id="parent") as session:
            assert await delegate_to_research_agent(session.coordinator, "Hello", child)
        assert child.names()[:2] == ["session:fork", "session:start"]
        assert child.of("session:fork")[0]["parent"] == "parent"
        assert {data["parent_id"] for _, data in child.seen} == {"parent"}
        assert len({data["session_id"] for _, data in child.seen} | {"parent"}) == 2
        [request], [start] = child.of("provider:request"), child.of("session:start")
        assert request["messages"][0] == {"role": "system", "content": "You do research."}
        assert request["provider"] == "demo"
        assert [entry["module"] for entry in start["config"]["tools"]] == ["tool-filesystem", "tool-todo"]

    def test_an_overlay_leaves_the_parents_configuration_unchanged(self, shipped_plan: dict[str, Any]) -> None:
        session = AmplifierSession(shipped_plan)
        overlay = {"session": {"orchestrator": "another"}, "tools": [{"module": "tool-x"}]}
        merged = session._merge_configs(session.config, overlay)
        assert merged["session"]["orchestrator"] == {"module": "another"}
        assert merged["session"]["context"] == {"module": "context-simple"}
        assert session.config["session"]["orchestrator"] == "loop-interactive"
        assert [entry["module"] for entry in session.config["tools"]] == ["tool-filesystem", "tool-todo"]
