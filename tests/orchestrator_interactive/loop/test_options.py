"""Invalid options of the loop are refused by name."""

from typing import Any

import pytest

from orchestrator_interactive import InteractiveOrchestrator


@pytest.mark.parametrize(
    ("option", "value"),
    [
        *((name, 0) for name in ("max_iterations", "max_tokens", "max_cost_usd", "max_duration_s", "max_waiting")),
        *((name, 0) for name in ("stall_timeout_s", "tool_timeout_s")),
        ("max_result_chars", 99),
        ("stop_grace_s", -1),
        ("typo", 1),
    ],
)
def test_an_invalid_option_is_refused_by_name(option: str, value: Any) -> None:
    with pytest.raises(ValueError, match=option):
        InteractiveOrchestrator({option: value})
