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
# Drawn apart from the others, whose seeds keep their stories. Every eighth seed has the other workspace.
_APART = {
    "few slots": 0.3,
    # Threads that begin without a mention; one that follows calls an agent into them.
    "threads of others": 0.25,
    # Slack refuses to return threads.
    "no look-ups": 0.2,
}
_NEIGHBOUR, _EVERY, _REST = "other workspace", 8, 6
FEATURES |= _APART


def drawn(chance: random.Random, apart: random.Random, seed: int) -> set[str]:
    """Draw the features of a seed."""
    some = {name: often for name, often in FEATURES.items() if name != _NEIGHBOUR}
    found = {name for name, often in some.items() if (apart if name in _APART else chance).random() < often}
    return found | ({_NEIGHBOUR} if seed % _EVERY == _REST else set())
