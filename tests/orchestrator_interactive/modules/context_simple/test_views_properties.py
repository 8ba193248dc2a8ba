"""Properties of every view of `context-simple`, for any rows and budgets."""

import json
from typing import Any

from context_histories import histories, words
from context_rows import (
    a_coordinator,
    answered,
    called,
    calls,
    is_note,
    is_shortened,
    problems,
    result,
    size,
    user,
)
from hypothesis import given
from hypothesis import strategies as st

from orchestrator_interactive.kernel.contracts import events
from orchestrator_interactive.modules import context_simple
from orchestrator_interactive.testing import EventRecorder, MockProvider
from orchestrator_interactive.transcript.rows import estimate, is_prompt

Row = dict[str, Any]

# The maximum size of a shortened row and of the note, besides the kept text.
MARK_TOKENS = 30
NOTE_TOKENS = 50
READABLE_TOKENS = 250
USER_CHARS = 400


def may_be_asked(rows: list[Row]) -> bool:
    """Return whether a request may follow these rows: every call has a result, and the last row is not the model's."""
    return not problems(rows)


# In tokens, or as a fraction of the conversation.
budgets = st.lists(st.integers(-50, 5000) | st.floats(0.1, 1.5), min_size=1, max_size=4)


@given(histories(), budgets, st.booleans())
async def test_every_view_is_valid_fits_the_budget_and_has_rows_of_the_history(rows, budgets, prompted) -> None:
    coordinator, recorder = a_coordinator(), EventRecorder()
    for event in (events.CONTEXT_PRE_COMPACT, events.CONTEXT_POST_COMPACT):
        coordinator.hooks.register(event, recorder)
    config = {"system_prompt": "Be kind."} if prompted else {}
    context = await context_simple.mount(coordinator, config)
    preface = [{"role": "system", "content": "Be kind."}] if prompted else []
    before: list[Row] = []
    for number, row in enumerate(rows, start=1):
        await context.add_message(row)
        history = rows[:number]
        if not may_be_asked(history):
            continue
        budget = budgets[number % len(budgets)]
        budget = budget if isinstance(budget, int) else int(budget * size(history))
        compactions = len(recorder.events) // 2
        view = await context.get_messages_for_request(token_budget=budget)
        assert json.dumps(await context.get_messages()) == json.dumps(history)
        assert not problems(view)
        assert view[: len(preface)] == preface
        check_rows(view[len(preface) :], history)
        check_size(view, preface, history, budget * 0.8)
        pairs = [name for name, _ in recorder.events[compactions * 2 :]]
        assert pairs in ([], [events.CONTEXT_PRE_COMPACT, events.CONTEXT_POST_COMPACT])
        if not pairs and view != preface + history:
            assert json.dumps(view[: len(before)]) == json.dumps(before)
        before = view


def check_rows(view: list[Row], history: list[Row]) -> None:
    """Check that the view has rows of the history in order, whole or shortened, with all required ones."""
    shown: list[int] = []
    for row in view:
        if is_note(row):
            continue
        found = (i for i in range(shown[-1] + 1 if shown else 0, len(history)) if same(row, history[i]))
        shown.append(next(found))
        whole = history[shown[-1]]
        assert row == whole or row["role"] == "tool" or {"injections", "notices", "results"} & set(row["metadata"])
    notes = [row for row in view if is_note(row)]
    assert len(notes) == (len(shown) < len(history))
    if notes:
        assert f" {len(history) - len(shown)} earlier messages" in notes[0]["content"]
    prompt, last_said = rows_of_people(history)[-1], max(rows_of_people(history))
    assert history[prompt] in view
    assert history[last_said] in view
    assert required_rows(history) <= set(shown)


def same(row: Row, whole: Row) -> bool:
    return row == whole or is_shortened(row, whole)


def is_of_people(row: Row) -> bool:
    return "results" not in row.get("metadata", {}) and row.get("metadata", {}).get("source") != "hook"


def unread(history: list[Row]) -> set[int]:
    """Return the last row, the results since the last answer of the model, and their calls."""
    spoke = max((i for i, row in enumerate(history) if row["role"] == "assistant"), default=0)
    results = {i for i in range(spoke, len(history)) if history[i]["role"] == "tool" or "results" in meta(history[i])}
    return {*results, len(history) - 1, *({spoke} if answered(history[spoke:]) else ())}


def meta(row: Row) -> dict[str, Any]:
    metadata: dict[str, Any] = row.get("metadata", {})
    return metadata


def check_size(view: list[Row], preface: list[Row], history: list[Row], limit: float) -> None:
    least = size(preface) + NOTE_TOKENS + sum(minimum_size(history, i) for i in required_rows(history))
    if size(preface) + size(history) > limit >= least:
        assert size(view) <= limit


def required_rows(history: list[Row]) -> set[int]:
    """Return the rows that every view has."""
    rules = {i for i, row in enumerate(history) if row["role"] == "system" and "metadata" not in row}
    return {*rows_of_people(history), *rules, *unread(history)}


def rows_of_people(history: list[Row]) -> list[int]:
    """Return the rows of people before and after the prompt of the task, with the prompt last."""
    prompt = max(i for i, row in enumerate(history) if is_prompt(row))
    begin = prompt
    while begin and history[begin - 1]["role"] in {"user", "system"} and not is_prompt(history[begin - 1]):
        begin -= 1
    people = [i for i in range(begin, len(history)) if history[i]["role"] == "user" and is_of_people(history[i])]
    return [*(i for i in people if i != prompt), prompt]


def minimum_size(history: list[Row], index: int) -> int:
    """Return the minimum size of a row: results shrink to a mark, injections to a readable length."""
    row = history[index]
    whole = estimate(row)
    last_said = max(i for i, row in enumerate(history) if row["role"] == "user" and is_of_people(row))
    if row["role"] == "tool":
        return min(whole, MARK_TOKENS)
    # A character has at most three bytes here.
    if "results" in meta(row):
        return min(whole, USER_CHARS * 3 // 4 + MARK_TOKENS)
    if {"injections", "notices"} & set(meta(row)) and index != last_said:
        return min(whole, max(READABLE_TOKENS * 2, USER_CHARS * 3 // 4) + MARK_TOKENS)
    return whole


@given(histories(), st.lists(st.sampled_from(["a summary", "", "long " * 300]), max_size=5), st.integers(300, 3000))
async def test_every_view_with_summaries_is_valid_and_notes_omitted_rows(rows, answers, budget) -> None:
    coordinator, recorder = a_coordinator(), EventRecorder()
    coordinator.hooks.register(events.CONTEXT_POST_COMPACT, recorder)
    context = await context_simple.mount(coordinator, {"strategy": "summary", "summary_max_tokens": 60})
    provider = MockProvider(answers)
    for number, row in enumerate(rows, start=1):
        await context.add_message(row)
        history = rows[:number]
        if not may_be_asked(history):
            continue
        view = await context.get_messages_for_request(token_budget=budget, provider=provider)
        assert json.dumps(await context.get_messages()) == json.dumps(history)
        assert not problems(view)
        kept = [row for row in view if not is_note(row)]
        assert sum(1 for row in view if is_note(row)) == (len(kept) < len(history))
        prompt = max(i for i, row in enumerate(history) if is_prompt(row))
        assert history[prompt] in view
    for request in provider.requests:
        assert not problems([message.model_dump() for message in request.messages])
        assert size([message.model_dump() for message in request.messages]) <= max(budget, 600)
    summaries = [data for _, data in recorder.events if data["strategy"] == "summary"]
    assert len(summaries) <= provider.call_count <= len(recorder.events)


@st.composite
def repeated_ids(draw: st.DrawFn) -> list[Row]:
    """Build histories of a provider that repeats its ids in every turn."""
    rows = [user("the task")]
    for _ in range(draw(st.integers(0, 25))):
        ids = [f"same-{n}" for n in range(draw(st.integers(1, 3)))]
        rows += [calls(*ids), *(result(i, draw(words)) for i in draw(st.permutations(ids)))]
    return rows


@given(repeated_ids(), st.integers(1, 1500))
async def test_calls_and_results_stay_together_if_ids_repeat(rows: list[Row], budget: int) -> None:
    context = await context_simple.mount(a_coordinator(), {})
    await context.set_messages(rows)
    view = await context.get_messages_for_request(token_budget=budget)
    waiting: list[str] = []
    for row in view:
        if row["role"] == "tool":
            waiting.remove(row["tool_call_id"])
            continue
        assert not waiting
        waiting = called([row])
    assert not waiting
