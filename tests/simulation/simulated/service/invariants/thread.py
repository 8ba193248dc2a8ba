"""Invariants of the thread: texts, posts, status messages and reactions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from simulated.service.slack import BOT, IN_FLIGHT_S, Slack, SlackMessage, time_of

from .evidence import Evidence


def texts(case: Evidence) -> Iterator[str]:
    """Each text for users in the log is in the thread, once, in order, and no other text is."""
    for agent in case.rows:
        stored, shown = case.stored_texts(agent), Counter(case.shown_texts(agent))
        for text, count in shown.items():
            if count > 1:
                yield f"The text {text} of {agent} is in the thread {count} times."
            if text not in stored:
                yield f"The text {text} of {agent} is in the thread, and not in the log."
        for text, is_for_users in stored.items():
            if is_for_users and text not in shown:
                yield f"The text {text} of {agent} is not in the thread."
        if (in_order := [text for text in stored if text in shown]) != [text for text in shown if text in stored]:
            yield f"The log of {agent} has the order {in_order}; the thread has {list(shown)}."


def keys(case: Evidence) -> Iterator[str]:
    """No post is in the thread twice; the earliest copy stays, unless it was replaced: a stream can be."""
    counted = Counter(post.key for post in case.lasting_posts)
    yield from (f"{n} posts have the key {key}." for key, n in counted.items() if n > 1 and key)
    first: dict[str, SlackMessage] = {}
    for post in case.all_posts:
        first.setdefault(post.key, post)
    for post in case.lasting_posts:
        deleted_s = first[post.key].deleted_s
        if post.key and deleted_s is not None and deleted_s > time_of(post.ts):
            yield f"The first post of {post.key} was deleted, and a later one is left."


def looked_up(case: Evidence) -> Iterator[str]:
    """No process sends a post again that it could have found in the thread."""
    existing: dict[str, SlackMessage] = {}
    for post in filter(lambda post: post.key, case.all_posts):
        before = existing.get(post.key)
        exists = before is not None and (before.deleted_s is None or before.deleted_s > post.posted_s)
        if before is not None and exists and not post.is_stray:
            looked_s = max((at_s for at_s in case.claims_s[post.by] if at_s < post.posted_s), default=0.0)
            if before.posted_s < looked_s or before.by == post.by:
                yield f"{post.key} existed, and was posted again: {post.text[:40]!r}."
        if not exists:
            existing[post.key] = post


def owners(case: Evidence) -> Iterator[str]:
    """No process posts in a conversation after a takeover by another process, except for calls in flight."""
    for post in case.all_posts:
        claimed_s = max((at_s for at_s in case.claims_s[post.by] if at_s < post.posted_s), default=0.0)
        others = (at_s for process, times_s in case.claims_s.items() if process != post.by for at_s in times_s)
        since_s = min((at_s for at_s in others if claimed_s < at_s), default=post.posted_s)
        if post.posted_s > since_s + IN_FLIGHT_S and not post.is_stray:
            late_s = post.posted_s - since_s
            yield f"Process {post.by} posted {post.text[:40]!r} {late_s:.1f} s after a takeover."


def strays(slack: Slack) -> Iterator[str]:
    """No reply is posted in the channel outside of its thread."""
    for post in slack.messages.values():
        if post.user == BOT and post.is_root and not post.is_deleted and not post.is_empty:
            yield f"{post.text[:40]!r} is in the channel, outside of a thread."


def remains(case: Evidence) -> Iterator[str]:
    """No status message, no ⏳, and no stream that is blank or was not ended is left."""
    for post in case.posts:
        if not (post.key or post.files) and (post.is_streaming or not post.text):
            yield f"The stream {post.ts} ({post.text[:40]!r}) is left."
    yield from (f"The status {post.ts} ({post.text!r}) is left." for post in case.statuses)
    for message in (written.message for written in case.written):
        if not message.is_deleted and BOT in message.reactions.get("hourglass_flowing_sand", ()):
            yield f"An hourglass is left at {message.ts}."


def marks(case: Evidence) -> Iterator[str]:
    """📨 and 👀 show the real state of each message."""
    for written in case.written:
        marks, is_read = list(written.message.reactions), bool(case.times_delivered(written.id))
        if written.message.is_deleted:
            continue
        if "eyes" in marks and not is_read:
            yield f"{written.word} was not delivered, and its reactions are {marks}."
        if is_read and "incoming_envelope" in marks and "eyes" not in marks:
            yield f"{written.word} was delivered, and its reactions are {marks}."
        if written.id in case.waiting and "incoming_envelope" not in marks:
            yield f"{written.word} is pending, and its reactions are {marks}."
