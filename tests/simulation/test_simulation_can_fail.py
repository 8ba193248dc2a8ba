"""With a part that is broken on purpose, some of the first seeds are blamed, and for the right thing."""

from __future__ import annotations

import pytest
from simulated import mutants
from simulated.invariants.requests import refusals
from simulated.trial import tried
from simulated.world import Parts


def _with(*features: str) -> frozenset[str]:
    return frozenset(features)


CASES = {
    "a queue that forgets what waits at the end": (
        Parts(mount_loop=mutants.with_queue(mutants.QueueThatForgets)),
        "it is lost",
    ),
    "a queue that gives the newest first": (
        Parts(mount_loop=mutants.with_queue(mutants.QueueNewestFirst)),
        "its elder",
    ),
    "a queue that takes everything twice": (
        Parts(mount_loop=mutants.with_queue(mutants.QueueThatDoubles)),
        "delivered twice",
    ),
    "a queue in which what is urgent waits": (
        Parts(mount_loop=mutants.with_queue(mutants.QueueWithoutHaste), features=_with("urgent steers")),
        "was not read for",
    ),
    "a door that throws messages away": (
        Parts(mount_loop=mutants.with_door("inject_message", mutants.losing_messages)),
        "it is lost",
    ),
    "a door that changes no text": (
        Parts(mount_loop=mutants.with_door("edit_message", mutants.without_edits), features=_with("edits")),
        "were changed on the way",
    ),
    "a door that gives nothing back": (
        Parts(mount_loop=mutants.with_door("withdraw_message", mutants.withdrawing_nothing), features=_with("edits")),
        "was taken back",
    ),
    "receipts that are forgotten": (
        Parts(mount_loop=mutants.with_door("receipts", mutants.forgetting_receipts)),
        "The agent tells of",
    ),
    "a row between a call and its result": (Parts(wrap_log=mutants.LogThatInterrupts), "came before the results of"),
    "results that are lost": (Parts(wrap_log=mutants.LogThatLosesResults), "the log has no result of"),
    "results of other calls": (Parts(wrap_log=mutants.LogThatMixesResultsUp), "is in the row of"),
    "late results that are lost": (
        Parts(wrap_log=mutants.LogThatLosesLateRows, features=_with("urgent steers")),
        "was to follow, and never came",
    ),
    "late results that come twice": (
        Parts(wrap_log=mutants.LogThatDoublesLateRows, features=_with("urgent steers")),
        "which none was to follow for",
    ),
    "calls that a killed process has left at work": (
        Parts(wrap_log=mutants.LogThatLosesLateRows, features=_with("urgent steers", "kills")),
        "their process was killed",
    ),
    "a refusal that is forgotten": (
        Parts(wrap_log=mutants.LogThatForgetsRefusals, features=_with("refusals")),
        "the model reads",
    ),
    "a history that is rewritten": (
        Parts(wrap_log=mutants.LogThatRewrites),
        "does not begin with all of the one before",
    ),
    "a store that never answers": (Parts(wrap_log=mutants.LogThatHangs), "Nothing will ever happen again"),
    "an end that nobody is told of": (
        Parts(mount_loop=mutants.with_loop(mutants.LoopThatEndsSilently)),
        "'execution:end' came 0 times",
    ),
    "a run that outlives its cancellation": (
        Parts(mount_loop=mutants.with_loop(mutants.LoopThatLivesOn), features=_with("cancels")),
        "A task is left",
    ),
    "a row after the end": (
        Parts(mount_loop=mutants.with_loop(mutants.LoopThatAddsLater)),
        "was added while no run was on",
    ),
    "an error that is hidden": (
        Parts(mount_loop=mutants.with_loop(mutants.LoopThatHidesErrors), features=_with("errors")),
        "says that it ended with 'error'",
    ),
    "an answer that nobody is shown": (
        Parts(mount_loop=mutants.with_progress(mutants.mumbling)),
        "people were shown",
    ),
    "tools that nobody tells of at the end": (
        Parts(mount_loop=mutants.with_progress(mutants.forgetting_calls)),
        "does not tell what became of",
    ),
    "tools that are said to have finished": (
        Parts(mount_loop=mutants.with_progress(mutants.praising_calls), features=_with("stops")),
        "is 'finished'; it is",
    ),
    "tokens that are counted twice": (
        Parts(mount_loop=mutants.with_progress(mutants.counting_double)),
        "people are told",
    ),
    "reports that come too late": (
        Parts(mount_loop=mutants.with_progress(mutants.reporting_late), features=_with("talkative tools")),
        "came outside of its tool:start and tool:end",
    ),
    "a stop that does nothing": (
        Parts(mount_loop=mutants.with_door("stop", mutants.deaf_to_stops), features=_with("stops")),
        "began after the stop",
    ),
    "a stop that meets another run": (
        Parts(mount_loop=mutants.with_door("stop", mutants.stopping_anybody), features=_with("stops")),
        "A stop for a run that is over was taken",
    ),
    "an urgent message that harms tools": (
        Parts(mount_loop=mutants.mount_harming_tools, features=_with("urgent steers")),
        "neither its time was up nor the run's",
    ),
    "an urgent message that harms a call which has begun early": (
        Parts(
            mount_loop=mutants.with_loop(mutants.LoopThatForgetsCalls),
            features=_with("urgent steers", "harmless tools", "many calls"),
        ),
        "its call is forgotten",
    ),
    "a tool with side effects that begins early": (
        Parts(mount_loop=mutants.with_tools(mutants.LooksHarmless)),
        "began before its call stood in the log",
    ),
    "an early call that goes on after its answer has failed": (
        Parts(mount_loop=mutants.with_tools(mutants.NeverEnds), features=_with("harmless tools", "errors")),
        "nobody will hear of its result",
    ),
    "a child process that lives on": (
        Parts(mount_loop=mutants.with_tools(mutants.NeverEnds), features=_with("nursing tools", "cancels")),
        "of a tool has outlived the run",
    ),
    "a tool without a time limit": (
        Parts(mount_loop=mutants.with_tools(mutants.CannotWait), features=_with("impatient tools")),
        "after its time",
    ),
    "a result of any size": (
        Parts(mount_loop=mutants.with_options(max_result_chars=10**6), features=_with("capped results", "odd tools")),
        "the most is",
    ),
    "a model that is asked again for ever": (
        Parts(mount_loop=mutants.with_options(max_retries=50), features=_with("errors")),
        "came a retry; to come was",
    ),
    "a model that is asked again at once": (
        Parts(mount_loop=mutants.with_options(retry_base_delay_s=0), features=_with("errors")),
        "it is to be 0.500 to 1.000 s",
    ),
    "providers in another order": (
        Parts(mount_loop=mutants.with_loop(mutants.LoopThatTurnsProvidersRound), features=_with("spare models")),
        "it was the turn of",
    ),
    "a run that spends what it likes": (
        Parts(mount_loop=mutants.with_options(max_tokens=None), features=_with("token limit")),
        "may use its tools, and should not",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_it_is_noticed(case: str) -> None:
    parts, sentence = CASES[case]
    blames = (blame for seed in range(150) for blame in tried(seed, parts).blames)
    assert any(sentence in blame for blame in blames)


def test_a_hang_is_told_with_the_place_where_everybody_stands() -> None:
    blames = tried(0, Parts(wrap_log=mutants.LogThatHangs)).blames
    assert any("logs.py" in blame and "add_message" in blame for blame in blames)


CALL = {"role": "assistant", "content": [{"type": "tool_call", "id": "a", "name": "look", "input": {}}]}
RESULT = {"role": "tool", "tool_call_id": "a", "content": "seen"}
USER = {"role": "user", "content": "go"}


@pytest.mark.parametrize(
    ("rows", "reason"),
    [
        ([USER, CALL, USER], "a call without its result after it: a"),
        ([USER, RESULT, USER], "a result without its call before it: a"),
        ([USER, CALL, RESULT, CALL, RESULT], "the call id 'a' is used twice"),
        ([USER, {"role": "assistant", "content": "done"}], "the last word is the model's"),
        ([{"role": "user", "content": " "}], "a message of the role 'user' is blank"),
        ([USER, {"role": "assistant", "content": []}, USER], "a message of the role 'assistant' is empty"),
        ([{"role": "user", "content": [{"type": "text", "text": "\n"}]}], "blank text"),
        (
            [USER, {"role": "assistant", "content": [{"type": "thinking", "thinking": "hm", "signature": "s"}]}, USER],
            "the final block of an assistant message is thinking",
        ),
        (
            [USER, {"role": "assistant", "content": [{"type": "thinking", "thinking": "hm"}]}, USER],
            "thinking without its signature",
        ),
        ([], "the last word is the model's"),
    ],
)
def test_a_request_that_a_provider_refuses_is_noticed(rows: list[dict[str, object]], reason: str) -> None:
    assert reason in refusals(rows)


def test_a_request_that_a_provider_takes_is_not_blamed() -> None:
    assert refusals([USER, CALL, RESULT]) == []
