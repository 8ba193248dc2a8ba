"""The whole service in simulated time: several processes, their store, Slack, and people in threads."""

from . import mutants
from .features import FEATURES
from .parts import Parts
from .sqlite_stores import SqliteStores
from .trial import WANTED, WANTED_WITH_A_FILE, tried

__all__ = ["FEATURES", "ON_SQLITE", "WANTED", "WANTED_WITH_A_FILE", "Parts", "mutants", "tried"]

# The service over a file: one process at a time, and no network between it and what it keeps.
ON_SQLITE = Parts(
    stores=SqliteStores,
    without=frozenset({"replicas", "pauses", "orphans", "flaky store", "slow store", "other workspace"}),
)
