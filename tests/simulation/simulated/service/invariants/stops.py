"""Whether a stop ends the run that it was meant for, and no other, and takes nothing along that was promised."""

from __future__ import annotations

from typing import TYPE_CHECKING

from simulated.service.slack import CHANNEL, TEAM

if TYPE_CHECKING:
    from collections.abc import Iterator

    from simulated.service.slack import SlackMessage
    from simulated.service.store_observer import RunSeen

    from .evidence import Evidence


def meant(case: Evidence, runs: list[RunSeen]) -> Iterator[str]:
    """A run that was stopped was stopped by somebody who meant it, after it had begun."""
    for run in runs:
        if run.stopped_s is not None and not any(seq > run.first_seq for seq, _ in _stops_of(case, run)):
            yield f"The run of {run.first} was stopped, and nobody had asked for it."


def stoppers(case: Evidence, run: RunSeen) -> set[str]:
    """Those who may have stopped this run."""
    return {user for _, user in _stops_of(case, run)}


def _stops_of(case: Evidence, run: RunSeen) -> Iterator[tuple[int, str]]:
    """The entries that may stop this run: their places, and who has made them."""
    for written in case.written:
        if written.is_stop and written.id in case.seqs and written.message.ts > _ts_of(run.first):
            yield case.seqs[written.id], written.message.user
        if _began(run, written.id) and f"{written.id}:deleted" in case.seqs:
            yield case.seqs[f"{written.id}:deleted"], written.message.user
    for reaction in case.reactions:
        if _means(reaction.message, run) and reaction.id in case.seqs:
            yield case.seqs[reaction.id], reaction.user


def kept(case: Evidence, runs: list[RunSeen]) -> Iterator[str]:
    """A message that a stop has held back, which people were told, is not lost by another one."""
    for run in runs:
        is_withdrawn = case.known.ends.get(run.first) == "withdrawn" and f"{run.first}:deleted" not in case.seqs
        if run.was_held and is_withdrawn:
            yield f"{run.first} was held back, and then it was taken for what was stopped."


def _ts_of(message_id: str) -> str:
    return message_id.split(":")[2]


def _means(message: SlackMessage, run: RunSeen) -> bool:
    return message.key.startswith(run.id) or _began(run, f"{TEAM}:{CHANNEL}:{message.ts}")


def _began(run: RunSeen, message_id: str) -> bool:
    """Whether a run began with a message, or with a late edit of it."""
    return run.first == message_id or run.first.startswith(f"{message_id}:")


def heeded(runs: list[RunSeen], within_s: float) -> Iterator[str]:
    """A stop finds the run that is on, unless that comes to its end by itself."""
    for run in runs:
        for told_s in run.stop_words_s:
            if run.stopped_s is None and run.last_step_s > told_s + within_s:
                yield f"The run of {run.first} was told to stop at {told_s:.3f}, and went on."
