"""What the service promises for replies that were acknowledged before their mention was stored.

Such a reply is not stored when it is acknowledged: the owner finds it when it reads the thread. Meanwhile newer
messages wait, but only for a second after an urgent one: see docs/durability.md, "Edits, deletions, stops".

`accepted` are the ids of the inbox entries of a conversation in the order of acceptance.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

_CATCH_UP = ":catch_up"


def must_be_read_first(older: str, newer: str, accepted: Sequence[str], urgent: Collection[str]) -> bool:
    """Return whether a message is to be read before one that was written after its acknowledgement.

    `urgent` are the ids of the urgent messages.
    """
    before = accepted[: accepted.index(older)] if older in accepted else ()
    if newer not in before:
        return True
    begin = next((place for place, id_ in enumerate(before) if id_.endswith(_CATCH_UP)), len(before))
    return set(urgent).isdisjoint(before[begin:])


def may_be_stopped_unanswered(message: str, accepted: Sequence[str], stops: Collection[str]) -> bool:
    """Return whether a stop was found after the message was accepted: it may have stopped the run that read it."""
    after = accepted[accepted.index(message) + 1 :] if message in accepted else ()
    return not set(stops).isdisjoint(after)
