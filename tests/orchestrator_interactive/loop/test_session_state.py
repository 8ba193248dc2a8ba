"""Pending messages pass from one run to the next of the session, and nothing else does."""

import asyncio
from typing import Any

import pytest
from agents import after, call, deaf, delivered, echo, fail, make_agent, never, say, soon, streaming, text_of, told, use

from orchestrator_interactive import Injection
from orchestrator_interactive.kernel import HookResult
from orchestrator_interactive.kernel.contracts.errors import ProviderUnavailableError

DOWN = fail(ProviderUnavailableError("down"))


def _is_injection(row: dict[str, Any]) -> bool:
    return "injections" in (row.get("metadata") or {})


class TestPendingMessages:
    async def test_those_of_a_failed_run_lead_the_next_one_once_and_in_order(self) -> None:
        gate = asyncio.Event()
        agent = await make_agent(after(gate, DOWN), say("ok"), say("ok"), max_retries=0)
        run = await agent.steered(Injection("one", id="1"), Injection("two", id="2"))
        gate.set()
        with pytest.raises(ProviderUnavailableError):
            await run
        await agent.run("second")
        await agent.run("third")
        texts = [text.splitlines()[-1] for role, text in await agent.told() if role == "user"]
        assert texts == ["go", "- two", "second", "third"]
        assert await delivered(agent) == ["1", "2"]

    async def test_an_urgent_one_of_a_stopped_run_leads_the_next_one_and_does_not_interrupt_it(self) -> None:
        gate = asyncio.Event()
        agent = await make_agent(never(), after(gate, say("whole")))
        run = await agent.asked()
        agent.token.request_graceful()
        agent.inject("!now")
        await soon(run)
        agent.token.reset()
        run = await agent.asked(2, "next")
        gate.set()
        assert await soon(run) == "whole"
        assert agent.provider.cancelled == 1
        assert [text.endswith("- !now") for _, text in await agent.told()] == [False, True, False, False]

    async def test_those_whose_row_the_log_refuses_keep_their_order(self) -> None:
        agent = await make_agent(say("one"), say("two"))
        agent.progress.act_on("thinking", lambda: agent.inject(Injection("first", id="1")))
        agent.context.refuse(lambda row: _is_injection(row) and agent.inject(Injection("second", id="2")))
        with pytest.raises(OSError, match="disk full"):
            await agent.run()
        agent.context.accept()
        await agent.run("again")
        assert await delivered(agent) == ["1", "2"]

    async def test_one_whose_row_was_written_though_the_log_failed_is_read_once(self) -> None:
        async def fail_late(row: dict[str, Any]) -> None:
            if _is_injection(row):
                agent.context.accept()
                raise OSError("Whether the row was written is not known.")

        gate = asyncio.Event()
        agent = await make_agent(after(gate, say("one")), say("two"))
        agent.context.after = fail_late
        run = await agent.steered(Injection("steer", id="m1"))
        gate.set()
        with pytest.raises(OSError, match="not known"):
            await soon(run)
        assert await agent.run("next") == "two"
        assert await delivered(agent) == ["m1"]
        assert [(receipt.id, receipt.state) for receipt in agent.receipts()] == [("m1", "delivered")]
        assert [data["ids"] for data in agent.progress.of("injection:applied")] == [["m1"]]

    @pytest.mark.parametrize("moment", ["before", "after"])
    async def test_a_run_cancelled_while_their_row_is_committed_neither_loses_nor_doubles_them(
        self, moment: Any
    ) -> None:
        agent = await make_agent(say("ok"))
        reached = agent.context.hold(moment, _is_injection)
        agent.inject(Injection("one", id="1"))
        run = agent.start()
        await soon(reached.wait())
        run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await soon(run)
        agent.context.accept()
        await agent.run("again")
        assert await delivered(agent) == ["1"]

    async def test_those_of_a_run_whose_prompt_is_denied_lead_the_next_one(self) -> None:
        agent = await make_agent(say("ok"))
        agent.inject(Injection("one", id="1"))
        end = agent.on_hook("prompt:submit", HookResult(action="deny", reason="no"))
        await agent.run()
        assert await delivered(agent) == []
        end()
        await agent.run("again")
        assert told(agent.provider.sent(0))[-1] == ("user", "again")
        assert await delivered(agent) == ["1"]


class TestTwoRunsAtOnce:
    async def test_the_second_is_refused_and_harms_nothing(self) -> None:
        gate = asyncio.Event()
        agent = await make_agent(after(gate, say("one")), say("two"))
        run = await agent.asked()
        with pytest.raises(RuntimeError):
            await agent.session.execute("another")
        agent.inject(Injection("more", id="1"))
        gate.set()
        assert await run == "two"
        assert await delivered(agent) == ["1"]

    async def test_the_second_does_not_undo_the_stop_of_the_first(self) -> None:
        agent = await make_agent(call(use("echo", "a")), say("went on"), tools=[echo()], stop_grace_s=0)
        run = await agent.held_at("tool:post")
        agent.stop()
        with pytest.raises(RuntimeError):
            await agent.session.execute("another")
        assert await soon(run) != "went on"
        assert agent.complete()["status"] == "cancelled"


class TestNothingElseStays:
    async def test_an_interrupted_text_is_shown_in_its_own_run_only(self) -> None:
        agent = await make_agent(streaming("Half an ", then=never()), say("Yes?"), say("Something else."))
        await soon(await agent.steered("!wait"))
        assert await agent.run("next") == "Something else."
        assert agent.shown() == ["Half an "]

    async def test_a_model_that_answers_long_after_its_run_was_stopped_says_nothing_in_the_next_one(self) -> None:
        release = asyncio.Event()
        agent = await make_agent(deaf(release, say("late")), say("mine"))
        await agent.stopped(await agent.asked())
        agent.events.listen(agent.hooks, "provider:request").act_on("provider:request", release.set)
        assert await agent.run("next") == "mine"
        assert [text for role, text in await agent.told() if role == "assistant"] == ["mine"]

    async def test_the_attempts_of_a_failed_run_do_not_count_in_the_next_one(self) -> None:
        agent = await make_agent(DOWN, DOWN, DOWN, say("ok"), max_retries=1, retry_base_delay_s=0)
        with pytest.raises(ProviderUnavailableError):
            await agent.run()
        assert await agent.run("again") == "ok"
        assert [data["attempt"] for data in agent.progress.of("retrying")] == [1, 1]
        assert text_of(agent.provider.sent()[-1]) == "again"
