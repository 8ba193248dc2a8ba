"""What differs between models: thinking and effort parameters, and prices.

Source of the parameters: "Troubleshooting thinking" and "What's new in Claude Sonnet 5.5" on platform.claude.com.
Models up to 4.5 only accept `enabled` with a budget, 4.6 also `adaptive`, and later ones only `adaptive`. Without the
field, models up to 4.8 do not think. Of the later models, Sonnet 5 accepts `disabled` and Sonnet 5.5 `between_tools`;
the others always think.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict, Field

from orchestrator_interactive.kernel.contracts.messages import Usage

if TYPE_CHECKING:
    from collections.abc import Mapping

_NAME = re.compile(r"claude-([a-z]+)-(\d+)(?:-(\d{1,2}))?(?:-\d{8})?")
_OLD_NAME = re.compile(r"claude-(\d)(?:-(\d))?-([a-z]+)(?:-\d{8}|-latest)?")

_FIRST_ADAPTIVE = (4, 6)
_WITHOUT_THINKING: dict[tuple[str, tuple[int, int]], dict[str, Any]] = {
    ("sonnet", (5, 0)): {"type": "disabled"},
    ("sonnet", (5, 5)): {"type": "between_tools"},
}
_EFFORT = {"minimal": "low", "low": "low", "medium": "medium", "high": "high", "xhigh": "xhigh", "max": "max"}
_EFFORT_THAT_NEEDS_THINKING = ("xhigh", "max")


def thinking_for(model: str, budget_tokens: int | None, effort: str | None) -> dict[str, Any] | None:
    """Return the `thinking` parameter; `None` to omit it. `budget_tokens=None` requests no thinking."""
    family, version = generation(model)
    if budget_tokens is None:
        return None if effort in _EFFORT_THAT_NEEDS_THINKING else _WITHOUT_THINKING.get((family, version))
    if version < _FIRST_ADAPTIVE:
        return {"type": "enabled", "budget_tokens": budget_tokens}
    return {"type": "adaptive", "display": "summarized"}


def effort_for(model: str, reasoning_effort: str | None) -> str | None:
    """Return `output_config.effort`; `None` if the model does not support it."""
    family, version = generation(model)
    if version < _FIRST_ADAPTIVE and (family, version) != ("opus", (4, 5)):
        return None
    return _EFFORT.get(reasoning_effort or "")


def generation(model: str) -> tuple[str, tuple[int, int]]:
    """Return family and version; an unknown name counts as newer than all known models."""
    if found := _NAME.fullmatch(model):
        return found[1], (int(found[2]), int(found[3] or 0))
    if found := _OLD_NAME.fullmatch(model):
        return found[3], (int(found[1]), int(found[2] or 0))
    return "", (99, 0)


_MILLION = Decimal(1_000_000)
# Source: "Data residency" on platform.claude.com. It may be a workspace's default.
_IN_THE_US = Decimal("1.1")


@dataclass(frozen=True, slots=True)
class Tokens:
    """Tokens of a call by price category, without overlap. `written_1h` is cached for an hour."""

    uncached: int
    output: int
    read: int
    written: int
    written_1h: int


class Prices(BaseModel):
    """US dollars per million tokens.

    Unset cache prices derive from `input`, as for most models: a read costs a tenth of it, a write for five minutes
    1.25 times, and a write for an hour twice as much.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    input: Decimal = Field(ge=0)
    output: Decimal = Field(ge=0)
    cache_read: Decimal | None = Field(default=None, ge=0)
    cache_write: Decimal | None = Field(default=None, ge=0)
    cache_write_1h: Decimal | None = Field(default=None, ge=0)

    def cost_usd(self, tokens: Tokens) -> Decimal:
        read = self.input / 10 if self.cache_read is None else self.cache_read
        write = self.input * Decimal("1.25") if self.cache_write is None else self.cache_write
        write_1h = self.input * 2 if self.cache_write_1h is None else self.cache_write_1h
        parts = (
            tokens.uncached * self.input,
            tokens.output * self.output,
            tokens.read * read,
            tokens.written * write,
            tokens.written_1h * write_1h,
        )
        return sum(parts, Decimal(0)) / _MILLION


def _prices(input_usd: str, output_usd: str, read: str | None = None) -> Prices:
    cache_read = None if read is None else Decimal(read)
    return Prices(input=Decimal(input_usd), output=Decimal(output_usd), cache_read=cache_read)


# Source: "Pricing" and the overview pages of the models on platform.claude.com, October 2026.
_PUBLIC = {
    ("fable", (5, 1)): _prices("10", "50", "0.25"),
    ("fable", (5, 0)): _prices("10", "50"),
    ("opus", (5, 5)): _prices("4", "20", "0.20"),
    ("opus", (5, 0)): _prices("5", "25"),
    ("opus", (4, 8)): _prices("5", "25"),
    ("opus", (4, 7)): _prices("5", "25"),
    ("opus", (4, 6)): _prices("5", "25"),
    ("opus", (4, 5)): _prices("5", "25"),
    ("sonnet", (5, 5)): _prices("2", "10", "0.10"),
    ("sonnet", (5, 0)): _prices("2", "10"),
    ("sonnet", (4, 6)): _prices("3", "15"),
    ("sonnet", (4, 5)): _prices("3", "15"),
    ("haiku", (5, 5)): _prices("0.10", "0.50"),
    ("haiku", (4, 5)): _prices("1", "5"),
}
# One model has a higher price for all tokens of a call whose prompt is longer than this.
_LONG_PROMPT_TOKENS = 100_000
_LONG_PROMPT = {("haiku", (5, 5)): _prices("0.50", "2.50")}


def public_prices(model: str, prompt_tokens: int) -> Prices | None:
    """Return the public prices for a call with a prompt of this length; `None` for an unknown model."""
    known = generation(model)
    if prompt_tokens > _LONG_PROMPT_TOKENS and known in _LONG_PROMPT:
        return _LONG_PROMPT[known]
    return _PUBLIC.get(known)


def usage_of(figures: Mapping[str, Any], model: str, own_prices: Prices | None) -> Usage:
    """Return the tokens of a call and their cost by `own_prices`, otherwise by the public prices.

    `input_tokens` includes cached tokens, as the kernel defines it.
    """
    cache_read, cache_write = figures.get("cache_read_input_tokens"), figures.get("cache_creation_input_tokens")
    written = cache_write or 0
    # Only the answer's first event has the split; the last one may have a larger total.
    written_1h = min(getattr(figures.get("cache_creation"), "ephemeral_1h_input_tokens", 0), written)
    uncached, output = figures.get("input_tokens", 0), figures.get("output_tokens", 0)
    tokens = Tokens(uncached, output, cache_read or 0, written - written_1h, written_1h)
    prompt = uncached + tokens.read + written
    cost_usd = None
    if figures and (prices := own_prices or public_prices(model, prompt)):
        surcharge = _IN_THE_US if prices is not own_prices and figures.get("inference_geo") == "us" else 1
        cost_usd = prices.cost_usd(tokens) * surcharge
    return Usage(
        input_tokens=prompt,
        output_tokens=output,
        total_tokens=prompt + output,
        reasoning_tokens=getattr(figures.get("output_tokens_details"), "thinking_tokens", None),
        cache_read_tokens=cache_read,
        cache_write_tokens=cache_write,
        cost_usd=cost_usd,
    )
