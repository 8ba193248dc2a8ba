"""With a part of the service that is broken on purpose, some of the first seeds are blamed, and for the right thing."""

from __future__ import annotations

from functools import partial

import pytest
from simulated.service import Parts, mutants, tried
from simulated.service.invariants import HOLDS_UP as TROUBLES

from connector.runs.background_tasks import BackgroundTasks


def _with(*features: str) -> frozenset[str]:
    return frozenset(features)


CASES = {
    "a store that loses what it has accepted": (Parts(table=mutants.tables.LosesEntries), "is to have one end"),
    "an acknowledgement before the event is kept": (
        Parts(is_hasty=True, features=_with("kills", "slow store")),
        "was acknowledged and is lost",
    ),
    "a thread that is not read when an agent is called into it": (
        Parts(wire=mutants.service.DoesNotCatchUp, features=_with("threads of others", "no look-ups", "kills")),
        "was acknowledged and is lost",
    ),
    "a store that knows nothing again": (
        Parts(table=mutants.tables.ForgetsIdentities, features=_with("doubled events")),
        "rows.",
    ),
    "a loop that is given the newer of two messages first": (
        Parts(sessions=mutants.service.SwapsSteers, features=_with("urgent steers")),
        "which was written and accepted earlier",
    ),
    "a message that waits for no older one": (
        Parts(
            background=partial(BackgroundTasks, older_first_s=0.0),
            features=_with("threads of others", "late events", "slow Slack", "failing Slack"),
            without=_with("kills", "pauses", "two conversations"),
        ),
        "which was acknowledged when it was written",
    ),
    "a store that loses edits": (
        Parts(table=mutants.tables.LosesEdits, features=_with("edits")),
        "is the last that was accepted",
    ),
    "a store that forgets runs": (
        Parts(table=mutants.tables.ForgetsRuns, features=_with("kills")),
        "has not ended",
    ),
    "a store that takes a post for made": (
        Parts(table=mutants.tables.ForgetsPosts, features=_with("kills", "slow Slack")),
        "is not in the thread",
    ),
    "a store that forgets what a stop held back": (
        Parts(table=mutants.tables.ForgetsWhatIsHeld, features=_with("stops")),
        "nothing had started it",
    ),
    "a store for which nothing is due": (
        Parts(table=mutants.tables.NothingIsDue, features=_with("kills")),
        "still has something to do",
    ),
    "a store that wakes nobody": (Parts(table=mutants.tables.NobodyIsTold), "still has something to do"),
    "a lease that is never given back": (Parts(table=mutants.tables.KeepsLeases), "still belongs to"),
    "a message that counts as refused": (Parts(table=mutants.tables.RefusesSome), "was refused for no reason"),
    "what is left of a run, and forgotten": (
        Parts(table=mutants.tables.ForgetsWhatIsLeft, features=_with("kills")),
        "is left",
    ),
    "a run that begins again when it is over": (
        Parts(table=mutants.tables.ForgetsEnds, features=_with("kills", "hopeless model")),
        "had said its last word",
    ),
    "a stop that holds nothing back": (
        Parts(table=mutants.tables.ForgetsToHold, features=_with("stops", "kills")),
        "nothing had started it",
    ),
    "a message that was held back, and is lost": (
        Parts(table=mutants.tables.StopsWhatIsHeld, features=_with("stops", "slow store", "impatient people")),
        "was held back, and then",
    ),
    "a stop that is older than the run": (
        Parts(table=mutants.tables.StopsAtAnyTime, features=_with("stops", "flaky store", "slow store", "late events")),
        "nobody had asked for it",
    ),
    "an unknown outcome that nobody is told of": (
        Parts(wire=mutants.slack_clients.HidesTheUnknown, features=_with("kills")),
        "and people are not told",
    ),
    "a stop that does not say what it holds back": (
        Parts(wire=mutants.slack_clients.HidesWhatIsHeld, features=_with("stops")),
        "waits, and nobody knows",
    ),
    "a stop that does not say what was done": (
        Parts(wire=mutants.slack_clients.HidesWhatWasDone, features=_with("stops")),
        "calls are finished, and people read",
    ),
    "a stop that does not say whose it is": (
        Parts(wire=mutants.slack_clients.HidesWhoHasStopped, features=_with("stops")),
        "was stopped by",
    ),
    "a stop that passes for an end": (
        Parts(wire=mutants.slack_clients.TakesStopsForEnds, features=_with("stops")),
        "nobody knows how",
    ),
    "a failure that passes for an end": (
        Parts(wire=mutants.slack_clients.TakesFailuresForEnds, features=_with("hopeless model")),
        "nobody knows how",
    ),
    "a stop word without an answer": (
        Parts(wire=mutants.slack_clients.AnswersNoStop, features=_with("stops")),
        "a stop that met nothing",
    ),
    "a beginning that is stopped in silence": (
        Parts(wire=mutants.slack_clients.StopsBeginningsInSilence, features=_with("stops", "kills")),
        "was stopped before it was read",
    ),
    "a post of whoever owns nothing any more": (
        Parts(
            wire=mutants.slack_clients.AsksNobody, features=_with("pauses", "replicas", "failing Slack", "little room")
        ),
        "after it was succeeded",
    ),
    "an edit that was overtaken by a later one": (
        Parts(
            wire=mutants.slack_clients.HasNeverSeenAMessage,
            features=_with("edits", "late events", "kills"),
            without=_with("threads of others", "no look-ups", "few slots", "other workspace", "little room", "stops"),
        ),
        "is the last that was accepted",
    ),
    "calls of a dead process that nobody waits for": (
        Parts(background=partial(BackgroundTasks, calls_late_s=0.0), features=_with("kills", "orphans", "slow Slack")),
        "is left",
    ),
    "a second stop that is no other than the first": (
        Parts(sessions=mutants.service.TakesItsTime, features=_with("stops")),
        "was to end at once",
    ),
    "a stop that meets any run": (
        Parts(table=mutants.tables.StopsAnybody, features=_with("stops", "slow store")),
        "nobody had asked for it",
    ),
    "leases and logs that keep nobody out": (
        Parts(table=mutants.tables.GivesAwayLeases, logs=mutants.logs.WithoutFences, features=_with("replicas")),
        "though another one owns it",
    ),
    "results that the model is not told": (Parts(sessions=mutants.service.LosesResults), "A provider would refuse"),
    "a log that loses answers": (Parts(logs=mutants.logs.LosesAnswers), "and not in the log"),
    "an outbox that does not look": (
        Parts(wire=mutants.service.DoesNotLookUp, features=_with("failing Slack")),
        "was there, and was posted again",
    ),
    "texts that are not posted": (Parts(wire=mutants.service.PostsNothing), "is not in the thread"),
    "texts in another order": (Parts(wire=mutants.service.PostsTheNewestFirst), "; the thread has"),
    "a status that stays": (Parts(wire=mutants.service.LeavesStatuses), "is left."),
    "an hourglass that stays": (Parts(wire=mutants.service.LeavesMarks), "An hourglass is left"),
    "a message that is read in secret": (
        Parts(wire=mutants.service.ReadsInSecret, without=TROUBLES),
        "was delivered, and its marks are",
    ),
    "a tool that is executed again": (
        Parts(tool=mutants.service.LooksHarmless, features=_with("kills")),
        "was executed 2 times",
    ),
    "a stop that does nothing": (
        Parts(sessions=mutants.service.DeafToStops, features=_with("stops")),
        "was stopped at",
    ),
    "a stop that is lost": (
        Parts(table=mutants.tables.LosesStops, features=_with("stops"), without=TROUBLES),
        "was told to stop",
    ),
    "a process that leaves a task behind": (
        Parts(sessions=mutants.service.LeavesATaskBehind, features=_with("terms")),
        "and left this behind",
    ),
    "a process that serves every workspace": (
        Parts(runs=mutants.service.ServesEveryWorkspace, features=_with("other workspace")),
        "whose workspace it is not connected to",
    ),
    "slots for everybody": (
        Parts(slots=mutants.slots.GrantsToAll, features=_with("few slots")),
        "runs have a slot, which are too many",
    ),
    "a channel without a bound": (
        Parts(slots=mutants.slots.IgnoresChannels, features=_with("few slots")),
        "runs have a slot, which are too many",
    ),
    "a slot that nobody gets when it is free": (
        Parts(slots=mutants.slots.ForgetsThoseWhoWait, features=_with("few slots")),
        "waits for a slot, and there is one",
    ),
    "a run that does not wait for its slot": (
        Parts(slots=mutants.slots.HoldsNobodyUp, features=_with("few slots")),
        "without a slot",
    ),
    "a session that hangs": (Parts(sessions=mutants.service.NeverAnswers), "still has something to do"),
}


# What few seeds notice, these have noticed; where the code has changed since, others do.
KNOWN = {
    "a message that was held back, and is lost": (584, 617),
    "a message that waits for no older one": (195, 957),
    "a post of whoever owns nothing any more": (2370, 2958),
    "a stop that is older than the run": (108, 132),
    "an edit that was overtaken by a later one": (1743, 1744),
    "a beginning that is stopped in silence": (81, 117),
    "a second stop that is no other than the first": (173, 200),
    "calls of a dead process that nobody waits for": (1177,),
    "a stop that is lost": (66, 83),
    "a stop that meets any run": (48, 141),
    "a stop that does not say what was done": (23, 45),
    "what is left of a run, and forgotten": (47, 84),
    "an outbox that does not look": (13, 15),
}


@pytest.mark.timeout(300)
@pytest.mark.parametrize("case", CASES)
def test_it_is_noticed(case: str) -> None:
    parts, sentence = CASES[case]
    seeds = (*KNOWN.get(case, ()), *range(1000))
    blames = (blame for seed in seeds for blame in tried(seed, parts).blames)
    assert any(sentence in blame for blame in blames)
