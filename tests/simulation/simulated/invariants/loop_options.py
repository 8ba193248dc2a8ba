"""What the loop was told in its mount plan, as far as a judge must know."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import random
    from collections.abc import Set as AbstractSet


@dataclass(frozen=True, slots=True)
class Terms:
    """Options of the loop, by their names there, and the `providers` in the order in which they are mounted."""

    stop_grace_s: float
    stall_timeout_s: float
    max_iterations: int
    max_waiting: int
    max_retries: int
    retry_base_delay_s: float
    tool_timeout_s: float
    max_result_chars: int
    max_tokens: int | None
    max_cost_usd: Decimal | None
    max_duration_s: float | None
    providers: tuple[str, ...]

    @classmethod
    def drawn(cls, chance: random.Random, features: AbstractSet[str]) -> Terms:
        """The terms of a seed."""
        return cls(
            stop_grace_s=chance.choice([0.0, 0.5, 2.0]),
            stall_timeout_s=chance.choice([5.0, 120.0]),
            max_iterations=chance.choice([2, 5, 100]),
            max_waiting=2 if "small queue" in features else 100,
            max_retries=chance.choice([0, 1, 3]),
            retry_base_delay_s=chance.choice([0.0, 1.0]),
            tool_timeout_s=chance.choice([2.0, 600.0]) if "impatient tools" in features else 600.0,
            max_result_chars=100 if "capped results" in features else 100_000,
            max_tokens=chance.choice([60, 300]) if "token limit" in features else None,
            max_cost_usd=Decimal("0.03") if "cost limit" in features else None,
            max_duration_s=chance.choice([1.0, 10.0]) if "time limit" in features else None,
            providers=("chaos", "spare", "last")[: chance.choice([2, 3]) if "spare models" in features else 1],
        )

    def options(self) -> dict[str, Any]:
        """As the mount plan has them."""
        return {name: value for name, value in asdict(self).items() if name != "providers" and value is not None}
