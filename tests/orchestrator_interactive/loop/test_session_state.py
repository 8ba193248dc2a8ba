"""What a run leaves behind, and that none of it meddles with the run after it."""

import asyncio
from typing import Any

import pytest
from agents import ScriptedTool, after, call, deaf, fail, make_agent, never, say, soon, streaming, text_of, use

from orchestrator_interactive import Injection
from orchestrator_interactive.kernel.contracts import errors


async def test_an_urgent_message_that_a_stopped_run_did_not_read_leads_the_next_one_and_cuts_nothing_of_it() -> None:
    gate = asyncio.Event()
    agent = await make_agent(never(), after(gate, say("whole")))
    run = agent.start()
    await agent.provider.asked(1)
    agent.token.request_graceful()
    agent.inject("!now")
    await soon(run)
    agent.token.reset()
    run = agent.start("next")
    await agent.provider.asked(2)
    gate.set()
    assert await soon(run) == "whole"
    assert agent.provider.cancelled == 1
    assert [text.endswith("- !now") for _, text in await agent.told()] == [False, True, False, False]


async def test_what_an_urgent_message_cut_is_shown_in_its_own_run_only() -> None:
    agent = await make_agent(streaming("Half an ", then=never()), say("Yes?"), say("Something else."))
    run = agent.start()
    await agent.provider.asked(1)
    agent.inject("!wait")
    await soon(run)
    assert await agent.run("next") == "Something else."
    assert [told["text"] for told in agent.progress.of("text")] == ["Half an "]


async def test_a_model_that_answers_long_after_its_run_was_stopped_says_nothing_in_the_next_one() -> None:
    release = asyncio.Event()
    agent = await make_agent(deaf(release, say("late")), say("mine"))
    run = agent.start()
    await agent.provider.asked(1)
    agent.stop()
    await soon(run)
    agent.token.reset()
    agent.events.listen(agent.hooks, "provider:request").act_on("provider:request", release.set)
    assert await agent.run("next") == "mine"
    assert [text for role, text in await agent.told() if role == "assistant"] == ["mine"]


@pytest.mark.parametrize("immediate", [False, True])
async def test_nobody_is_told_that_a_run_is_over_before_its_tools_are(immediate: bool) -> None:
    slow_to_go = asyncio.Event()
    order: list[str] = []

    async def clean_up_slowly(_input: object) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await slow_to_go.wait()
            order.append("cleaned up")

    tool = ScriptedTool("hang", clean_up_slowly)
    agent = await make_agent(call(use("hang", "a")), tools=[tool], stop_grace_s=0.01)
    agent.events.listen(agent.hooks, "execution:end").act_on("execution:end", lambda: order.append("told"))
    run = agent.start()
    await tool.started()
    asyncio.get_running_loop().call_later(0.05, slow_to_go.set)
    agent.stop(immediate=immediate)
    await soon(run)
    assert order == ["cleaned up", "told"]


async def test_a_failed_run_leaves_nothing_of_its_patience_to_the_next_one() -> None:
    down = fail(errors.ProviderUnavailableError("down"))
    agent = await make_agent(down, down, down, say("ok"), max_retries=1, retry_base_delay_s=0)
    with pytest.raises(errors.ProviderUnavailableError):
        await agent.run()
    assert await agent.run("again") == "ok"
    assert [told["attempt"] for told in agent.progress.of("retrying")] == [1, 1]
    assert text_of(agent.provider.sent()[-1]) == "again"


async def test_a_message_whose_row_was_written_though_the_log_failed_is_read_once() -> None:
    async def fail_late(row: dict[str, Any]) -> None:
        if "injections" in row.get("metadata", {}):
            agent.context.after = None
            raise OSError("Whether the row was written is not known.")

    gate = asyncio.Event()
    agent = await make_agent(after(gate, say("one")), say("two"))
    agent.context.after = fail_late
    run = agent.start()
    await agent.provider.asked(1)
    agent.inject(Injection("steer", id="m1"))
    gate.set()
    with pytest.raises(OSError, match="not known"):
        await soon(run)
    assert await agent.run("next") == "two"
    assert [
        row["metadata"]["injections"]
        for row in await agent.history()
        if "metadata" in row and "injections" in row["metadata"]
    ] == [["m1"]]
    assert [(receipt.id, receipt.state) for receipt in agent.receipts()] == [("m1", "delivered")]
    assert [told["ids"] for told in agent.progress.of("injection:applied")] == [["m1"]]
