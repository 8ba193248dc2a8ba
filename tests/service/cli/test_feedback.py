"""`amplifier-slack feedback list`."""

from __future__ import annotations

import asyncio
from contextlib import aclosing

import pytest
from stored_conversations import HERE, THERE, run

from orchestrator_interactive.interactions.feedback import FeedbackState, rate
from orchestrator_interactive.interactions.records import Key
from orchestrator_interactive.interactions.stores import open_store


def rating(number: int, user: str, reward: int, at: float, comment: str = "") -> FeedbackState:
    return FeedbackState(f"rating-{number}", f"{HERE}:1.5", "", user, reward, at, comment)


@pytest.fixture
def rated(kept):
    """Ana rates an answer of alpha twice, Ben once; he also rates an answer of beta."""
    day = 86_400.0
    ratings = [
        (HERE, "alpha", rating(1, "U0ANA", 1, 10 * day)),
        (HERE, "alpha", rating(2, "U0ANA", -1, 11 * day, "It is wrong.")),
        (HERE, "alpha", rating(3, "U0BEN", 1, 12 * day)),
        (THERE, "beta", rating(4, "U0BEN", 1, 400 * day)),
    ]
    for place, agent, each in (*ratings, ratings[0]):
        asyncio.run(add(kept.url, Key(place, agent), each))
    return kept


async def add(url: str, key: Key, rating: FeedbackState) -> None:
    async with aclosing(await open_store(url)) as store:
        await rate(store, key, rating)


def listed(rated, *options: str):
    return run("feedback", "list", *options, "--store", rated.url)


@pytest.mark.parametrize(
    ("options", "users"),
    [
        ((), ["U0ANA", "U0BEN", "U0BEN"]),
        (("--negative",), ["U0ANA"]),
        (("--instance", "beta"), ["U0BEN"]),
        (("--since", "1971-01-01"), ["U0BEN"]),
    ],
)
def test_the_last_rating_of_each_person_is_listed(rated, output_of, options, users):
    lines = output_of(listed(rated, *options)).splitlines()
    assert [next(word for word in line.split() if word.startswith("U0")) for line in lines[1:]] == users


def test_a_comment_is_listed_and_ratings_are_no_conversations(rated, output_of):
    assert "It is wrong." in output_of(listed(rated))
    rated.talk("hello")
    assert "/feedback" not in output_of(rated.run("list"))
    assert '"FeedbackState"' in output_of(rated.run("export", HERE))
