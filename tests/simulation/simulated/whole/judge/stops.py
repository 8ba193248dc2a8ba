"""Whether a stop ends the run that it was meant for, and no other."""

from __future__ import annotations

from typing import TYPE_CHECKING

from simulated.whole.slack import CHANNEL, TEAM

if TYPE_CHECKING:
    from collections.abc import Iterator

    from simulated.whole.slack import SlackMessage
    from simulated.whole.witness import RunSeen

    from .evidence import Evidence


def meant(case: Evidence, runs: list[RunSeen]) -> Iterator[str]:
    """A run that was stopped was stopped by somebody who meant it, after it had begun."""
    for run in runs:
        if run.stopped_s is not None and not any(seq > run.first_seq for seq in _stops_of(case, run)):
            yield f"The run of {run.first} was stopped, and nobody had asked for it."


def _stops_of(case: Evidence, run: RunSeen) -> Iterator[int]:
    """The places of the entries that may stop this run."""
    for written in case.written:
        if written.is_stop and written.id in case.seqs:
            yield case.seqs[written.id]
        if _began(run, written.id) and f"{written.id}:deleted" in case.seqs:
            yield case.seqs[f"{written.id}:deleted"]
    for reaction in case.reactions:
        if _means(reaction.message, run) and reaction.id in case.seqs:
            yield case.seqs[reaction.id]


def _means(message: SlackMessage, run: RunSeen) -> bool:
    return message.key.startswith(run.id) or _began(run, f"{TEAM}:{CHANNEL}:{message.ts}")


def _began(run: RunSeen, message_id: str) -> bool:
    """Whether a run began with a message, or with a late edit of it."""
    return run.first == message_id or run.first.startswith(f"{message_id}:")


def heeded(runs: list[RunSeen], within_s: float) -> Iterator[str]:
    """A stop finds the run that is on, unless that ends by itself."""
    for run in runs:
        for told_s in run.stop_words_s:
            is_over_soon = run.ended_s is not None and run.ended_s < told_s + within_s
            if run.stopped_s is None and not is_over_soon:
                yield f"The run of {run.first} was told to stop at {told_s:.3f}, and went on."
