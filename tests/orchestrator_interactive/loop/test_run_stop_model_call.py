"""Stopping a run while the model is asked: what it said is kept, and nothing it asked for is done."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from agents import (
    answer,
    call,
    deaf,
    doing,
    echo,
    fail,
    goes_on,
    make_agent,
    never,
    say,
    soon,
    streaming,
    use,
)

from orchestrator_interactive.kernel.contracts.errors import ProviderUnavailableError
from orchestrator_interactive.kernel.contracts.messages import TextBlock, ThinkingBlock, ToolCallBlock

if TYPE_CHECKING:
    from collections.abc import Callable

    from agents import Agent

# Far longer than a test takes: a grace period that ends by itself would be a hang.
LONG_S = 600


def _soon_stop(agent: Callable[[], Agent]) -> Callable[[], object]:
    """Stop right after the step that is running now, before anybody has seen its outcome."""
    return lambda: asyncio.get_running_loop().call_soon(agent().stop)


async def test_a_stop_during_the_model_call_keeps_the_text_so_far() -> None:
    agent = await make_agent(streaming("Half a ", "sentence", then=never()))
    run = agent.start()
    await agent.provider.asked(1)
    assert agent.stop()
    assert await soon(run) == "Half a sentence"
    assert (await agent.told())[1:] == [("assistant", "Half a sentence")]
    assert agent.provider.cancelled == 1
    await goes_on(agent)


async def test_a_stop_drops_unsigned_thinking_and_tool_calls_and_keeps_the_rest() -> None:
    blocks = (
        ThinkingBlock(thinking="signed", signature="s"),
        TextBlock(text="Whole."),
        ThinkingBlock(thinking="cut"),
        ToolCallBlock(id="a", name="echo", input={}),
    )
    agent = await make_agent(streaming(*blocks, " And a tail", then=never()), tools=[echo()])
    run = agent.start()
    await agent.provider.asked(1)
    agent.stop()
    assert await soon(run) == "Whole. And a tail"
    kept = (await agent.history())[-1]["content"]
    assert [block["type"] for block in kept] == ["thinking", "text", "text"]
    assert kept[0]["signature"] == "s"
    await goes_on(agent)


async def test_text_whose_block_is_finished_is_kept_once() -> None:
    agent = await make_agent(streaming("Wh", "ole.", TextBlock(text="Whole."), then=never()))
    run = agent.start()
    await agent.provider.asked(1)
    agent.stop()
    assert await soon(run) == "Whole."


async def test_a_stop_before_the_model_said_anything_leaves_no_answer() -> None:
    agent = await make_agent(never())
    run = agent.start()
    await agent.provider.asked(1)
    agent.stop()
    assert await soon(run) == ""
    assert await agent.told() == [("user", "go")]
    await goes_on(agent)


async def test_thinking_alone_is_not_kept() -> None:
    agent = await make_agent(streaming(ThinkingBlock(thinking="hm", signature="s"), then=never()))
    run = agent.start()
    await agent.provider.asked(1)
    agent.stop()
    await soon(run)
    assert await agent.told() == [("user", "go")]


async def test_blank_text_alone_is_not_kept() -> None:
    agent = await make_agent(streaming(" \n", then=never()))
    run = agent.start()
    await agent.provider.asked(1)
    agent.stop()
    await soon(run)
    await goes_on(agent)


async def test_a_stop_at_the_instant_the_answer_is_whole_runs_none_of_its_tools() -> None:
    tool = echo()
    agent = await make_agent(doing(_soon_stop(lambda: agent), call(use("echo", "a"), text="I will")), tools=[tool])
    assert await agent.run() == "I will"
    assert tool.inputs == []
    await goes_on(agent)


@pytest.mark.parametrize("pieces", [(), ("all ", "of it"), ("all of it", TextBlock(text="all of it"))])
async def test_a_stop_at_the_instant_the_last_answer_is_whole_keeps_it_as_cancelled(pieces: Any) -> None:
    agent = await make_agent(doing(_soon_stop(lambda: agent), streaming(*pieces, then=say("all of it"))))
    assert await agent.run() == "all of it"
    assert (await agent.told())[1:] == [("assistant", "all of it")]
    assert agent.progress.of("complete")[0]["status"] == "cancelled"
    await goes_on(agent)


async def test_a_stop_while_the_provider_fails_is_a_stop() -> None:
    async def fails(request: Any, stream: Any) -> Any:
        agent.stop()
        return await fail(ProviderUnavailableError("down"))(request, stream)

    agent = await make_agent(fails)
    assert await agent.run() == ""
    await goes_on(agent)


async def test_a_provider_that_answers_its_cancellation_is_not_shown_as_done() -> None:
    async def polite(_request: Any, _stream: Any) -> Any:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return await answer(TextBlock(text="in time"), ToolCallBlock(id="a", name="echo", input={}))(None, None)

    agent = await make_agent(polite, tools=[echo()])
    run = agent.start()
    await agent.provider.asked(1)
    agent.stop()
    assert await soon(run) == "in time"
    await goes_on(agent)


async def test_a_deaf_provider_does_not_hold_the_run() -> None:
    release = asyncio.Event()
    agent = await make_agent(streaming("so far", then=deaf(release, say("late"))))
    run = agent.start()
    await agent.provider.asked(1)
    agent.stop()
    assert await soon(run) == "so far"
    await goes_on(agent)
    before = await agent.told()
    release.set()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert await agent.told() == before


async def test_an_answer_that_a_hook_still_looks_at_is_not_let_past_it() -> None:
    agent = await make_agent(say("secret"))
    agent.events.listen(agent.hooks, "provider:response").hold("provider:response", asyncio.Event())
    run = agent.start()
    await agent.events.reached("provider:response")
    agent.stop()
    assert await soon(run) == ""
    assert "secret" not in str(await agent.history())
