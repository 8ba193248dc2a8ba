"""The ratings of answers by people, in a log next to the conversation's, so that no branch or rewind loses them."""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass
from typing import TYPE_CHECKING

from orchestrator_interactive.interactions.errors import WriteConflict
from orchestrator_interactive.interactions.records import Key
from orchestrator_interactive.interactions.stack import InteractionStack, StackEntry, entry_fields, nodes
from orchestrator_interactive.interactions.states import BaseState

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable

    from orchestrator_interactive.interactions.stores.base import LogStore

_SUFFIX = "/feedback"
_TRIES = 20
# Longest pause before another try: other writers may want the log, too.
_PAUSE_S = 0.2


@dataclass(slots=True, frozen=True)
class FeedbackState(BaseState):
    """The rating of an answer by a person.

    Args:
        id: identity; a second rating with this id is a duplicate.
        answer: the message that shows the answer.
        ref: ref of the answer's artifact; blank: the log does not have it.
        user: who rated it.
        reward: 1 or -1.
        at: time in seconds since the epoch.
    """

    id: str
    answer: str
    ref: str
    user: str
    reward: float
    at: float
    comment: str = ""

    def note(self) -> str:
        return (
            f"{self.user or 'A person'} rated an answer {self.reward:+g}{f': {self.comment}' if self.comment else ''}"
        )


def feedback_key(key: Key) -> Key:
    """Return the key of the log with the ratings of a conversation."""
    return Key(f"{key.conversation_id}{_SUFFIX}", key.agent_id)


def is_feedback(key: Key) -> bool:
    return key.conversation_id.endswith(_SUFFIX)


async def rate(store: LogStore, key: Key, rating: FeedbackState) -> None:
    """Add a rating to a conversation, once.

    Raises:
        WriteConflict: other writers add ratings all the time.
    """
    place = feedback_key(key)
    for attempt in range(_TRIES):
        # As the answer to another agent's request, it is not listed among the conversations of people.
        stack = InteractionStack(store, place.conversation_id, place.agent_id, asked_by=rating.ref or key.path)
        if any(_is(entry, rating.id) for entry in [each async for each in feedback(store, key)]):
            return
        try:
            await stack.push(rating)
        except WriteConflict:
            if attempt == _TRIES - 1:
                raise
            await asyncio.sleep(random.uniform(0, _PAUSE_S))  # noqa: S311 - jitter between writers
        else:
            return


async def feedback(store: LogStore, key: Key) -> AsyncIterator[StackEntry]:
    """Yield the ratings of a conversation, the oldest first."""
    place = feedback_key(key)
    log = await store.load(place)
    pieces = log.tree.pieces(log.tree.current, 0, log.tree.head.end) if log is not None else []
    async for node in nodes(store, place, pieces):
        yield StackEntry(**entry_fields(place, node))


def latest(entries: Iterable[StackEntry]) -> list[FeedbackState]:
    """Return the last rating of each person for each answer, in the order of time."""
    found: dict[tuple[str, str], FeedbackState] = {}
    for entry in entries:
        state = entry.state
        if isinstance(state, FeedbackState) and state.at >= (known := found.get((state.answer, state.user), state)).at:
            found.pop((known.answer, known.user), None)
            found[state.answer, state.user] = state
    return sorted(found.values(), key=lambda state: state.at)


def _is(entry: StackEntry, rating_id: str) -> bool:
    return isinstance(entry.state, FeedbackState) and entry.state.id == rating_id
