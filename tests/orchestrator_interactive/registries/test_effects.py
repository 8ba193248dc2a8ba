"""`post_effects`: they follow a success in order, and the result reports their failure."""

from collections.abc import Iterator
from typing import Any

import pytest
from agents import call, make_agent, say, use

from orchestrator_interactive.kernel import ToolResult
from orchestrator_interactive.kernel.contracts.messages import TextBlock
from orchestrator_interactive.registries import ToolContext, ToolRegistry, mount_tools, register_effect, tool
from orchestrator_interactive.registries.schemas import ToolConfig

effects_run: list[Any] = []


@pytest.fixture(autouse=True)
def _no_effects() -> Iterator[None]:
    effects_run.clear()
    yield
    effects_run.clear()


@register_effect("note_it")
async def note_it(result: ToolResult, context: ToolContext | None) -> None:
    effects_run.append(("noted", result.output, context and context.conversation_id))


@register_effect("count_it")
def count_it(_result: ToolResult, _context: ToolContext | None) -> None:
    effects_run.append("counted")


@register_effect("break_it")
async def break_it(_result: ToolResult, _context: ToolContext | None) -> None:
    raise OSError("no disk")


def registry(*effects: str, succeeds: bool = True, content: Any = None, **config: Any) -> ToolRegistry:
    async def act() -> ToolResult:
        return ToolResult(success=succeeds, output={"done": 1}, content=content)

    made = tool(ToolConfig(name="act", description="Acts.", post_effects=list(effects), **config))(act)
    return ToolRegistry([made])


async def test_effects_follow_a_success_in_order() -> None:
    made = registry("count_it", "note_it", "count_it").get_tool_by_name("act")
    assert (await made.execute({})).output == {"done": 1}
    assert effects_run == ["counted", ("noted", {"done": 1}, None), "counted"]
    await registry("count_it", succeeds=False).get_tool_by_name("act").execute({})
    assert len(effects_run) == 3


@pytest.mark.parametrize(("content", "shown"), [(None, '{"done": 1}'), ([TextBlock(text="a picture")], "a picture")])
async def test_the_result_reports_a_failed_effect_and_the_others_run(content: Any, shown: str) -> None:
    made = registry("break_it", "count_it", content=content).get_tool_by_name("act")
    result = await made.execute({})
    assert (result.success, result.output, effects_run) == (True, {"done": 1}, ["counted"])
    assert [block.text for block in result.content or ()] == [
        shown,
        "[The call succeeded, but its effect 'break_it' failed: no disk]",
    ]


async def test_a_cached_result_has_no_effects() -> None:
    made = registry("count_it", cache_ttl=60).get_tool_by_name("act")
    await made.execute({})
    await made.execute({})
    assert effects_run == ["counted"]


async def test_a_tool_with_effects_runs_in_each_conversation() -> None:
    tools = registry("note_it", dedup_ttl=60)
    sessions = []
    for _ in range(2):
        agent = await make_agent(call(use("act", "a"), use("act", "b")), say("ok"))
        await mount_tools(agent.coordinator, ["act"], tools)
        await agent.run()
        sessions.append(agent.session.session_id)
    assert [session for _, _, session in effects_run] == sessions
