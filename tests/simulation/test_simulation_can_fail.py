"""With a part that is broken on purpose, some of the first seeds are blamed, and for the right thing."""

from __future__ import annotations

import pytest
from simulated import broken
from simulated.judge.requests import refusals
from simulated.trial import tried
from simulated.world import Parts

CASES = {
    "a queue that forgets what waits at the end": (
        Parts(mount_loop=broken.with_queue(broken.QueueThatForgets)),
        "it is lost",
    ),
    "a queue that gives the newest first": (
        Parts(mount_loop=broken.with_queue(broken.QueueNewestFirst)),
        "its elder",
    ),
    "a queue that takes everything twice": (
        Parts(mount_loop=broken.with_queue(broken.QueueThatDoubles)),
        "delivered twice",
    ),
    "a door that throws messages away": (Parts(mount_loop=broken.mount_losing_messages), "it is lost"),
    "a row between a call and its result": (Parts(wrap_log=broken.LogThatInterrupts), "came before the results of"),
    "results that are lost": (Parts(wrap_log=broken.LogThatLosesResults), "the log has no result of"),
    "a history that is rewritten": (
        Parts(wrap_log=broken.LogThatRewrites),
        "does not begin with all of the one before",
    ),
    "a store that never answers": (Parts(wrap_log=broken.LogThatHangs), "Nothing will ever happen again"),
    "an end that nobody is told of": (
        Parts(mount_loop=broken.with_loop(broken.LoopThatEndsSilently)),
        "'execution:end' came 0 times",
    ),
    "a run that outlives its cancellation": (
        Parts(mount_loop=broken.with_loop(broken.LoopThatLivesOn), features=frozenset({"cancels"})),
        "A task is left",
    ),
    "a row after the end": (
        Parts(mount_loop=broken.with_loop(broken.LoopThatAddsLater)),
        "was added while no run was on",
    ),
    "an error that is hidden": (
        Parts(mount_loop=broken.with_loop(broken.LoopThatHidesErrors), features=frozenset({"errors"})),
        "says that it ended with 'error'",
    ),
    "an answer that nobody is shown": (
        Parts(mount_loop=broken.with_loop(broken.LoopThatMumbles)),
        "people were shown",
    ),
    "a stop that does nothing": (
        Parts(mount_loop=broken.mount_deaf_to_stops, features=frozenset({"stops"})),
        "began after the stop",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_it_is_noticed(case: str) -> None:
    parts, sentence = CASES[case]
    blames = [blame for seed in range(40) for blame in tried(seed, parts).blames]
    assert any(sentence in blame for blame in blames), blames


def test_a_hang_is_told_with_the_place_where_everybody_stands() -> None:
    blames = tried(0, Parts(wrap_log=broken.LogThatHangs)).blames
    assert any("broken.py" in blame and "add_message" in blame for blame in blames)


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
