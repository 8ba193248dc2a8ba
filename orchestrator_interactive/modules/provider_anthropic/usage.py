"""Convert the API's usage figures to the kernel's `Usage`."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Any

from orchestrator_interactive.kernel.contracts.messages import Usage
from orchestrator_interactive.modules.provider_anthropic.prices import Prices, Tokens, public_prices

if TYPE_CHECKING:
    from collections.abc import Mapping

# Source: "Data residency" on platform.claude.com. It may be a workspace's default.
_IN_THE_US = Decimal("1.1")


def usage_of(figures: Mapping[str, Any], model: str, own_prices: Prices | None) -> Usage:
    """Return the tokens of a call and their cost by `own_prices`, otherwise by the public prices.

    `input_tokens` includes cached tokens, as the kernel defines it.
    """
    cache_read, cache_write = figures.get("cache_read_input_tokens"), figures.get("cache_creation_input_tokens")
    tokens = _tokens(figures)
    prompt = tokens.uncached + tokens.read + tokens.written + tokens.written_1h
    return Usage(
        input_tokens=prompt,
        output_tokens=tokens.output,
        total_tokens=prompt + tokens.output,
        reasoning_tokens=getattr(figures.get("output_tokens_details"), "thinking_tokens", None),
        cache_read_tokens=cache_read,
        cache_write_tokens=cache_write,
        cost_usd=_cost_usd(figures, tokens, own_prices, public_prices(model, prompt)),
    )


def _tokens(figures: Mapping[str, Any]) -> Tokens:
    written = figures.get("cache_creation_input_tokens") or 0
    # Only the answer's first event has the split; the last one may have a larger total.
    written_1h = min(getattr(figures.get("cache_creation"), "ephemeral_1h_input_tokens", 0), written)
    return Tokens(
        uncached=figures.get("input_tokens", 0),
        output=figures.get("output_tokens", 0),
        read=figures.get("cache_read_input_tokens") or 0,
        written=written - written_1h,
        written_1h=written_1h,
    )


def _cost_usd(figures: Mapping[str, Any], tokens: Tokens, own: Prices | None, public: Prices | None) -> Decimal | None:
    if not figures:
        return None
    if own is not None:
        return own.cost_usd(tokens)
    if public is None:
        return None
    return public.cost_usd(tokens) * (_IN_THE_US if figures.get("inference_geo") == "us" else 1)
