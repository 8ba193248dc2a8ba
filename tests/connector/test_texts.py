from __future__ import annotations

import pytest

from connector import texts
from connector.records import RunSummary


def stopped(*tools: tuple[str | None, str], waiting: int = 0) -> str:
    ended = [{"tool": "bash", "label": label, "outcome": outcome} for label, outcome in tools]
    return texts.stopped("Ana", RunSummary.of({"tools": ended}), waiting)


@pytest.mark.parametrize(
    ("tools", "listed"),
    [
        ([("a", "finished")], " 1 tool call finished."),
        ([("a", "finished"), ("b", "failed")], " 2 tool calls finished, 1 with an error."),
        ([(None, "unknown")], " Outcome unknown: Using bash."),
        ([("a", "cancelled"), ("b", "cancelled")], " Not done: a and b."),
        ([(f"call {n}", "unknown") for n in range(6)], " Outcome unknown: call 0, call 1 and 4 more."),
        (
            [("a", "finished"), ("Writing notes.md", "cancelled"), ("Running the tests", "unknown")],
            " 1 tool call finished. Not done: Writing notes.md. Outcome unknown: Running the tests.",
        ),
        ([], ""),
    ],
)
def test_a_stop_notice_lists_finished_cancelled_and_unknown_calls(tools, listed):
    assert stopped(*tools) == f"🛑 Stopped by Ana.{listed}"


def test_a_stop_notice_is_short_whatever_the_labels_of_the_calls():
    labels = [f"{n} {'a very long label ' * 20}" for n in range(50)]
    text = stopped(
        *[(label, outcome) for label in labels for outcome in ("finished", "cancelled", "unknown")], waiting=7
    )
    assert len(text) < 400
    assert "50 tool calls finished" in text
    assert text.count("and 48 more") == 2
    assert "7 messages have not been read yet" in text


@pytest.mark.parametrize(
    ("reason", "sentence"),
    [
        ("max_iterations", "I stopped here: this run has reached its step limit."),
        ("max_cost_usd", "I stopped here: this run has reached its cost limit."),
        ("max_tokens", "I stopped here: this run has reached its token limit."),
        ("max_duration_s", "I stopped here: this run has reached its time limit."),
        ("length", "My answer was cut off because it became too long."),
        ("of an unknown kind", "I stopped before I was done."),
    ],
)
def test_an_incomplete_answer_has_a_reason_and_a_way_to_continue(reason, sentence):
    summary = RunSummary("incomplete", reason=reason)
    assert texts.incomplete(summary, 0) == f"⏸️ {sentence} Write “continue” and I will carry on."


@pytest.mark.parametrize(("detail", "more"), [("Too\nrisky.", " The reason given: “Too risky.”"), (None, ""), ("", "")])
def test_a_refusal_has_the_explanation_of_the_provider(detail, more):
    text = texts.incomplete(RunSummary("incomplete", reason="refusal", detail=detail), 0)
    assert text == f"⏸️ The model declined this request. Rephrase it, or start a new thread.{more}"
