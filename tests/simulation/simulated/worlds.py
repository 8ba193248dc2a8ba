"""The worlds that can be tried, and what must have happened in each before its silence says anything."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from . import features, service, trial
from .scenario import STAGES
from .world import Parts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from .trial import Verdict

_ACTS = ("steer accepted", "urgent steer accepted", "stop graceful", "stop immediate", "cancel", "kill")
# A run that tells of its end takes no messages.
_NEVER = ("steer accepted finishing", "urgent steer accepted finishing")


@dataclass(frozen=True, slots=True)
class Kind:
    """A world.

    Args:
        features: the kinds of trouble that it knows.
        wanted: what a campaign must have done.
        tried: plays a seed with these kinds of trouble added.
    """

    features: tuple[str, ...]
    wanted: tuple[str, ...]
    tried: Callable[[frozenset[str]], Callable[[int], Verdict]]


def _agent(added: frozenset[str]) -> Callable[[int], Verdict]:
    return partial(trial.tried, parts=Parts(features=added))


def _service(added: frozenset[str]) -> Callable[[int], Verdict]:
    return partial(service.tried, parts=service.Parts(features=added))


def _at_every(stages: Iterable[str]) -> tuple[str, ...]:
    wanted = (f"{act} {stage}" for act in _ACTS for stage in (*stages, "between steps"))
    return tuple(each for each in wanted if each not in _NEVER)


def _service_on_sqlite(added: frozenset[str]) -> Callable[[int], Verdict]:
    return partial(service.tried, parts=replace(service.ON_SQLITE, features=added))


WORLDS = {
    "agent": Kind(tuple(features.FEATURES), _at_every(STAGES), _agent),
    "service": Kind(tuple(service.FEATURES), service.WANTED, _service),
    "service-on-sqlite": Kind(
        tuple(service.FEATURES.keys() - service.ON_SQLITE.without), service.WANTED_WITH_A_FILE, _service_on_sqlite
    ),
}
