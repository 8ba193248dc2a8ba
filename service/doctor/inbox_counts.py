"""Consistency of an inbox with its counters."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from service.tables import counted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from service.store.base import ConversationRecord

# Name of a message's final state in the audit, by its `end` in the inbox.
_COUNTED_AS = {"": "delivered", "withdrawn": "withdrawn", "refused": "refused"}


def expired_messages(record: ConversationRecord) -> Counter[str]:
    """Count the messages whose ids have expired, by final state."""
    stored = Counter(record.ends.values())
    rest = {name: record.count.left.get(end, 0) - stored[end] for end, name in _COUNTED_AS.items()}
    return +Counter(rest)


def inconsistencies(record: ConversationRecord) -> Iterator[str]:
    """Describe each inconsistency in a sentence."""
    count, total = record.count, len(record.waiting) + sum(record.count.left.values())
    if total != count.accepted:
        yield f"its inbox has accepted {count.accepted} entries, but {total} are pending or finished."
    elif len(record.order) + count.forgotten != count.accepted:
        yield (
            f"its inbox has accepted {count.accepted} entries, but it has the ids of {len(record.order)}, and "
            f"{count.forgotten} have expired."
        )
    if record.held_seq > count.accepted:
        yield (
            f"messages up to number {record.held_seq} are held back, but only {count.accepted} were accepted: new "
            "messages start no run."
        )
    if record.posts and not record.has_run:
        yield f"{counted(record.posts, 'post')} pending in the outbox without a run."
    if record.is_overlooked:
        yield "it has pending work, but is missing from the index of due conversations: no process will resume it."
    yield from (f"{problem}." for problem in record.damaged)
