"""Tokens and cost of model calls."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from orchestrator_interactive.transcript.rows import marked, metadata_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from orchestrator_interactive.kernel.contracts.messages import Usage


@dataclass(frozen=True, slots=True)
class UsageTotals:
    """Sums of tokens and cost. `cost_usd` sums the calls with a known cost; `None`: no call has one."""

    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    cost_usd: Decimal | None = None

    @property
    def tokens(self) -> int:
        return self.input_tokens + self.output_tokens

    def plus(self, other: UsageTotals) -> UsageTotals:
        costs = [cost for cost in (self.cost_usd, other.cost_usd) if cost is not None]
        return UsageTotals(
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            self.cache_read_tokens + other.cache_read_tokens,
            self.cache_write_tokens + other.cache_write_tokens,
            sum(costs, Decimal()) if costs else None,
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the form in progress events and in the log's rows."""
        return {
            "input_tokens": self.input_tokens,
            "output_tokens": self.output_tokens,
            "cache_read_tokens": self.cache_read_tokens,
            "cache_write_tokens": self.cache_write_tokens,
            "cost_usd": None if self.cost_usd is None else str(self.cost_usd),
        }


NO_USAGE = UsageTotals()
_COUNTS = ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens")


def usage_totals(usage: Usage | None) -> UsageTotals:
    """Return the usage of one model call."""
    if usage is None:
        return NO_USAGE
    return UsageTotals(
        usage.input_tokens,
        usage.output_tokens,
        usage.cache_read_tokens or 0,
        usage.cache_write_tokens or 0,
        usage.cost_usd,
    )


def with_usage(row: dict[str, Any], usage: Usage | None) -> dict[str, Any]:
    """Add the usage of an answer to its row, if the provider reports it."""
    return row if usage is None else marked(row, usage=usage_totals(usage).to_dict())


def usage_in(rows: Iterable[dict[str, Any]]) -> UsageTotals:
    """Return the usage of the answers in these rows."""
    total = NO_USAGE
    for row in rows:
        if data := metadata_of(row).get("usage"):
            total = total.plus(usage_from_dict(data))
    return total


def usage_from_dict(data: Any) -> UsageTotals:
    """Parse the form of `UsageTotals.to_dict`; zero if it is malformed."""
    try:
        input_, output, cache_read, cache_write = (int(data.get(count) or 0) for count in _COUNTS)
        cost = None if data.get("cost_usd") is None else Decimal(data["cost_usd"])
    except (AttributeError, ValueError, TypeError, ArithmeticError):
        return NO_USAGE
    known = cost is not None and cost.is_finite()
    return UsageTotals(input_, output, cache_read, cache_write, cost if known else None)
