"""Coordinator API: the examples, as the document writes them where its own text allows."""

from typing import Any

import pytest
from agents import Recorder

from orchestrator_interactive.kernel import AmplifierSession, HookRegistry, HookResult, ModuleCoordinator
from orchestrator_interactive.modules import context_simple


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
    async def test_a_pipeline_applies_the_result_of_a_hook(self, coordinator, event, fields, answer) -> None:
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
