"""`hooks-budget` in a session: reservations, settlements, refusals, and configurations that are not possible."""

from __future__ import annotations

import asyncio
from decimal import Decimal
from typing import Any
from uuid import uuid4

import pytest
from agents.provider import after, call, fail, say, streaming, use
from agents.session import Agent, make_agent
from agents.tools import echo

from orchestrator_interactive.kernel.contracts.errors import ProviderUnavailableError
from orchestrator_interactive.kernel.contracts.messages import Usage
from orchestrator_interactive.modules.hooks_budget import mount


def used(tokens: int, usd: str | None = None) -> dict[str, Any]:
    cost = None if usd is None else Decimal(usd)
    return {"usage": Usage(input_tokens=tokens - 1, output_tokens=1, total_tokens=tokens, cost_usd=cost)}


async def agent_with(*steps: Any, channel: str = "", plan: dict[str, Any] | None = None, **options: Any) -> Agent:
    agent = await make_agent(*steps, tools=[echo()], plan=plan, retry_base_delay_s=0.001, max_retries=3)
    facts = {"person": "U1", "channel": channel or uuid4().hex, "instance": "alpha", "conversation": "T1:C1:1.5"}
    agent.coordinator.register_capability("approvals.facts", lambda: facts)
    limit = {"per": "channel", "period": "day", "tokens": 1_000}
    await mount(agent.coordinator, {"limits": [limit], "output_tokens": 100, **options})
    return agent


async def test_a_run_ends_with_a_sentence_when_its_budget_has_no_room_for_the_next_call() -> None:
    agent = await agent_with(call(use("echo", "a"), **used(950)), say("never"))
    answer = await agent.run()
    assert answer.startswith("Operation denied: The daily budget of this channel (1,000 tokens) is used up. It returns")
    assert len(agent.provider.requests) == 1


async def test_a_budget_is_for_all_sessions_of_its_subject() -> None:
    channel = uuid4().hex
    first = await agent_with(say("one", **used(950)), channel=channel)
    assert await first.run() == "one"
    second, other = await agent_with(say("two"), channel=channel), await agent_with(say("two"))
    assert (await second.run()).startswith("Operation denied: The daily budget")
    assert await other.run() == "two"


@pytest.mark.parametrize(
    ("limit", "usage", "allowed"),
    [
        ({"usd": 1}, used(10, "0.90"), False),
        ({"usd": 1}, used(100_000, "0.10"), True),
        ({"usd": 1}, used(950_000), False),  # a model without prices: one dollar a million tokens
        ({"usd": 1}, used(100_000), True),
        ({"tokens": 1_000_000}, used(950_000, "0"), False),
    ],
)
async def test_an_estimate_has_the_price_of_the_latest_call(
    limit: dict[str, Any], usage: dict[str, Any], *, allowed: bool
) -> None:
    limits = [{"per": "channel", "period": "month", **limit}]
    options = {"limits": limits, "output_tokens": 100_000, "usd_per_million_tokens": 1}
    agent = await agent_with(call(use("echo", "a"), **usage), say("done"), **options)
    answer = await agent.run()
    assert (answer == "done") is allowed
    assert ("used up" in answer) is not allowed


PROMPT = "x" * 2_400  # more than 600 tokens
USED_UP = "Operation denied: The daily budget of this channel (1,000 tokens) is used up."


async def test_a_call_that_an_urgent_message_interrupts_before_its_usage_is_known_counts_its_request() -> None:
    agent = await agent_with(streaming("Let me", then=after(asyncio.Event(), say("never"))), say("never"))
    run = await agent.asked(prompt=PROMPT)
    agent.inject("!stop that")
    assert (await run).startswith(USED_UP)


async def test_a_call_whose_server_reports_no_usage_counts_its_request() -> None:
    agent = await agent_with(call(use("echo", "a"), usage=None), say("never"))
    assert (await agent.run(PROMPT)).startswith(USED_UP)


async def test_a_call_that_fails_after_its_answer_has_begun_counts_its_request() -> None:
    down = fail(ProviderUnavailableError("reset", provider="p"))
    agent = await agent_with(streaming("Let me", then=down), say("never"))
    assert (await agent.run(PROMPT)).startswith(USED_UP)


async def test_the_summary_of_a_conversation_counts() -> None:
    config = {"max_tokens": 400, "strategy": "summary", "summary_max_tokens": 100}
    summary = say("They talked.", **used(950))
    agent = await agent_with(summary, say("never"), plan={"context": {"module": "watched", "config": config}})
    past = [{"role": role, "content": "words " * 60} for role in ("user", "assistant") * 5]
    await agent.context.set_messages(past)
    assert (await agent.run()).startswith(USED_UP)
    assert len(agent.provider.requests) == 1


async def test_a_summary_counts_in_the_other_budgets_when_one_is_used_up() -> None:
    config = {"max_tokens": 400, "strategy": "summary", "summary_max_tokens": 100}
    day, month = (
        {"per": "channel", "period": each, "tokens": most} for each, most in (("day", 1_000), ("month", 2_000))
    )
    channel, summary = uuid4().hex, say("They talked.", **used(950))
    agent = await agent_with(
        *(say("one", **used(1_100)), summary, say("never")),
        channel=channel,
        plan={"context": {"module": "watched", "config": config}},
        limits=[day, month],
    )
    assert await agent.run() == "one"
    past = [{"role": role, "content": "words " * 60} for role in ("user", "assistant") * 5]
    await agent.context.set_messages(past)
    assert (await agent.run()).startswith(USED_UP)
    other = await agent_with(say("never"), channel=channel, limits=[month])
    assert "The monthly budget of this channel (2,000 tokens) is used up." in await other.run()


async def test_a_call_that_fails_before_its_answer_has_begun_is_free() -> None:
    steps = [fail(ProviderUnavailableError("down", provider="p")) for _ in range(3)]
    agent = await agent_with(*steps, say("done", **used(10)), output_tokens=600)
    assert await agent.run() == "done"


async def test_a_stopped_call_counts_its_request_and_leaves_nothing_reserved() -> None:
    gate, begun = asyncio.Event(), asyncio.Event()

    async def waits(_request: Any, _stream: Any) -> Any:
        begun.set()
        await gate.wait()

    agent = await agent_with(waits, say("done"), output_tokens=600)
    running = asyncio.ensure_future(agent.run())
    await begun.wait()
    agent.token.request_immediate()
    await running
    agent.token.reset()
    assert await agent.run() == "done"


async def test_what_cannot_be_checked_is_refused() -> None:
    agent = await agent_with(say("never"))

    async def broken(**_: Any) -> dict[str, Any]:
        raise OSError

    agent.coordinator.register_capability("budget.reserve", broken)
    assert await agent.run() == "Operation denied: The budget cannot be checked now. Try again later."


@pytest.mark.parametrize(
    ("config", "problem"),
    [
        ({}, "limits"),
        ({"limits": []}, "limits"),
        ({"limits": [{"per": "person", "period": "day"}]}, "either `usd` or `tokens`"),
        ({"limits": [{"per": "person", "period": "day", "usd": 1, "tokens": 1}]}, "either `usd` or `tokens`"),
        ({"limits": [{"per": "person", "period": "week", "usd": 1}]}, "period"),
        ({"limits": [{"per": "team", "period": "day", "usd": 1}]}, "per"),
        ({"limits": [{"per": "person", "period": "day", "usd": -1}]}, "usd"),
        ({"limits": [{"per": "person", "period": "day", "usd": 1}], "timezone": "Berlin"}, "'Berlin' is no time zone"),
    ],
)
async def test_a_configuration_that_is_not_possible_is_refused(config: dict[str, Any], problem: str) -> None:
    agent = await make_agent(say("x"))
    with pytest.raises(ValueError, match=problem):
        await mount(agent.coordinator, config)
