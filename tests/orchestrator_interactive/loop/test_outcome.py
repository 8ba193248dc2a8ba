"""What a run leaves: its usage, pending messages for the next run, and a cache that is released when idle."""

import asyncio
import gc
from decimal import Decimal
from typing import Any
from weakref import ref

import pytest
from agents.after_run import delivered
from agents.milestones import soon
from agents.provider import ScriptedProvider, after, call, doing, fail, never, say, streaming, use
from agents.rows import text_of, told
from agents.session import Agent, make_agent
from agents.tools import echo
from virtual_time import in_virtual_time

from orchestrator_interactive import Injection
from orchestrator_interactive.kernel import AmplifierSession, HookResult, ResponseStream
from orchestrator_interactive.kernel.contracts import errors
from orchestrator_interactive.kernel.contracts.errors import ProviderUnavailableError
from orchestrator_interactive.kernel.contracts.messages import ChatRequest, ChatResponse, Usage
from orchestrator_interactive.testing import MockProvider

WHO = errors.AuthenticationError("who?")


NOTHING = {"input_tokens": 0, "output_tokens": 0, "cache_read_tokens": 0, "cache_write_tokens": 0, "cost_usd": None}


def used(read: int = 0, written: int = 0, cost: str | None = None, **more: Any) -> Usage:
    cost_usd = None if cost is None else Decimal(cost)
    return Usage(input_tokens=read, output_tokens=written, total_tokens=read + written, cost_usd=cost_usd, **more)


def look(call_id: str, *usage: Any) -> Any:
    return call(use("echo", call_id), usage=used(*usage))


def _usage(agent: Agent, key: str = "usage") -> tuple[int, int, str | None]:
    usage = agent.complete()[key]
    return usage["input_tokens"], usage["output_tokens"], usage["cost_usd"]


class TestARun:
    async def test_it_is_the_sum_of_its_answers(self) -> None:
        first = used(100, 10, cache_read_tokens=60, cache_write_tokens=30)
        second = used(150, 20, cache_read_tokens=90)
        agent = await make_agent(call(use("echo", "a"), usage=first), say("ok", usage=second), tools=[echo()])
        await agent.run()
        cached = {"cache_read_tokens": 150, "cache_write_tokens": 30}
        assert agent.complete()["usage"] == {"input_tokens": 250, "output_tokens": 30, **cached, "cost_usd": None}

    @pytest.mark.parametrize(("how", "usage"), [("stop", (100, 0, "0.5")), ("urgent message", (300, 10, "0.75"))])
    async def test_an_interrupted_call_has_cost_what_it_had_read(self, how: str, usage: Any) -> None:
        begun = asyncio.Event()

        async def hanging(_request: ChatRequest, stream: ResponseStream) -> ChatResponse:
            stream.usage = used(100, cost="0.5")
            begun.set()
            await asyncio.Event().wait()
            raise AssertionError

        agent = await make_agent(hanging, say("ok", usage=used(200, 10, cost="0.25")))
        run = agent.start()
        await soon(begun.wait())
        agent.inject("!now") if how == "urgent message" else agent.stop()
        await soon(run)
        assert _usage(agent) == usage

    async def test_costs_are_added_exactly_and_an_unknown_one_hides_no_other(self) -> None:
        steps = look("a", 0, 0, "0.1"), look("b", 0, 0, "0.1"), look("c", 5, 5), say("ok", usage=used(cost="0.00003"))
        agent = await make_agent(*steps, tools=[echo()])
        await agent.run()
        assert _usage(agent) == (5, 5, "0.20003")

    async def test_a_provider_that_counts_nothing_has_used_nothing(self) -> None:
        agent = await make_agent(say("ok", usage=None))
        await agent.run()
        assert agent.complete()["usage"] == NOTHING

    async def test_retries_and_both_providers_of_a_fallback_are_counted(self) -> None:
        down = fail(errors.ProviderUnavailableError("down"))
        agent = await make_agent(down, look("a", 7, 3, "0.1"), fail(WHO), tools=[echo()], retry_base_delay_s=0)
        await agent.coordinator.mount("providers", ScriptedProvider(say("ok", usage=used(1, 1, "0.2")), name="other"))
        await agent.run()
        assert _usage(agent) == (8, 4, "0.3")

    async def test_an_answer_that_a_hook_denies_is_counted(self) -> None:
        agent = await make_agent(say("ok", usage=used(7, 3)))
        agent.on_hook("provider:response", HookResult(action="deny", reason="rude"))
        await agent.run()
        assert _usage(agent) == (7, 3, None)

    @pytest.mark.parametrize("how", ["failed", "stopped"])
    async def test_a_failed_or_stopped_run_reports_what_its_complete_answers_used(self, how: str) -> None:
        last = fail(WHO) if how == "failed" else streaming("so", then=never())
        agent = await make_agent(look("a", 7, 3), last, tools=[echo()])
        run = await agent.asked(2)
        if how == "stopped":
            agent.stop()
        await soon(asyncio.wait([run]))
        assert agent.complete()["status"] == ("cancelled" if how == "stopped" else "error")
        assert _usage(agent) == (7, 3, None)

    @pytest.mark.parametrize("instant", ["after the last step of the model", "after the hooks"])
    async def test_an_answer_that_was_complete_at_the_stop_is_counted_in_its_row_too(self, instant: str) -> None:
        agent = await make_agent()

        def stop_next() -> None:
            asyncio.get_running_loop().call_soon(agent.stop)

        answer = say("ok", usage=used(7, 3))
        if instant == "after the hooks":
            agent.events.listen(agent.hooks, "provider:response").act_on("provider:response", stop_next)
        else:
            answer = doing(stop_next, answer)
        agent.provider.add(answer)
        assert await agent.run() == "ok"
        assert agent.complete()["status"] == "cancelled"
        assert _usage(agent) == (7, 3, None)
        assert (await agent.history())[-1]["metadata"]["usage"]["input_tokens"] == 7

    async def test_a_summary_by_the_model_is_counted(self) -> None:
        summary = say("They talked.", usage=used(500, 50, "0.25"))
        config = {"max_tokens": 400, "strategy": "summary", "summary_max_tokens": 100}
        plan = {"context": {"module": "watched", "config": config}}
        agent = await make_agent(summary, say("ok", usage=used(7, 3, "0.5")), plan=plan)
        past = [{"role": role, "content": "words " * 60} for role in ("user", "assistant") * 5]
        await agent.context.set_messages(past)
        assert await agent.run() == "ok"
        assert _usage(agent) == (507, 53, "0.75")


class TestAConversation:
    async def test_it_is_the_sum_of_its_runs_however_they_ended(self) -> None:
        steps = look("a", 1, 0, "0.1"), fail(WHO), look("b", 2, 0, "0.2"), never(), say("ok", usage=used(4, 0, "0.4"))
        agent = await make_agent(*steps, tools=[echo()])
        with pytest.raises(errors.AuthenticationError):
            await agent.run()
        assert _usage(agent, "conversation_usage") == _usage(agent) == (1, 0, "0.1")
        await agent.stopped(await agent.asked(4))
        await agent.run()
        assert _usage(agent) == (4, 0, "0.4")
        assert _usage(agent, "conversation_usage") == (7, 0, "0.7")

    async def test_a_denied_prompt_has_used_nothing(self) -> None:
        agent = await make_agent()
        agent.on_hook("prompt:submit", HookResult(action="deny", reason="not on Sundays"))
        await agent.run()
        assert [agent.complete()["usage"], agent.complete()["conversation_usage"]] == [NOTHING, NOTHING]

    async def test_the_log_keeps_it_for_the_next_session_and_the_model_never_reads_it(self) -> None:
        before = await make_agent(look("a", 7, 3, "0.1"), say("ok", usage=used(8, 2, "0.02")), tools=[echo()])
        await before.run()
        after = await make_agent(say("again", usage=used(5, 5, "0.003")))
        await after.context.set_messages(await before.history())
        await after.run()
        assert _usage(after) == (5, 5, "0.003")
        assert _usage(after, "conversation_usage") == (20, 10, "0.123")
        assert "usage" not in after.provider.requests[0].model_dump_json()

    @pytest.mark.parametrize(
        "metadata",
        [
            {"usage": {"prompt_tokens": 5}},
            {"usage": {"input_tokens": "many", "output_tokens": None, "cost_usd": "a lot"}},
            {"usage": {"input_tokens": 1, "output_tokens": 1, "cost_usd": "NaN"}},
            {"usage": 12},
            {"usage": ["input_tokens"]},
        ],
        ids=str,
    )
    async def test_metadata_of_another_form_does_no_harm(self, metadata: Any) -> None:
        agent = await make_agent(say("ok", usage=used(7, 3, "0.1")), max_cost_usd="1")
        past = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "ho", "metadata": metadata}]
        await agent.context.set_messages(past)
        assert await agent.run() == "ok"
        assert _usage(agent, "conversation_usage")[2] == "0.1"


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
    @in_virtual_time
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

    async def test_the_attempts_of_a_failed_run_do_not_count_in_the_next_one(self) -> None:
        agent = await make_agent(DOWN, DOWN, DOWN, say("ok"), max_retries=1, retry_base_delay_s=0)
        with pytest.raises(ProviderUnavailableError):
            await agent.run()
        assert await agent.run("again") == "ok"
        assert [data["attempt"] for data in agent.progress.of("retrying")] == [1, 1]
        assert text_of(agent.provider.sent()[-1]) == "again"


PLAN = {"session": {"orchestrator": "loop-interactive", "context": "context-simple"}}


async def _session(rows: int) -> tuple[AmplifierSession, list[str]]:
    """A session with so many rows, and a list that grows each time its context rests."""
    session, rests = AmplifierSession(PLAN), []
    await session.initialize()
    await session.coordinator.mount("providers", MockProvider(), name="mock")
    context = session.coordinator.get("context")
    pair = [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Hello."}]
    await context.set_messages(pair * (rows // 2))

    def rest() -> None:
        rests.append("now")
        context.compress()

    session.coordinator.register_capability("context.compress", rest)
    return session, rests


@in_virtual_time
async def test_a_short_conversation_rests_two_seconds_after_each_run() -> None:
    session, rests = await _session(10)
    for number in (1, 2):
        assert await session.execute("Hello") == "Mock response"
        assert len(rests) == number - 1
        await asyncio.sleep(2)
        assert len(rests) == number
    assert len(await session.coordinator.get("context").get_messages()) == 14


@in_virtual_time
async def test_a_long_one_rests_once_after_a_minute_without_a_run() -> None:
    session, rests = await _session(200)
    for _ in range(3):
        await session.execute("Hello")
        await asyncio.sleep(50)
    assert rests == []
    await asyncio.sleep(15)
    assert rests == ["now"]
    await asyncio.sleep(1000)
    assert rests == ["now"]
    await session.execute("Hello")
    assert len(await session.coordinator.get("context").get_messages()) == 208


@pytest.mark.parametrize("how", ["dropped", "cleaned up"])
@in_virtual_time
async def test_a_session_that_is_gone_does_not_rest(how: str) -> None:
    session: Any
    session, rests = await _session(200)
    await session.execute("Hello")
    orchestrator = ref(session.coordinator.get("orchestrator"))
    if how == "cleaned up":
        await session.cleanup()
    else:
        del session
        gc.collect()
        assert orchestrator() is None
    await asyncio.sleep(100)
    assert rests == []
