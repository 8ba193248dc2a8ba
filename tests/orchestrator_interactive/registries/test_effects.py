"""`post_effects`: what follows a success, in order; a failure of theirs is told and undoes nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from agents import call, make_agent, say, use

from orchestrator_interactive.kernel import ToolResult
from orchestrator_interactive.kernel.contracts.messages import TextBlock
from orchestrator_interactive.registries import ToolContext, ToolRegistry, mount_tools, register_effect, tool
from orchestrator_interactive.registries.schemas import ToolConfig

if TYPE_CHECKING:
    from collections.abc import Iterator

happened: list[Any] = []


@pytest.fixture(autouse=True)
def _nothing_has_happened() -> Iterator[None]:
    happened.clear()
    yield
    happened.clear()


@register_effect("note_it")
async def note_it(result: ToolResult, context: ToolContext | None) -> None:
    happened.append(("noted", result.output, context and context.conversation_id))


@register_effect("count_it")
def count_it(_result: ToolResult, _context: ToolContext | None) -> None:
    happened.append("counted")


@register_effect("break_it")
async def break_it(_result: ToolResult, _context: ToolContext | None) -> None:
    raise OSError("no disk")


def registry(*effects: str, succeeds: bool = True, **config: Any) -> ToolRegistry:
    async def act() -> ToolResult:
        return ToolResult(success=succeeds, output={"done": 1})

    made = tool(ToolConfig(name="act", description="Acts.", post_effects=list(effects), **config))(act)
    return ToolRegistry([made])


async def test_effects_follow_a_success_in_order() -> None:
    made = registry("count_it", "note_it", "count_it").get_tool_by_name("act")
    assert (await made.execute({})).output == {"done": 1}
    assert happened == ["counted", ("noted", {"done": 1}, None), "counted"]


async def test_nothing_follows_a_failure() -> None:
    await registry("count_it", succeeds=False).get_tool_by_name("act").execute({})
    assert happened == []


async def test_an_effect_that_fails_is_told_and_neither_undoes_the_result_nor_keeps_the_others_from_running() -> None:
    made = registry("break_it", "count_it").get_tool_by_name("act")
    result = await made.execute({})
    assert (result.success, result.output, happened) == (True, {"done": 1}, ["counted"])
    assert [block.text for block in result.content or ()] == [
        '{"done": 1}',
        "[The call succeeded, but its effect 'break_it' failed: no disk]",
    ]


async def test_a_kept_result_is_followed_by_nothing_for_nothing_has_run() -> None:
    made = registry("count_it", cache_ttl=60).get_tool_by_name("act")
    await made.execute({})
    await made.execute({})
    assert happened == ["counted"]


async def test_what_a_result_shows_is_still_shown_beside_an_effect_that_failed() -> None:
    async def draw() -> ToolResult:
        return ToolResult(content=[TextBlock(text="a picture")])

    made = tool(ToolConfig(name="draw", description="Draws.", post_effects=["break_it"]))(draw)
    result = await ToolRegistry([made]).get_tool_by_name("draw").execute({})
    assert [block.text[:12] for block in result.content or ()] == ["a picture", "[The call su"]


async def test_what_is_followed_by_effects_happens_in_each_conversation() -> None:
    tools = registry("note_it", dedup_ttl=60)
    sessions = []
    for _ in range(2):
        agent = await make_agent(call(use("act", "a"), use("act", "b")), say("ok"))
        await mount_tools(agent.coordinator, ["act"], tools)
        await agent.run()
        sessions.append(agent.session.session_id)
    assert [session for _, _, session in happened] == sessions


async def test_the_model_reads_of_an_effect_that_failed_and_effects_know_the_session() -> None:
    agent = await make_agent(call(use("act", "a")), say("ok"))
    await mount_tools(agent.coordinator, ["act"], registry("note_it", "break_it"))
    await agent.run()
    assert happened == [("noted", {"done": 1}, agent.session.session_id)]
    [row] = [row for row in await agent.history() if row["role"] == "tool"]
    assert "'break_it' failed: no disk" in str(row["content"])
