"""The tokens and the cost of a run and of its conversation, as the providers report them."""

import asyncio
from decimal import Decimal
from typing import Any

import pytest
from agents import Agent, ScriptedProvider, call, doing, echo, fail, make_agent, never, say, soon, streaming, use

from orchestrator_interactive.kernel import HookResult, ResponseStream
from orchestrator_interactive.kernel.contracts import errors
from orchestrator_interactive.kernel.contracts.messages import ChatRequest, ChatResponse, Usage

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

    async def test_every_part_of_a_continued_answer_is_counted(self) -> None:
        first = say("One, ", usage=used(7, 3), finish_reason="max_tokens")
        agent = await make_agent(first, say("two.", usage=used(9, 1)))
        await agent.run()
        assert _usage(agent) == (16, 4, None)

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
