"""Coordinator API: the Examples. Each runs as the document writes it, as far as its own text lets it."""

from __future__ import annotations

from typing import Any

import pytest
from agents import Recorder

from orchestrator_interactive.kernel import AmplifierSession, HookRegistry, HookResult, ModuleCoordinator
from orchestrator_interactive.modules import context_simple


class TestExamplesBasicModuleMounting:
    async def test_the_single_instance_module(self, make_coordinator) -> None:
        class CustomOrchestrator:
            def __init__(self, coordinator: ModuleCoordinator) -> None:
                self.coordinator = coordinator
                self.active_tasks = ["a task"]

            async def cleanup(self) -> None:
                self.active_tasks.clear()

        coordinator = make_coordinator(config={"orchestrator": {"config": {"a": 1}}})
        orchestrator = CustomOrchestrator(coordinator)
        await coordinator.mount("orchestrator", orchestrator)
        coordinator.register_cleanup(orchestrator.cleanup)
        assert coordinator.session_id == "here"
        assert coordinator.config.get("orchestrator", {}) == {"config": {"a": 1}}
        assert coordinator.get("orchestrator") is orchestrator
        await coordinator.cleanup()
        assert orchestrator.active_tasks == []

    async def test_the_multi_module_mounting(self, coordinator: ModuleCoordinator) -> None:
        file_tool, web_tool = object(), object()
        await coordinator.mount("tools", file_tool, name="filesystem")
        await coordinator.mount("tools", web_tool, name="browser")
        assert coordinator.get("tools") == {"filesystem": file_tool, "browser": web_tool}
        assert coordinator.get("tools", "filesystem") is file_tool


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


class TestExamplesMultiModuleAccess:
    async def test_the_orchestrator_checks_what_is_mounted(self, coordinator: ModuleCoordinator) -> None:
        orchestrator = SmartOrchestrator(coordinator)
        assert await orchestrator.process_request("x") == "No context manager available"
        context = await context_simple.mount(coordinator, {})
        assert await orchestrator.process_request("x") == "Filesystem tool not available"
        await coordinator.mount("tools", FileTool(), "filesystem")
        await context.add_message({"role": "user", "content": "hello"})
        assert await orchestrator.process_request("x") == "Found 2 files in context of 1 messages"

    async def test_the_hook_that_looks_for_a_provider(self, coordinator: ModuleCoordinator) -> None:
        """A handler takes event and data; its result injects with the action that says so."""

        class OpenAI:
            async def generate(self, _prompt: str) -> str:
                return "analysed"

        async def integration_hook(_event: str, _data: dict[str, Any]) -> HookResult:
            providers = coordinator.get("providers")
            if "openai" in providers:
                result = await providers["openai"].generate("Analyze this event")
                return HookResult(action="inject_context", context_injection=result)
            return HookResult(action="continue")

        coordinator.hooks.register("tool:post", integration_hook)
        assert (await coordinator.hooks.emit("tool:post", {})).action == "continue"
        await coordinator.mount("providers", OpenAI(), "openai")
        assert (await coordinator.hooks.emit("tool:post", {})).context_injection == "analysed"


class AgentManager:
    """The document's agents as capabilities; `_merge_configs`, which it leaves out, is the session's."""

    def __init__(self, coordinator: ModuleCoordinator) -> None:
        self.coordinator = coordinator
        self.agent_configs: dict[str, Any] = {}

    async def mount(self) -> None:
        self.coordinator.register_capability("agents.list", self.list_agents)
        self.coordinator.register_capability("agents.get", self.get_agent_config)
        self.coordinator.register_capability("agents.spawn", self.spawn_agent)

    def list_agents(self) -> list[str]:
        return list(self.agent_configs.keys())

    def get_agent_config(self, agent_type: str) -> Any:
        return self.agent_configs.get(agent_type)

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


class TestExamplesCapabilityRegistration:
    async def test_a_hook_finds_the_agents_and_spawns_one(self, shipped_plan: dict[str, Any]) -> None:
        async with AmplifierSession(shipped_plan) as session:
            coordinator = session.coordinator
            manager = AgentManager(coordinator)
            await manager.mount()

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
            assert coordinator.get_capability("agents.get")("research") == manager.agent_configs["research"]
            result = await coordinator.hooks.emit("tool:post", {})
            assert result.context_injection.startswith("Research result: ")
            assert len(result.context_injection) > len("Research result: ")


class PipelineOrchestrator:
    """The document's orchestrator pattern.

    By the text `emit` gives one result, so the loop goes over `emit_and_collect`; input is changed by `modify`.
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


def answer_with(hooks: HookRegistry, event: str, **wish: Any) -> None:
    async def handler(_event: str, _data: dict[str, Any]) -> HookResult:
        return HookResult(**wish)

    hooks.register(event, handler, name="the hook")


class TestExamplesHookResultProcessing:
    async def test_without_hooks_it_answers(self, coordinator: ModuleCoordinator) -> None:
        assert await PipelineOrchestrator(coordinator).execute("x") == "answer to x"

    async def test_a_deny_ends_it_with_the_reason(self, coordinator: ModuleCoordinator) -> None:
        answer_with(coordinator.hooks, "orchestrator:pre_execute", action="deny", reason="not today")
        assert await PipelineOrchestrator(coordinator).execute("x") == "Operation denied: not today"

    async def test_modify_changes_the_input(self, coordinator: ModuleCoordinator) -> None:
        answer_with(coordinator.hooks, "orchestrator:pre_execute", action="modify", data={"input": "y"})
        assert await PipelineOrchestrator(coordinator).execute("x") == "answer to y"

    async def test_a_post_hook_may_suppress_the_output(self, coordinator: ModuleCoordinator) -> None:
        answer_with(coordinator.hooks, "orchestrator:post_execute", suppress_output=True)
        assert await PipelineOrchestrator(coordinator).execute("x") is None

    async def test_an_injection_says_which_hook_it_is_from(self, coordinator: ModuleCoordinator) -> None:
        context = await context_simple.mount(coordinator, {})
        answer_with(
            coordinator.hooks, "orchestrator:pre_execute", action="inject_context", context_injection="remember"
        )
        await PipelineOrchestrator(coordinator).execute("x")
        [row] = await context.get_messages()
        assert row["metadata"]["hook_name"] == "the hook"

    async def test_there_is_no_action_modify_input(self) -> None:
        with pytest.raises(ValueError, match="action"):
            HookResult(action="modify_input")

    async def test_emit_gives_one_result(self, coordinator: ModuleCoordinator) -> None:
        for _ in range(2):
            answer_with(coordinator.hooks, "e", user_message="look")
        assert isinstance(await coordinator.hooks.emit("e", {}), HookResult)


class TestExamplesContributionChannel:
    async def test_all_capabilities_are_listed(self, coordinator: ModuleCoordinator) -> None:
        coordinator.register_contributor(
            "capabilities", "tool-filesystem", lambda: ["file:read", "file:write", "file:list"]
        )
        coordinator.register_contributor(
            "observability.events", "tool-filesystem", lambda: ["file:accessed", "file:modified"]
        )
        coordinator.register_contributor(
            "capabilities", "tool-task", lambda: ["task:create", "task:status", "task:complete"]
        )
        all_capabilities: list[str] = []
        for cap_list in await coordinator.collect_contributions("capabilities"):
            all_capabilities.extend(cap_list)
        assert all_capabilities == [
            "file:read", "file:write", "file:list", "task:create", "task:status", "task:complete"
        ]  # fmt: skip
        assert ["file:accessed", "file:modified"] in await coordinator.collect_contributions("observability.events")


async def delegate_to_research_agent(coordinator: ModuleCoordinator, query: str, recorder: Recorder) -> str:
    """The document's delegation; `recorder` listens to what the child emits."""
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


class TestExamplesChildSessionSpawning:
    @pytest.fixture
    async def delegated(self, shipped_plan: dict[str, Any]) -> Recorder:
        plan = {**shipped_plan, "agents": {"research": {"context": {"config": {"system_prompt": "You do research."}}}}}
        recorder = Recorder()
        async with AmplifierSession(plan, session_id="parent") as session:
            assert await delegate_to_research_agent(session.coordinator, "Hello", recorder)
        return recorder

    async def test_the_child_emits_session_fork_when_it_is_initialised(self, delegated: Recorder) -> None:
        assert delegated.names()[:2] == ["session:fork", "session:start"]
        assert delegated.of("session:fork")[0]["parent"] == "parent"

    async def test_every_event_of_the_child_names_the_parent(self, delegated: Recorder) -> None:
        assert {data["parent_id"] for _, data in delegated.seen} == {"parent"}
        assert len({data["session_id"] for _, data in delegated.seen} | {"parent"}) == 2

    async def test_the_overlay_customises_the_child(self, delegated: Recorder) -> None:
        [request] = delegated.of("provider:request")
        assert request["messages"][0] == {"role": "system", "content": "You do research."}

    async def test_the_child_has_the_parents_providers_and_tools(self, delegated: Recorder) -> None:
        [start] = delegated.of("session:start")
        assert [entry["module"] for entry in start["config"]["tools"]] == ["tool-filesystem", "tool-todo"]
        assert delegated.of("provider:request")[0]["provider"] == "demo"

    def test_the_parents_configuration_stays_as_it_was(self, shipped_plan: dict[str, Any]) -> None:
        session = AmplifierSession(shipped_plan)
        overlay = {"session": {"orchestrator": "another"}, "tools": [{"module": "tool-x"}]}
        merged = session._merge_configs(session.config, overlay)
        assert merged["session"]["orchestrator"] == {"module": "another"}
        assert merged["session"]["context"] == {"module": "context-simple"}
        assert session.config["session"]["orchestrator"] == "loop-interactive"
        assert [entry["module"] for entry in session.config["tools"]] == ["tool-filesystem", "tool-todo"]
