"""Where a process is when something happens to it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .environment import Ground
    from .store_observer import Standing

STAGES = (
    "while a post is to be made",
    "when a post is made and not noted",
    "in a tool",
    "while the model answers",
    "before the prompt is in the log",
    "when all is said",
    "between steps of a run",
    "between runs",
    "owning nothing",
)


def stage(ground: Ground, process: int) -> str:
    """The most telling of the stages at which the process's conversations are."""
    owned = [standing for standing in ground.witness.standing.values() if standing.owner == process]
    return min((_stage(ground, process, standing) for standing in owned), key=STAGES.index, default=STAGES[-1])


def _stage(ground: Ground, process: int, standing: Standing) -> str:
    if standing.run is None:
        return "between runs"
    if pending := [part for part, is_pending in standing.posts.items() if is_pending]:
        keys = {message.key for message in ground.slack.messages.values()}
        are_made = all(f"{standing.run}:{part}:0" in keys for part in pending)
        return "when a post is made and not noted" if are_made else "while a post is to be made"
    if ground.cast.at_work[process, "tool"]:
        return "in a tool"
    if ground.cast.at_work[process, "model"]:
        return "while the model answers"
    if standing.first not in ground.witness.delivered:
        return "before the prompt is in the log"
    return "when all is said" if standing.posts else "between steps of a run"
