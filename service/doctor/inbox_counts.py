"""Whether what an inbox has agrees with what it has counted."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from service.store.base import ConversationRecord

# What a message's end is called where it is counted, by how it left the inbox.
_COUNTED_AS = {"": "delivered", "withdrawn": "withdrawn", "refused": "refused"}


def forgotten_messages(known: ConversationRecord) -> Counter[str]:
    """Messages whose ids are not known any more, by the end that they came to."""
    there = Counter(known.ends.values())
    rest = {name: known.count.left.get(end, 0) - there[end] for end, name in _COUNTED_AS.items()}
    return +Counter(rest)


def wrong_in(known: ConversationRecord) -> Iterator[str]:
    """What should not be, in sentences."""
    count, there = known.count, len(known.waiting) + sum(known.count.left.values())
    if there != count.accepted:
        yield f"its inbox has accepted {count.accepted} entries, and {there} wait or have left it."
    elif len(known.order) + count.forgotten != count.accepted:
        yield (
            f"of {count.accepted} entries that were accepted, the ids of {len(known.order)} are known, and "
            f"{count.forgotten} are old enough to be forgotten."
        )
    if known.held > count.accepted:
        yield f"messages up to place {known.held} are held back, and there were {count.accepted}: nobody starts a run."
    if known.posts and not known.has_run:
        yield f"of no run, {known.posts} texts are still to be posted."
    if known.is_overlooked:
        yield "it has something to do, and is not where that is looked for: nobody goes on with it."
    yield from (f"{what}." for what in known.damaged)
