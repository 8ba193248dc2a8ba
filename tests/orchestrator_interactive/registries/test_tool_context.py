"""Registered tools in sessions, with the context of their conversation."""

from pathlib import Path
from typing import Any

import pytest
from agents import call, echo, make_agent, results, say, use
from registry_fixtures import RegistryFixture

from orchestrator_interactive.interactions.states import UserMessageState
from orchestrator_interactive.registries import NotRegistered, ToolContext, ToolRegistry, mount_tools, tool
from orchestrator_interactive.registries.schemas import ToolConfig
from orchestrator_interactive.validation import validate

MODULE = """
from orchestrator_interactive.registries import ToolRegistry, mount_tools, tool
from orchestrator_interactive.registries.schemas import ToolConfig


@tool(ToolConfig(name="get_weather", description="Tells the weather.", side_effect_free=True, cache_ttl=60))
async def get_weather(location: str, days: int = 1) -> dict[str, int]:
    return {location: days}


async def mount(coordinator, config):
    await mount_tools(coordinator, ["get_weather"], ToolRegistry([get_weather]))
"""


def located(**config: Any) -> Any:
    @tool(ToolConfig(name="where_am_i", description="Tells where.", requires_context=True, **config))
    async def where_am_i(context: ToolContext) -> list[Any]:
        last = await context.stack.at(0) if context.stack else None
        said = last.text if isinstance(last, UserMessageState) else None
        return [context.conversation_id, context.agent_id, said]

    return where_am_i


async def test_a_model_calls_a_registered_tool() -> None:
    registry = ToolRegistry([located(), echo()])
    agent = await make_agent(call(use("echo", "a", text="hi"), use("where_am_i", "b")), say("ok"))
    await mount_tools(agent.coordinator, ["where_am_i", "echo"], registry)
    assert await agent.run() == "ok"
    assert await results(agent) == {"a": "hi", "b": f'["{agent.session.session_id}", "", null]'}  # without a log
    assert [each.name for each in agent.provider.requests[0].tools or ()] == ["where_am_i", "echo"]


async def test_an_unknown_tool_is_an_error_and_nothing_is_mounted() -> None:
    agent = await make_agent(say("ok"))
    with pytest.raises(NotRegistered, match=r"There is no tool 'fly'\. Registered: echo"):
        await mount_tools(agent.coordinator, ["echo", "fly"], ToolRegistry([echo()]))
    assert agent.coordinator.get("tools") == {}


async def test_a_tool_that_depends_on_the_conversation_is_cached_per_conversation() -> None:
    fixture = RegistryFixture(tools=[located(cache_ttl=60, dedup_ttl=60)])
    steps = call(use("where_am_i", "a")), say("ok")
    script = await fixture.add("alpha", *steps, *steps, *steps, tools=["where_am_i"])
    seen = []
    for message, conversation_id in (("One", "first"), ("Two", "second"), ("Three", "first")):
        await fixture.run("alpha", message, conversation_id)
        seen.append(script.sent()[-1]["content"])
    assert seen == ['["first", "alpha", "One"]', '["second", "alpha", "Two"]', '["first", "alpha", "One"]']


async def test_a_registered_tool_is_valid(tmp_path: Path) -> None:
    path = tmp_path / "weather.py"
    path.write_text(MODULE)
    report = validate(path, "tool", tool_input={"location": "Paris"})
    assert report.passed, report
    assert {finding.outcome for finding in report.findings} == {"passed"}
