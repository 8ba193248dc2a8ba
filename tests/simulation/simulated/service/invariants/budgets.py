"""Invariants of budgets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from orchestrator_interactive.transcript.rows import metadata_of
from simulated.service.agent import USAGE

from .evidence import Evidence


def answers_in(case: Evidence) -> int:
    """Count the answers of models in the logs of a conversation."""
    rows = (row for of_agent in case.rows.values() for row in of_agent)
    return sum(row.get("role") == "assistant" and "usage" in metadata_of(row) for row in rows)


def every_answer_counts(answers: int, account: Mapping[str, Any] | None) -> Iterator[str]:
    """The account has at least the tokens of each answer that is in a log: spent, or reserved by a dead process."""
    held = sum(int(amount) for amount, _ in (account or {"held": {}})["held"].values())
    counted = int((account or {"spent": 0})["spent"]) + held
    if counted < answers * USAGE["total_tokens"]:
        yield f"The budget counts {counted} tokens for {answers} answers."


def nothing_is_held(account: Mapping[str, Any] | None, *, is_faulty: bool) -> Iterator[str]:
    """Without kills and faults of the store, each reservation is settled."""
    if account is not None and account["held"] and not is_faulty:
        yield f"{len(account['held'])} calls are reserved for ever."
