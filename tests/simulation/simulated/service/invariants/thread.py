"""Whether the thread shows what was said, once, and nothing that is over."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from simulated.service.slack import BOT

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from simulated.service.slack import SlackMessage

    from .evidence import Evidence


def texts(case: Evidence) -> Iterator[str]:
    """Each text for people that the log has is in the thread, once, in order; no other one is."""
    for agent in case.rows:
        said, shown = case.said(agent), Counter(case.shown(agent))
        yield from (f"{agent}'s text {text} is in the thread {n} times." for text, n in shown.items() if n > 1)
        yield from (f"{agent}'s text {text} is not in the thread." for text in said if said[text] and text not in shown)
        yield from (
            f"{agent}'s text {text} is in the thread, and not in the log." for text in shown if text not in said
        )
        if (in_order := [text for text in said if text in shown]) != [text for text in shown if text in said]:
            yield f"{agent} said {in_order}; the thread has {list(shown)}."


def keys(case: Evidence) -> Iterator[str]:
    """No post is there twice; of one that was, the first is."""
    counted = Counter(post.key for post in case.told)
    yield from (f"{n} posts have the key {key}." for key, n in counted.items() if n > 1)
    first: dict[str, SlackMessage] = {}
    for post in case.ever:
        first.setdefault(post.key, post)
    for post in case.told:
        if first[post.key].ts != post.ts:
            yield f"Of {post.key} the first post is gone, and a later one is there."


def looked_up(case: Evidence) -> Iterator[str]:
    """Nothing is posted by whoever could have seen that it is there."""
    standing: dict[str, SlackMessage] = {}
    for post in case.ever:
        before = standing.get(post.key)
        is_there = before is not None and (before.deleted_s is None or before.deleted_s > post.made_s)
        if before is not None and is_there and not post.is_stray:
            looked_s = max((at_s for at_s in case.claims_s[post.by] if at_s < post.made_s), default=0.0)
            if before.made_s < looked_s or before.by == post.by:
                yield f"{post.key} was there, and was posted again: {post.text[:40]!r}."
        if not is_there:
            standing[post.key] = post


def strays(posts: Iterable[SlackMessage]) -> Iterator[str]:
    """Nothing of a thread stands outside of it."""
    yield from (f"{post.text[:40]!r} stands in the channel." for post in posts)


def remains(case: Evidence, messages: list[SlackMessage]) -> Iterator[str]:
    """No status message and no hourglass is left."""
    yield from (f"The status {post.ts} ({post.text!r}) is left." for post in case.statuses)
    for message in messages:
        if not message.is_deleted and BOT in message.reactions.get("hourglass_flowing_sand", ()):
            yield f"An hourglass is left at {message.ts}."


def marks(case: Evidence) -> Iterator[str]:
    """👀 is on nothing that was not delivered, and on all that was and had to wait; 📨 is on what waits."""
    for written in case.written:
        marks, is_read = list(written.message.reactions), bool(case.times_delivered(written.id))
        if written.message.is_deleted:
            continue
        if "eyes" in marks and not is_read:
            yield f"{written.word} was not delivered, and its marks are {marks}."
        if is_read and "incoming_envelope" in marks and "eyes" not in marks:
            yield f"{written.word} was delivered, and its marks are {marks}."
        if written.id in case.waiting and "incoming_envelope" not in marks:
            yield f"{written.word} waits, and its marks are {marks}."
