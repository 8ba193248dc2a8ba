"""What a tool call may take: so much time, and so much of the model's attention."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from agents import (
    ScriptedTool,
    call,
    deaf_tool,
    echo,
    gated,
    goes_on,
    having,
    make_agent,
    results,
    returning,
    say,
    text_of,
    use,
)
from hypothesis import given
from hypothesis import strategies as st
from virtual_time import in_virtual_time

from orchestrator_interactive.kernel import HookResult, ToolResult
from orchestrator_interactive.kernel.contracts.messages import ImageBlock, TextBlock

if TYPE_CHECKING:
    from agents import Agent

CAP = 100
PICTURE = ImageBlock(source={"type": "base64", "media_type": "image/png", "data": "aGk=" * CAP})


class TestTime:
    @pytest.mark.parametrize(
        ("own", "option", "limit"),
        [(None, {}, 600), (None, {"tool_timeout_s": 5}, 5), (2.5, {"tool_timeout_s": 5}, 2.5), (900, {}, 900)],
        ids=["default", "configured", "its own", "its own is longer"],
    )
    @in_virtual_time
    async def test_a_call_is_cut_when_its_time_is_up(
        self, own: float | None, option: dict[str, Any], limit: float
    ) -> None:
        tool = having(gated(asyncio.Event()), **({"timeout_s": own} if own else {}))
        agent = await make_agent(call(use("wait", "a")), say("ok"), tools=[tool], **option)
        began_s = asyncio.get_running_loop().time()
        assert await agent.start() == "ok"
        assert asyncio.get_running_loop().time() - began_s == pytest.approx(limit)
        assert tool.cancelled == 1
        [row] = [row for row in await agent.history() if row["role"] == "tool"]
        assert f"after {limit:g} seconds" in row["content"]
        assert "unknown" in row["content"]
        assert row["metadata"]["is_error"]

    @in_virtual_time
    async def test_its_events_are_closed_and_its_outcome_is_told(self) -> None:
        tools = [having(gated(asyncio.Event(), name), timeout_s=1) for name in ("wait", "look")]
        having(tools[1], side_effect_free=True)
        agent = await make_agent(call(use("wait", "a"), use("look", "b")), say("ok"), tools=tools)
        agent.events.listen(agent.hooks, "tool:pre", "tool:post", "tool:error")
        await agent.start()
        assert sorted(agent.events.names()) == ["tool:error"] * 2 + ["tool:pre"] * 2
        assert [(data["id"], data["success"]) for data in agent.progress.of("tool:end")] == [("a", False), ("b", False)]
        told = agent.progress.of("complete")[0]["tools"]
        assert [each["outcome"] for each in told] == ["unknown", "cancelled"]

    @in_virtual_time
    async def test_its_siblings_are_not_harmed(self) -> None:
        gate = asyncio.Event()
        tools = [having(gated(asyncio.Event(), "stuck"), timeout_s=1), gated(gate), echo()]
        batch = call(use("stuck", "a"), use("wait", "b", text="slow"), use("echo", "c", text="quick"))
        agent = await make_agent(batch, say("ok"), tools=tools)
        asyncio.get_running_loop().call_later(60, gate.set)
        assert await agent.start() == "ok"
        outcomes = await results(agent)
        assert list(outcomes) == ["c", "a", "b"]
        assert (outcomes["b"], outcomes["c"]) == ("slow", "quick")

    @in_virtual_time
    async def test_one_that_is_deaf_does_not_hold_the_run_and_reports_nothing_afterwards(self) -> None:
        release = asyncio.Event()
        tool = having(deaf_tool(release), timeout_s=1)
        agent = await make_agent(call(use("deaf", "a")), say("ok"), tools=[tool])
        assert await agent.start() == "ok"
        assert "after 1 seconds" in (await results(agent))["a"]
        told = len(agent.progress.seen)
        release.set()
        for _ in range(10):
            await asyncio.sleep(0)
        assert tool.finished == 1
        assert len(agent.progress.seen) == told

    @in_virtual_time
    async def test_one_that_finishes_while_it_is_cut_keeps_its_result(self) -> None:
        async def rolls_back(_input: dict[str, Any]) -> str:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                return "rolled back"
            return "unreachable"

        tool = having(ScriptedTool("write", rolls_back), timeout_s=1)
        agent = await make_agent(call(use("write", "a")), say("ok"), tools=[tool])
        await agent.start()
        assert await results(agent) == {"a": "rolled back"}
        assert agent.progress.of("complete")[0]["tools"][0]["outcome"] == "finished"

    @in_virtual_time
    async def test_the_time_in_which_a_person_is_asked_does_not_count(self) -> None:
        gate, tool = asyncio.Event(), having(echo(), timeout_s=1)
        agent = await make_agent(call(use("echo", "a", text="done")), say("ok"), tools=[tool])
        agent.events.listen(agent.hooks, "tool:pre", "tool:post")
        agent.events.hold("tool:pre", gate)
        asyncio.get_running_loop().call_later(20, gate.set)
        await agent.start()
        assert await results(agent) == {"a": "done"}

    @in_virtual_time
    async def test_nor_does_the_time_in_which_hooks_look_at_its_result(self) -> None:
        gate, tool = asyncio.Event(), having(returning("done"), timeout_s=1)
        agent = await make_agent(call(use("give", "a")), say("ok"), tools=[tool])
        agent.events.listen(agent.hooks, "tool:post").hold("tool:post", gate)
        asyncio.get_running_loop().call_later(20, gate.set)
        await agent.start()
        assert await results(agent) == {"a": "done"}

    @pytest.mark.parametrize("nonsense", ["soon", -1, 0, float("nan")])
    @in_virtual_time
    async def test_a_limit_that_makes_no_sense_does_not_take_the_run_down(self, nonsense: Any) -> None:
        tool = having(echo(), timeout_s=nonsense)
        agent = await make_agent(call(use("echo", "a"), use("echo", "b")), say("ok"), tools=[tool])
        assert await agent.start() == "ok"
        assert list(await results(agent)) == ["a", "b"]


async def _shown(result: Any, **more: Any) -> tuple[Agent, dict[str, Any]]:
    agent = await make_agent(call(use("give", "a")), say("ok"), tools=[returning(result)], max_result_chars=CAP, **more)
    await agent.run()
    [row] = [row for row in await agent.history() if row["role"] == "tool"]
    return agent, row


class TestSize:
    @pytest.mark.parametrize("length", [CAP - 1, CAP])
    async def test_a_result_up_to_the_cap_is_shown_as_it_is(self, length: int) -> None:
        _, row = await _shown("x" * length)
        assert row["content"] == "x" * length
        assert row.get("metadata", {}) == {}

    @given(st.text(st.characters(codec="utf-8", exclude_categories=["C"]), min_size=CAP + 1, max_size=5 * CAP))
    def test_of_a_larger_one_the_head_and_the_tail_are_shown_and_between_them_what_is_left_out(self, text: str) -> None:
        _, row = asyncio.run(_shown(text))
        head, rest = row["content"].split("\n[… ")
        count, tail = rest.split(" characters are left out here …]\n")
        assert text.startswith(head)
        assert text.endswith(tail)
        assert len(head) + int(count) + len(tail) == len(text)
        assert len(head) + len(tail) == CAP
        assert row["metadata"] == {"whole": text}

    async def test_the_log_has_the_whole_and_the_model_does_not(self) -> None:
        whole = "a" * CAP + "SECRET" + "b" * CAP
        agent, row = await _shown(whole)
        assert row["metadata"]["whole"] == whole
        assert "SECRET" not in agent.provider.requests[1].model_dump_json()
        await goes_on(agent)
        assert agent.provider.prefix_breaks() == []

    async def test_an_error_is_capped_too_and_stays_one(self) -> None:
        _, row = await _shown(ToolResult(success=False, error={"message": "x" * 500}))
        assert "400 characters are left out" in row["content"]
        assert row["metadata"] == {"is_error": True, "whole": "x" * 500}

    async def test_data_are_capped_as_what_the_model_reads_of_them(self) -> None:
        _, row = await _shown({"found": ["line"] * 100})
        assert row["content"].startswith('{"found": ["line", ')
        assert row["metadata"]["whole"].endswith('"line"]}')

    async def test_pictures_do_not_count_and_stay(self) -> None:
        blocks = [TextBlock(text="x" * CAP), PICTURE]
        _, row = await _shown(ToolResult(content=blocks))
        assert row["content"] == [block.model_dump(exclude_none=True) for block in blocks]

    async def test_the_texts_of_several_blocks_count_together(self) -> None:
        blocks = [TextBlock(text="x" * CAP), PICTURE, TextBlock(text="y" * CAP)]
        agent, row = await _shown(ToolResult(content=blocks))
        assert "left out here" in text_of(row)
        assert sorted(block["type"] for block in row["content"]) == ["image", "text"]
        assert row["metadata"]["whole"] == [block.model_dump(exclude_none=True) for block in blocks]
        await goes_on(agent)

    async def test_hooks_see_the_whole_and_what_they_make_of_it_is_capped(self) -> None:
        agent = await make_agent(call(use("give", "a")), say("ok"), tools=[returning("x" * 500)], max_result_chars=CAP)
        agent.events.listen(agent.hooks, "tool:post")
        agent.on_hook("tool:post", HookResult(action="modify", data={"tool_result": "y" * 300}))
        await agent.run()
        assert agent.events.of("tool:post")[0]["tool_result"].output == "x" * 500
        [row] = [row for row in await agent.history() if row["role"] == "tool"]
        assert "200 characters are left out" in row["content"]
        assert row["metadata"] == {"whole": "y" * 300}

    async def test_a_small_cap_is_refused(self) -> None:
        with pytest.raises(Exception, match="max_result_chars"):
            await make_agent(max_result_chars=99)
