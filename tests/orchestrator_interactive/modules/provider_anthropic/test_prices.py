"""The cost of a call: by the public prices of its model or the configured ones."""

from decimal import Decimal
from typing import Any

import pytest
from anthropic_server import AnthropicServer, message, message_start, text
from hypothesis import given
from hypothesis import strategies as st
from mounted_provider import KEY, MountedProvider, a_coordinator, a_request, mounted_at

from orchestrator_interactive.modules.provider_anthropic import mount
from orchestrator_interactive.modules.provider_anthropic.config import DEFAULT_MODEL
from orchestrator_interactive.modules.provider_anthropic.models import Prices, Tokens, public_prices

MILLION = 1_000_000


async def cost_of_a_call(
    mounted: MountedProvider, server: AnthropicServer, model: str | None = None, **figures: Any
) -> Decimal | None:
    ending = {
        "type": "message_delta",
        "delta": {"stop_reason": "end_turn", "stop_sequence": None},
        "usage": {"output_tokens": figures.pop("output_tokens", 0)},
    }
    start, _, *rest = message(text("hi"), usage={"input_tokens": 0, **figures})
    server.reply_steps(start, *rest[:-2], ending, rest[-1])
    usage = (await mounted.complete(a_request(model=model))).usage
    assert usage is not None
    return usage.cost_usd


async def test_caching_for_an_hour_has_its_own_price(server: AnthropicServer, mounted: MountedProvider) -> None:
    split = {"ephemeral_5m_input_tokens": MILLION, "ephemeral_1h_input_tokens": MILLION}
    cost = await cost_of_a_call(mounted, server, cache_creation_input_tokens=2 * MILLION, cache_creation=split)
    assert cost == Decimal("6.5")


@pytest.mark.parametrize(
    ("model", "for_a_million_of_each"),
    [
        ("claude-sonnet-5", "14.7"),
        ("claude-sonnet-5-20260630", "14.7"),
        ("claude-sonnet-5-5", "14.6"),
        ("claude-opus-5-5", "29.2"),
        ("claude-opus-4-5-20251101", "36.75"),
        ("claude-haiku-4-5", "7.35"),
        ("claude-fable-5-1", "72.75"),
    ],
)
async def test_each_model_has_its_public_price(server, mounted, model: str, for_a_million_of_each: str) -> None:
    figures = {
        "input_tokens": MILLION,
        "cache_read_input_tokens": MILLION,
        "cache_creation_input_tokens": MILLION,
        "output_tokens": MILLION,
    }
    assert await cost_of_a_call(mounted, server, model, **figures) == Decimal(for_a_million_of_each)


@pytest.mark.parametrize(
    ("prompt", "cost"),
    [
        ({"input_tokens": 100_000}, "0.0105"),
        ({"input_tokens": 100_001}, "0.0525005"),
        ({"input_tokens": 1, "cache_read_input_tokens": 100_000}, "0.0075005"),
    ],
)
async def test_a_long_prompt_has_the_higher_of_two_prices(server, mounted, prompt: dict[str, int], cost: str) -> None:
    assert await cost_of_a_call(mounted, server, "claude-haiku-5-5", **prompt, output_tokens=1000) == Decimal(cost)


async def test_inference_in_the_us_costs_a_tenth_more(server: AnthropicServer, mounted: MountedProvider) -> None:
    assert await cost_of_a_call(mounted, server, input_tokens=MILLION, inference_geo="us") == Decimal("2.2")
    assert await cost_of_a_call(mounted, server, input_tokens=MILLION, inference_geo="global") == Decimal(2)


async def test_an_unknown_model_has_no_price(server: AnthropicServer, mounted: MountedProvider) -> None:
    assert await cost_of_a_call(mounted, server, "claude-of-the-test", input_tokens=MILLION) is None
    assert await cost_of_a_call(mounted, server, "claude-opus-9", input_tokens=MILLION) is None


class TestConfiguredPrices:
    async def test_they_take_precedence(self, server: AnthropicServer) -> None:
        prices = {"input": 1, "output": 0.1, "cache_read": "0.5", "cache_write": 3, "cache_write_1h": 7}
        split = {"ephemeral_5m_input_tokens": MILLION, "ephemeral_1h_input_tokens": MILLION}
        figures = {
            "input_tokens": MILLION,
            "cache_read_input_tokens": MILLION,
            "cache_creation_input_tokens": 2 * MILLION,
            "cache_creation": split,
            "output_tokens": MILLION,
            "inference_geo": "us",
        }
        async with mounted_at(server.base_url, prices=prices) as mounted:
            assert await cost_of_a_call(mounted, server, **figures) == Decimal("11.6")

    async def test_they_apply_to_the_configured_model_only(self, server: AnthropicServer) -> None:
        async with mounted_at(server.base_url, model="my-own", prices={"input": 7, "output": 0}) as mounted:
            assert await cost_of_a_call(mounted, server, input_tokens=MILLION) == 7
            assert await cost_of_a_call(mounted, server, "claude-sonnet-5", input_tokens=MILLION) == 2
            assert await cost_of_a_call(mounted, server, "another", input_tokens=MILLION) is None

    @pytest.mark.parametrize(
        ("prices", "wrong"),
        [
            ({"input": 1}, "prices.output"),
            ({"input": -1, "output": 1}, "prices.input"),
            ({"input": 1, "output": "dear"}, "prices.output"),
            ({"input": 1, "output": "nan"}, "prices.output"),
            ({"input": 1, "output": 1, "cached": 1}, "prices.cached"),
            ("cheap", "prices"),
        ],
    )
    async def test_the_error_names_an_invalid_price(self, prices: Any, wrong: str) -> None:
        with pytest.raises(ValueError, match=wrong):
            await mount(a_coordinator(), {"api_key": KEY, "prices": prices})


def test_the_default_model_has_a_public_price() -> None:
    assert public_prices(DEFAULT_MODEL, 1) is not None


AMOUNT = st.integers(0, 10_000_000)
TOKENS = st.builds(Tokens, uncached=AMOUNT, output=AMOUNT, read=AMOUNT, written=AMOUNT, written_1h=AMOUNT)


@given(TOKENS, TOKENS)
def test_the_cost_of_two_calls_is_the_sum_of_their_costs(one: Tokens, other: Tokens) -> None:
    prices = Prices(input=Decimal("0.10"), output=Decimal("0.50"))
    both = Tokens(
        uncached=one.uncached + other.uncached,
        output=one.output + other.output,
        read=one.read + other.read,
        written=one.written + other.written,
        written_1h=one.written_1h + other.written_1h,
    )
    assert prices.cost_usd(both) == prices.cost_usd(one) + prices.cost_usd(other)


async def test_the_usage_of_the_last_event_is_used(server: AnthropicServer, mounted: MountedProvider) -> None:
    ending = {
        "type": "message_delta",
        "delta": {"stop_reason": "end_turn", "stop_sequence": None},
        "usage": {"input_tokens": 2 * MILLION, "output_tokens": 0, "cache_read_input_tokens": None},
    }
    start = message_start(usage={"input_tokens": 1, "cache_read_input_tokens": 10 * MILLION})
    server.reply_steps(start, ending, {"type": "message_stop"})
    usage = (await mounted.complete()).usage
    assert usage is not None
    assert (usage.input_tokens, usage.cache_read_tokens, usage.cost_usd) == (12 * MILLION, 10 * MILLION, Decimal(6))
