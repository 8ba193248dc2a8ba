"""What a run used up, and the whole conversation: in tokens, and in money where the providers say it."""

import asyncio
from decimal import Decimal
from typing import Any

import pytest
from agents import Agent, ScriptedProvider, call, doing, echo, fail, make_agent, never, say, soon, streaming, use

from orchestrator_interactive.kernel import HookResult, ResponseStream
from orchestrator_interactive.kernel.contracts import errors
from orchestrator_interactive.kernel.contracts.messages import ChatRequest, ChatResponse, Usage

NOTHING = {
    "input_tokens": 0,
    "output_tokens": 0,
    "cache_read_tokens": 0,
    "cache_write_tokens": 0,
    "cost_usd": None,
}


def used(read: int = 0, written: int = 0, cost: str | None = None, **more: Any) -> Usage:
    return Usage(
        input_tokens=read,
        output_tokens=written,
        total_tokens=read + written,
        cost_usd=None if cost is None else Decimal(cost),
        **more,
    )


def _told(agent: Agent, key: str = "usage") -> dict[str, Any]:
    told: dict[str, Any] = agent.progress.of("complete")[-1][key]
    return told


def _tokens(told: dict[str, Any]) -> tuple[int, int]:
    return told["input_tokens"], told["output_tokens"]


class TestARun:
    async def test_it_is_the_sum_of_its_answers(self) -> None:
        first = used(100, 10, cache_read_tokens=60, cache_write_tokens=30)
        second = used(150, 20, cache_read_tokens=90)
        agent = await make_agent(call(use("echo", "a"), usage=first), say("ok", usage=second), tools=[echo()])
        await agent.run()
        assert _told(agent) == {
            "input_tokens": 250,
            "output_tokens": 30,
            "cache_read_tokens": 150,
            "cache_write_tokens": 30,
            "cost_usd": None,
        }

    @pytest.mark.parametrize("cut", ["stop", "urgent message"])
    async def test_a_call_that_is_cut_has_cost_what_it_had_read(self, cut: str) -> None:
        begun = asyncio.Event()

        async def hanging(_request: ChatRequest, stream: ResponseStream) -> ChatResponse:
            stream.usage = used(100, cost="0.5")
            begun.set()
            await asyncio.Event().wait()
            raise AssertionError

        agent = await make_agent(hanging, say("ok", usage=used(200, 10, cost="0.25")))
        run = agent.start()
        await soon(begun.wait())
        agent.inject("!now") if cut == "urgent message" else agent.stop()
        await soon(run)
        told = (_tokens(_told(agent)), _told(agent)["cost_usd"])
        assert told == (((300, 10), "0.75") if cut == "urgent message" else ((100, 0), "0.5"))

    async def test_money_is_added_up_to_the_last_digit_and_told_as_text(self) -> None:
        steps = [call(use("echo", str(i)), usage=used(cost="0.1")) for i in range(2)]
        agent = await make_agent(*steps, say("ok", usage=used(cost="0.00003")), tools=[echo()])
        await agent.run()
        assert _told(agent)["cost_usd"] == "0.20003"

    async def test_an_answer_whose_price_nobody_knows_does_not_hide_what_the_others_cost(self) -> None:
        agent = await make_agent(
            call(use("echo", "a"), usage=used(cost="0.1")), say("ok", usage=used(5, 5)), tools=[echo()]
        )
        await agent.run()
        assert _told(agent)["cost_usd"] == "0.1"

    async def test_a_provider_that_counts_nothing_is_no_trouble(self) -> None:
        agent = await make_agent(say("ok", usage=None))
        await agent.run()
        assert _told(agent) == NOTHING

    async def test_a_call_that_failed_is_not_counted_and_its_repetition_once(self) -> None:
        agent = await make_agent(
            fail(errors.ProviderUnavailableError("down")), say("ok", usage=used(7, 3)), retry_base_delay_s=0
        )
        await agent.run()
        assert _tokens(_told(agent)) == (7, 3)

    async def test_both_providers_of_a_run_are_counted(self) -> None:
        agent = await make_agent(
            call(use("echo", "a"), usage=used(7, 3, "0.1")), fail(errors.AuthenticationError("who?")), tools=[echo()]
        )
        await agent.coordinator.mount("providers", ScriptedProvider(say("ok", usage=used(1, 1, "0.2")), name="other"))
        await agent.run()
        assert [_tokens(_told(agent)), _told(agent)["cost_usd"]] == [(8, 4), "0.3"]

    async def test_an_answer_that_a_hook_refuses_is_counted(self) -> None:
        agent = await make_agent(say("ok", usage=used(7, 3)))
        agent.on_hook("provider:response", HookResult(action="deny", reason="rude"))
        await agent.run()
        assert _tokens(_told(agent)) == (7, 3)

    async def test_a_run_that_fails_says_what_it_used_up(self) -> None:
        agent = await make_agent(
            call(use("echo", "a"), usage=used(7, 3)), fail(errors.AuthenticationError("who?")), tools=[echo()]
        )
        with pytest.raises(errors.AuthenticationError):
            await agent.run()
        assert _tokens(_told(agent)) == (7, 3)

    async def test_a_run_that_is_stopped_says_what_its_whole_answers_used_up(self) -> None:
        agent = await make_agent(
            call(use("echo", "a"), usage=used(7, 3)), streaming("so", then=never()), tools=[echo()]
        )
        run = agent.start()
        await agent.provider.asked(2)
        agent.stop()
        await soon(run)
        assert _tokens(_told(agent)) == (7, 3)

    @pytest.mark.parametrize("instant", ["the model has answered", "hooks have seen the answer"])
    async def test_an_answer_that_was_whole_when_a_stop_kept_it_is_counted_for_good(self, instant: str) -> None:
        agent = await make_agent()

        def stop_next() -> None:
            asyncio.get_running_loop().call_soon(agent.stop)

        answers = say("ok", usage=used(7, 3))
        if instant == "the model has answered":
            answers = doing(stop_next, answers)
        else:
            agent.events.listen(agent.hooks, "provider:response").act_on("provider:response", stop_next)
        agent.provider.add(answers)
        assert await agent.run() == "ok"
        assert agent.progress.of("complete")[0]["status"] == "cancelled"
        assert _tokens(_told(agent)) == (7, 3)
        assert (await agent.history())[-1]["metadata"]["usage"]["input_tokens"] == 7

    async def test_every_part_of_a_cut_answer_is_counted(self) -> None:
        agent = await make_agent(
            say("One, ", usage=used(7, 3), finish_reason="max_tokens"), say("two.", usage=used(9, 1))
        )
        await agent.run()
        assert _tokens(_told(agent)) == (16, 4)

    async def test_a_summary_that_the_model_made_on_the_way_is_counted(self) -> None:
        summary = say("They talked.", usage=used(500, 50, "0.25"))
        config = {"max_tokens": 400, "strategy": "summary", "summary_max_tokens": 100}
        plan = {"context": {"module": "watched", "config": config}}
        agent = await make_agent(summary, say("ok", usage=used(7, 3, "0.5")), plan=plan)
        await agent.context.set_messages(
            [{"role": role, "content": "words " * 60} for role in ("user", "assistant") * 5]
        )
        assert await agent.run() == "ok"
        assert [_tokens(_told(agent)), _told(agent)["cost_usd"]] == [(507, 53), "0.75"]


class TestAConversation:
    async def test_it_is_the_sum_of_its_runs(self) -> None:
        agent = await make_agent(say("one", usage=used(7, 3, "0.1")), say("two", usage=used(10, 2, "0.2")))
        await agent.run()
        assert _told(agent, "conversation_usage") == _told(agent)
        await agent.run()
        assert _tokens(_told(agent)) == (10, 2)
        assert _tokens(_told(agent, "conversation_usage")) == (17, 5)
        assert _told(agent, "conversation_usage")["cost_usd"] == "0.3"

    async def test_a_run_that_was_stopped_or_failed_is_part_of_it(self) -> None:
        agent = await make_agent(
            call(use("echo", "a"), usage=used(1, 0)), fail(errors.AuthenticationError("who?")),
            call(use("echo", "b"), usage=used(2, 0)), never(),
            say("ok", usage=used(4, 0)),
            tools=[echo()],
        )  # fmt: skip
        with pytest.raises(errors.AuthenticationError):
            await agent.run()
        run = agent.start()
        await agent.provider.asked(4)
        agent.stop()
        await soon(run)
        await agent.run()
        assert _tokens(_told(agent, "conversation_usage")) == (7, 0)

    async def test_a_prompt_that_was_denied_used_up_nothing(self) -> None:
        agent = await make_agent()
        agent.on_hook("prompt:submit", HookResult(action="deny", reason="not on Sundays"))
        await agent.run()
        assert [_told(agent), _told(agent, "conversation_usage")] == [NOTHING, NOTHING]

    async def test_the_log_keeps_it_for_whoever_resumes(self) -> None:
        steps = (call(use("echo", "a"), usage=used(7, 3, "0.1")), say("ok", usage=used(8, 2, "0.02")))
        before = await make_agent(*steps, tools=[echo()])
        await before.run()
        after = await make_agent(say("again", usage=used(5, 5, "0.003")))
        await after.context.set_messages(await before.history())
        await after.run()
        assert _tokens(_told(after)) == (5, 5)
        assert _tokens(_told(after, "conversation_usage")) == (20, 10)
        assert _told(after, "conversation_usage")["cost_usd"] == "0.123"

    async def test_a_model_never_reads_what_it_cost(self) -> None:
        agent = await make_agent(say("ok", usage=used(7, 3, "0.1")), say("again"))
        await agent.run()
        await agent.run()
        assert "usage" not in agent.provider.requests[1].model_dump_json()

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
    async def test_what_others_write_beside_their_rows_does_no_harm(self, metadata: Any) -> None:
        agent = await make_agent(say("ok", usage=used(7, 3, "0.1")), max_cost_usd="1")
        await agent.context.set_messages(
            [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "ho", "metadata": metadata}]
        )
        assert await agent.run() == "ok"
        assert _told(agent, "conversation_usage")["cost_usd"] == "0.1"

    async def test_the_limit_of_a_run_does_not_count_the_runs_before_it(self) -> None:
        agent = await make_agent(
            say("one", usage=used(90, 0)), call(use("echo", "a"), usage=used(90, 0)), say("two"), tools=[echo()],
            max_tokens=100,
        )  # fmt: skip
        await agent.run()
        assert await agent.run() == "two"
        assert agent.progress.of("complete")[-1]["status"] == "success"
