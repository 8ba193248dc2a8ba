"""With a part of the service that is broken on purpose, some of the first seeds are blamed, and for the right thing."""

from __future__ import annotations

import pytest
from simulated.whole import Parts, broken, tried
from simulated.whole.judge import HOLDS_UP as TROUBLES


def _with(*features: str) -> frozenset[str]:
    return frozenset(features)


CASES = {
    "a store that loses what it has accepted": (Parts(table=broken.tables.LosesEntries), "is to have one end"),
    "an acknowledgement before the event is kept": (
        Parts(is_hasty=True, features=_with("kills", "slow store")),
        "was acknowledged and is lost",
    ),
    "a store that knows nothing again": (
        Parts(table=broken.tables.ForgetsIdentities, features=_with("doubled events")),
        "rows.",
    ),
    "a store that gives the newest first": (
        Parts(table=broken.tables.MixesUp, features=_with("slow store", "outages")),
        "which was accepted earlier",
    ),
    "a store that loses edits": (
        Parts(table=broken.tables.LosesEdits, features=_with("edits")),
        "is the last that was accepted",
    ),
    "a store that forgets runs": (
        Parts(table=broken.tables.ForgetsRuns, features=_with("kills")),
        "has not ended",
    ),
    "a store that takes a post for made": (
        Parts(table=broken.tables.ForgetsPosts, features=_with("kills", "slow Slack")),
        "is not in the thread",
    ),
    "a store that forgets what a stop held back": (
        Parts(table=broken.tables.ForgetsWhatIsHeld, features=_with("stops")),
        "nothing had started it",
    ),
    "a store for which nothing is due": (
        Parts(table=broken.tables.NothingIsDue, features=_with("kills")),
        "still has something to do",
    ),
    "a store that wakes nobody": (Parts(table=broken.tables.NobodyIsTold), "still has something to do"),
    "a lease that is never given back": (Parts(table=broken.tables.KeepsLeases), "still belongs to"),
    "a message that counts as refused": (Parts(table=broken.tables.RefusesSome), "was refused for no reason"),
    "a stop that meets any run": (
        Parts(table=broken.tables.StopsAnybody, features=_with("stops", "slow store")),
        "nobody had asked for it",
    ),
    "leases and logs that keep nobody out": (
        Parts(table=broken.tables.GivesAwayLeases, logs=broken.logs.WithoutFences, features=_with("replicas")),
        "though another one owns it",
    ),
    "results that the model is not told": (Parts(sessions=broken.service.LosesResults), "A provider would refuse"),
    "a log that loses answers": (Parts(logs=broken.logs.LosesAnswers), "and not in the log"),
    "an outbox that does not look": (
        Parts(wire=broken.service.DoesNotLookUp, features=_with("failing Slack")),
        "posts have the key",
    ),
    "texts that are not posted": (Parts(wire=broken.service.PostsNothing), "is not in the thread"),
    "texts in another order": (Parts(wire=broken.service.PostsTheNewestFirst), "; the thread has"),
    "a status that stays": (Parts(wire=broken.service.LeavesStatuses), "is left."),
    "an hourglass that stays": (Parts(wire=broken.service.LeavesMarks), "An hourglass is left"),
    "a message that is read in secret": (
        Parts(wire=broken.service.ReadsInSecret, without=TROUBLES),
        "was delivered, and its marks are",
    ),
    "a tool that is executed again": (
        Parts(tool=broken.service.LooksHarmless, features=_with("kills")),
        "was executed 2 times",
    ),
    "a stop that does nothing": (
        Parts(sessions=broken.service.DeafToStops, features=_with("stops")),
        "was stopped at",
    ),
    "a stop that is lost": (
        Parts(table=broken.tables.LosesStops, features=_with("stops"), without=TROUBLES),
        "was told to stop",
    ),
    "a process that leaves a task behind": (
        Parts(sessions=broken.service.LeavesATaskBehind, features=_with("terms")),
        "and left this behind",
    ),
    "a session that hangs": (Parts(sessions=broken.service.NeverAnswers), "still has something to do"),
}


@pytest.mark.parametrize("case", CASES)
def test_it_is_noticed(case: str) -> None:
    parts, sentence = CASES[case]
    blames = (blame for seed in range(150) for blame in tried(seed, parts).blames)
    assert any(sentence in blame for blame in blames)
