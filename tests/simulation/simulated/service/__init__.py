"""The simulation of the whole service: several processes, their store, Slack, and people in threads."""

from simulated.trial import Verdict, run_seed

from .faults import STAGES
from .sqlite_stores import SqliteStores
from .world import FEATURES, Parts, World

__all__ = ["FEATURES", "ON_SQLITE", "WANTED", "WANTED_ON_SQLITE", "Parts", "run"]

# The service over a file: one process at a time, and no network between it and its store.
ON_SQLITE = Parts(
    stores=SqliteStores,
    without=frozenset({"replicas", "pauses", "orphaned calls", "flaky store", "slow store", "other workspace"}),
)
# The counts that a campaign must reach to be meaningful.
WANTED = (
    *(f"{fault} {stage}" for fault in ("kill", "termination", "pause") for stage in STAGES),
    *(f"accepted: {kind}" for kind in ("message", "edit", "withdrawal", "stop", "catch_up", "aside", "consent")),
    *("store: refused", "store: reply lost", "store outage", "restart", "process ended"),
    *("takeover of a run by another process", "takeover of a run by the same process"),
    *("takeover of a run with a post pending", "takeover of a run with no post pending"),
    *("event redelivered", "event sent again after its acknowledgement", "event given up", "run stopped"),
    *("Slack: dropped after", "Slack: 500 after", "Slack: ratelimited"),
    *("post made, and its reply lost", "post sent again"),
    *("a row of a stale owner refused", "a change of a stale owner refused"),
    *("agent mentioned in an existing thread", "no look-ups", "thread of direct messages"),
    *("Slack outage", "call of a dead process", "permanent model error", "run stopped again"),
    *("reload in a tool", "reload during a model call", "reload between steps of a run"),
    *("run waits for a slot, shown", "run waits for a slot, parked"),
    *("!mute", "!unmute", "consent clicked"),
    *("accepted: click", "clicked: request_choose_0", "clicked: request_choose_1", "clicked: request_always"),
    "clicked: request_reason",
    *("deletion of a status", "deletion of a root with replies", "deletion of a root without replies"),
)
_NOT_ON_SQLITE = (
    *("pause", "store:", "takeover of a run by the same", "kill between runs", "termination between runs"),
    *("a row of a stale owner", "a change of a stale owner"),
)
WANTED_ON_SQLITE = tuple(each for each in WANTED if not each.startswith(_NOT_ON_SQLITE))


def run(seed: int, parts: Parts | None = None) -> Verdict:
    return run_seed(seed, lambda sim: World(sim, parts or Parts()), max_callbacks=200_000)
