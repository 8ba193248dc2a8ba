"""The kinds of trouble, and how many of the seeds have each. One that is absent cannot hide another."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .actors import hooks, tools

if TYPE_CHECKING:
    import random

FEATURES = dict.fromkeys(
    (
        *tools.FEATURES,
        *hooks.FEATURES,
        "errors",
        "stalls",
        "thinking",
        "unsigned thinking",
        "empty answers",
        "cut answers",
        "refusals",
        "unknown tools",
        "repeated call ids",
        "many calls",
        "disobedience",
        "deaf model",
        "spare models",
        "odd texts",
        "edits",
        "slow store",
        "flaky store",
        "slow sink",
        "broken sink",
        "small queue",
        "injection limit",
        "capped results",
    ),
    0.25,
) | {
    "interaction stack": 0.5,
    "stops": 0.6,
    "cancels": 0.25,
    "kills": 0.3,
    "urgent steers": 0.4,
    "compaction": 0.35,
    "summaries": 0.5,
    "assistants' words from hooks": 0.1,
    "token limit": 0.1,
    "cost limit": 0.1,
    "time limit": 0.1,
}


def drawn(chance: random.Random) -> set[str]:
    """The kinds of trouble of one seed."""
    features = {feature for feature, often in FEATURES.items() if chance.random() < often}
    if "small queue" in features:
        features.discard("kills")  # what waited in a queue and in a run together may not fit into one
    return features
