"""Invariants of schedules."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from simulated.service.schedules import MadeSchedule

from .evidence import Evidence

# The clock of the service has whole microseconds, and Slack's times do so, too.
_EARLY_S = 0.001


def fired_once(case: Evidence, made: Sequence[MadeSchedule]) -> Iterator[str]:
    """A schedule fires once, not before its time, or its miss is reported once; a removed one may do neither."""
    for each in made:
        orders = [entry for entry in case.record.order if f"::{each.id}." in entry]
        notices = [entry for entry in case.record.order if entry.startswith(f"{each.id}.")]
        if len(orders) > 1 or len(notices) > 1:
            yield f"The schedule {each.id} fired {len(orders)} times, and was announced {len(notices)} times."
        if orders and not notices:
            yield f"The schedule {each.id} fired unseen."
        if not notices and not each.is_removed:
            yield f"The schedule {each.id} is lost."
        for entry in notices:
            if case.accepted_s[entry] < each.due_s - _EARLY_S:
                yield f"The schedule {each.id} fired {each.due_s - case.accepted_s[entry]:.3f} s too early."
        for order in orders:
            ends = (
                bool(case.times_delivered(order)),
                case.end_of(order) in {"withdrawn", "refused"},
                order in case.waiting,
            )
            if sum(ends) != 1:
                yield f"The message of schedule {each.id} has {sum(ends)} outcomes."


def shown_once(case: Evidence, made: Sequence[MadeSchedule]) -> Iterator[str]:
    """The message or the report of a schedule is in the thread once."""
    for each in made:
        fired = any(entry.startswith(f"{each.id}.") for entry in case.record.order)
        count = sum(post.text.startswith("⏰") and each.text in post.text for post in case.notices)
        if count != fired:
            yield f"The schedule {each.id} is in the thread {count} times."
