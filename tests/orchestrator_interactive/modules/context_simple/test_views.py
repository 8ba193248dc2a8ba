"""The rows that a view omits or shortens, and properties of every view for any rows and budgets."""

import json
from typing import Any

import pytest
from context_histories import histories, words
from context_rows import (
    a_context,
    a_coordinator,
    a_tool_step,
    answered,
    called,
    calls,
    from_hook,
    is_note,
    is_shortened,
    late,
    notice,
    pending,
    problems,
    result,
    said,
    size,
    steer,
    talk,
    tool_steps,
    user,
)
from hypothesis import given
from hypothesis import strategies as st

from orchestrator_interactive.kernel.contracts import events
from orchestrator_interactive.loop.injection_queue import PREFIX
from orchestrator_interactive.modules import context_simple
from orchestrator_interactive.testing import EventRecorder, MockProvider
from orchestrator_interactive.transcript.rows import estimate, is_prompt

Row = dict[str, Any]


OTHERS = [steer("more"), notice("a door fell shut"), talk("lunch?"), from_hook("careful", "user"), late("c1")]


@pytest.mark.parametrize("other", OTHERS)
async def test_an_injection_a_notice_talk_and_a_late_result_are_not_prompts(other: Row) -> None:
    assert not is_prompt(other)
    context = await a_context(user("the task"), *tool_steps(30), other, *tool_steps(30, 60))
    assert user("the task") in await context.get_messages_for_request(token_budget=900)


async def test_rows_that_an_earlier_run_left_unread_stay_with_the_task() -> None:
    leading = [notice("a door fell shut"), steer("not the cellar"), talk("lunch?"), user("the task")]
    context = await a_context(user("old"), said("old answer"), *leading, *tool_steps(60))
    view = await context.get_messages_for_request(token_budget=900)
    assert view[1:5] == leading


async def test_long_talk_is_shortened_and_the_prompt_is_not() -> None:
    rows = [talk("lunch? " * 2_000), user("the task " * 100), *tool_steps(10)]
    view = await (await a_context(*rows)).get_messages_for_request(token_budget=2_000)
    shortened, prompt, *_ = (row for row in view if row["role"] == "user" and "left_out" not in row.get("metadata", {}))
    assert prompt == rows[1]
    assert shortened["content"].startswith("[People wrote this in the thread.")
    assert len(shortened["content"]) < 8_000
    assert not is_prompt(shortened)


async def test_an_unanswered_earlier_prompt_is_shown() -> None:
    rows = [user("delete all"), said("deleted"), user("look here"), user("look there"), *tool_steps(60)]
    view = await (await a_context(*rows)).get_messages_for_request(token_budget=900)
    assert view[1:3] == [user("look here"), user("look there")]
    assert user("delete all") not in view  # without its answer it would read as open


async def test_answered_rows_are_not_shown_with_the_next_task() -> None:
    early, unread = steer("not the cellar"), steer("and the attic " * 60)
    context = await a_context(user("the task"), early, *tool_steps(40), said("no cellar " * 60), unread)
    assert (await context.get_messages_for_request(token_budget=600))[1:] == [user("the task"), early, unread]
    for row in [user("the next task"), *tool_steps(40, 60)]:
        await context.add_message(row)
    view = await context.get_messages_for_request(token_budget=900)
    assert user("the next task") in view
    assert user("the task") not in view
    assert early not in view


async def test_unanswered_prompts_leave_room_for_steps() -> None:
    prompts = [user(f"prompt {number} " * 20) for number in range(50)]
    view = await (await a_context(*prompts, *tool_steps(60))).get_messages_for_request(token_budget=900)
    assert prompts[-1] in view
    assert prompts[-2] in view
    assert prompts[0] not in view
    assert called(view)
    assert size(view) <= 720


async def test_steps_take_precedence_over_rows_of_hooks() -> None:
    remarks = [from_hook(f"remark {number}" + " words" * 10) for number in range(12)]
    rows = [*remarks, user("the task " * 200), *tool_steps(60)]
    view = await (await a_context(*rows)).get_messages_for_request(token_budget=1100)
    assert len(called(view)) > 2
    assert size(view) <= 880


async def test_a_late_result_is_shown_with_its_call_without_the_steps_between() -> None:
    step = [calls("slow"), pending("slow")]
    rows = [user("the task"), *tool_steps(10), *step, *tool_steps(10, 40), late("slow"), *tool_steps(40, 43)]
    views = [await (await a_context(*rows)).get_messages_for_request(token_budget=n) for n in range(300, 1500, 50)]
    shown = [view for view in views if late("slow") in view]
    assert 0 < len(shown) < len(views)
    for view in views:
        assert len(view) < len(rows)
        assert not problems(view)
        assert view[2:4] == step if view in shown else "slow" not in called(view)


async def test_the_latest_steps_take_precedence_over_a_large_running_call() -> None:
    large = calls("slow", before=({"type": "text", "text": "words " * 200},))
    rows = [user("the task"), large, pending("slow"), *tool_steps(60)]
    view = await (await a_context(*rows)).get_messages_for_request(token_budget=900)
    assert "slow" not in called(view)
    assert size(view) > 400


async def test_an_unread_late_result_is_shown_with_its_call() -> None:
    step = [calls("slow"), pending("slow")]
    after = [late("slow"), from_hook("remark " * 200), steer("not the cellar")]
    rows = [user("the task"), *step, *tool_steps(40), said("I wait"), *after]
    view = await (await a_context(*rows)).get_messages_for_request(token_budget=500)
    assert view[1:] == [user("the task"), *step, late("slow"), steer("not the cellar")]


async def test_a_running_call_is_shown_until_its_task_ends() -> None:
    rows = [user("the task"), calls("slow"), pending("slow"), *tool_steps(60)]
    context = await a_context(*rows)
    assert called(await context.get_messages_for_request(token_budget=900))[0] == "slow"
    await context.set_messages([*rows, said("done"), user("the next task"), *tool_steps(60, 90)])
    assert "slow" not in called(await context.get_messages_for_request(token_budget=900))


async def test_a_huge_result_keeps_its_beginning_and_end() -> None:
    huge = result("c", "".join(f"line {number}\n" for number in range(10_000)))
    rows = [user("the task"), calls("c"), huge]
    view = await (await a_context(*rows)).get_messages_for_request(token_budget=2000)
    assert view[:2] == rows[:2]
    assert is_shortened(view[2], huge)
    assert view[2]["content"].startswith("line 0\n")
    assert view[2]["content"].endswith("line 9999\n")
    assert 800 < size(view) <= 1600


async def test_of_several_huge_results_the_latest_is_shortened_last() -> None:
    results = [result(call_id, "x" * 8000) for call_id in ("a", "b", "c")]
    rows = [user("the task"), calls("a", "b", "c"), *results]
    view = await (await a_context(*rows)).get_messages_for_request(token_budget=6000)
    assert is_shortened(view[2], results[0])
    assert view[4] == results[2]
    assert len(view[2]["content"]) < len(view[3]["content"])
    assert size(view) <= 4800


async def test_older_steps_are_omitted_before_an_unread_result_is_shortened() -> None:
    rows = [user("the task"), *tool_steps(40), calls("c"), result("c", "x" * 8000)]
    view = await (await a_context(*rows)).get_messages_for_request(token_budget=3000)
    assert view[-2:] == rows[-2:]


async def test_large_injections_are_shortened_except_the_last() -> None:
    steers = [steer(f"{number} " + "more " * 2000, f"m{number}") for number in range(5)]
    rows = [user("the task " * 200), *steers, *a_tool_step(1), steer("the last word " * 100, "m9")]
    view = await (await a_context(*rows)).get_messages_for_request(token_budget=3800)
    assert view[0] == rows[0]
    assert view[-1] == rows[-1]
    assert all(is_shortened(*pair) for pair in zip(view[1:6], steers, strict=True))
    assert all(row["content"].startswith(PREFIX) for row in view[1:6])
    assert size(view) <= 3040


async def test_a_huge_prompt_is_shown_whole_without_an_event() -> None:
    coordinator = a_coordinator()
    recorder = EventRecorder()
    coordinator.hooks.register(events.CONTEXT_POST_COMPACT, recorder)
    context = await context_simple.mount(coordinator, {})
    await context.add_message(user("word " * 10_000))
    for _ in range(3):
        assert await context.get_messages_for_request(token_budget=1000) == [user("word " * 10_000)]
    assert not recorder.events


@pytest.mark.parametrize("budget", [600, 100])
async def test_a_shortened_late_result_keeps_its_heading(budget: int) -> None:
    huge = late("slow", "x" * 40_000)
    rows = [user("the task"), calls("slow"), pending("slow"), said("I wait"), huge]
    view = await (await a_context(*rows)).get_messages_for_request(token_budget=budget)
    assert size(view) <= max(budget, 250)
    assert is_shortened(view[-1], huge)
    assert view[-1]["content"].startswith("[Results of tool calls that were still at work:]\n- call slow, look: x")


async def test_images_in_results_are_replaced_by_a_mark() -> None:
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "x" * 50}}
    shown = {**result("c"), "content": [{"type": "text", "text": "a photograph"}, image, image]}
    rows = [user("the task"), calls("c"), shown]
    view = await (await a_context(*rows)).get_messages_for_request(token_budget=1000)
    assert is_shortened(view[2], shown)
    assert "a photograph" in view[2]["content"]
    assert size(view) <= 800
    assert not problems(view)


async def test_the_whole_text_in_the_metadata_does_not_count() -> None:
    capped = {**result("c"), "metadata": {"whole": "x" * 1_000_000}}
    rows = [user("the task"), calls("c"), capped]
    assert await (await a_context(*rows)).get_messages_for_request(token_budget=200) == rows


async def test_a_shortened_result_has_no_whole_text_in_its_metadata() -> None:
    # A view is one state in the log; many whole texts would make it too large.
    capped = {**result("c", "x" * 4000), "metadata": {"whole": "x" * 1_000_000, "is_error": True}}
    view = await (await a_context(user("the task"), calls("c"), capped)).get_messages_for_request(token_budget=500)
    assert "left out here" in view[2]["content"]
    assert view[2]["metadata"] == {"is_error": True}


async def test_a_result_that_cannot_be_shortened_is_unchanged() -> None:
    parts = {**result("a"), "content": [{"type": "text", "text": text} for text in "abc"]}
    rows = [user("the task"), calls("a", "b"), parts, result("b", "x" * 8000)]
    view = await (await a_context(*rows)).get_messages_for_request(token_budget=1000)
    assert view[2] == parts
    assert is_shortened(view[3], rows[3])


async def test_an_empty_conversation_omits_nothing() -> None:
    context = await a_context(system_prompt="Be kind.")
    assert await context.get_messages_for_request(token_budget=1) == [{"role": "system", "content": "Be kind."}]


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
