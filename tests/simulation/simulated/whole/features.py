"""The kinds of trouble of the whole service, and how many of the seeds have each."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import random

FEATURES = {
    "replicas": 0.5,
    "two conversations": 0.3,
    "two instances": 0.3,
    "kills": 0.6,
    "terms": 0.3,
    "pauses": 0.25,
    "outages": 0.25,
    "orphans": 0.5,
    # A request that was given up arrives seconds later, when others have overtaken it. No store of ours can tell it
    # from one in time: it is for trying what that would do.
    "late arrivals": 0.0,
    "slow store": 0.3,
    "flaky store": 0.4,
    "slow Slack": 0.4,
    "failing Slack": 0.4,
    "Slack away": 0.2,
    "failing model": 0.2,
    "hopeless model": 0.2,
    "short queue": 0.15,
    "long answers": 0.2,
    "doubled events": 0.4,
    "late events": 0.2,
    "urgent steers": 0.3,
    "impatient people": 0.3,
    "stops": 0.5,
    "edits": 0.4,
    "deletions": 0.4,
    "little room": 0.2,
    "other workspace": 1 / 8,
}


# Every eighth seed has this one. It draws no random number, so that the draws of the others stay as they are.
_APART, _EVERY, _REST = "other workspace", 8, 6


def drawn(chance: random.Random, seed: int) -> set[str]:
    """Draw the features of a seed."""
    found = {feature for feature, often in FEATURES.items() if feature != _APART and chance.random() < often}
    return found | ({_APART} if seed % _EVERY == _REST else set())
