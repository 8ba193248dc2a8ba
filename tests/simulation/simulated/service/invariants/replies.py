"""Whether people are told what has become of what they wrote, where no answer tells it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from simulated.service.people import Written
    from simulated.service.slack import SlackMessage

    from .evidence import Evidence

_WAITING = re.compile(r"(\d+) messages? ha(?:s|ve) not been read yet")


def held(case: Evidence) -> Iterator[str]:
    """What waits because of a stop was named when it had been written."""
    said = [(post.made_s, int(found[1])) for post in _own(case) if (found := _WAITING.search(post.text))]
    waiting = [written for written in case.written if written.id in case.waiting and not written.is_stop]
    for written in waiting:
        if not any(made_s > case.accepted_s[written.id] for made_s, _ in said):
            yield f"{written.word} waits, and nobody knows."
    if sum(count for _, count in said) < len(waiting):
        yield f"{len(waiting)} messages wait, and people know of {[count for _, count in said]}."


def idle_stops(case: Evidence, idle: Collection[str]) -> Iterator[str]:
    """Who says stop where nothing is on is told so; nobody is told twice."""
    for written in case.written:
        said = [post.text for post in _replies(case, written, "Nothing is running")] if written.is_stop else []
        if len(said) > 1 or (not said and written.id in idle and written.id in case.seqs):
            yield f"To {written.id}, a stop that met nothing, these are the replies: {said}."


def beginnings(case: Evidence) -> Iterator[str]:
    """Whose message was stopped before a run began with it is told by whom, once."""
    for written in case.written:
        if case.known.ends.get(written.id) != "withdrawn" or f"{written.id}:deleted" in case.seqs:
            continue
        said = [post.text for post in _replies(case, written, "🛑 Stopped by ")]
        if len(said) != 1:
            yield f"{written.word} was stopped before it was read, and people read {said}."


def refusals(case: Evidence) -> Iterator[str]:
    """Whose message is not taken is told why, once."""
    for written in case.written:
        if case.known.ends.get(written.id) != "refused":
            continue
        told = [post for post in _own(case) if f":refused:{written.id}:" in post.key or _began(case, written, post)]
        if not told:
            yield f"{written.word} was refused for no reason."
        elif len(told) > 1:
            yield f"{written.word} was refused several times: {[post.text for post in told]}."


def _own(case: Evidence) -> list[SlackMessage]:
    """What the service itself has said."""
    return [post for post in case.told if post.username is None]


def _replies(case: Evidence, written: Written, words: str) -> list[SlackMessage]:
    """What was said in these words to one message, or by a run that was to begin with it and never did."""
    said = (post for post in _own(case) if post.text.startswith(words))
    return [post for post in said if post.key.startswith(f"{written.id}:") or _began(case, written, post)]


def _began(case: Evidence, written: Written, post: SlackMessage) -> bool:
    """Whether a post tells of the end of a run that was to begin with a message."""
    return post.text.startswith(("🛑", "⚠️")) and any(post.key.startswith(f"{run}:") for run in case.begun[written.id])
