from __future__ import annotations

import json
import math

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from connector.runs.status_text import Activity, StatusTodo, status_content, todo_lines, until_next_step
from local_slack.blocks.blocks import check_blocks
from orchestrator_interactive.modules import tool_todo
from orchestrator_interactive.testing import TestCoordinator

SEARCH = {"tool": "search_files", "id": "1", "label": "Searching for “x”"}
TESTS = {"tool": "bash", "id": "2", "label": "Running the tests"}


def retrying(**data) -> dict:
    default = {"provider": "anthropic", "attempt": 2, "max_attempts": 3, "delay_s": 3.2, "reason": "rate_limit"}
    return {**default, "error": "529", **data}


def after(*events: tuple[str, dict]) -> Activity:
    activity = Activity()
    for event, data in events:
        activity.on_event(event, data)
    return activity


def shown_again(activity: Activity) -> str:
    """Return the phrase that follows the current one."""
    activity.mark_shown()
    return activity.phrase()


@pytest.mark.parametrize(
    ("data", "phrase"),
    [
        ({}, "The model's service is busy; trying again in 4 s (2 of 3)…"),
        (
            {"reason": "unavailable", "attempt": 1},
            "The model's service is not available; trying again in 4 s (1 of 3)…",
        ),
        ({"reason": "timeout", "delay_s": 60}, "The model does not answer; trying again in 60 s (2 of 3)…"),
        ({"reason": "timeout", "delay_s": 0.4}, "The model does not answer; trying again in 1 s (2 of 3)…"),
        ({"delay_s": 0}, "The model's service is busy; trying again (2 of 3)…"),
        ({"reason": "of an unknown kind"}, "The model's service failed; trying again in 4 s (2 of 3)…"),
    ],
)
def test_a_retry_is_shown_with_its_reason_and_its_delay(data, phrase):
    assert after(("thinking", {}), ("retrying", retrying(**data))).phrase() == f"⚙️ {phrase}"


READ = {"tool": "read_file", "id": "3", "label": "Reading notes", "args": {"path": "docs/notes.md"}}
FETCH = {"tool": "web_fetch", "id": "4", "label": "Reading the news", "args": {"url": "https://a.b/news"}}
LIST = {"tool": "todo", "id": "5", "args": {"items": [{"text": "read", "status": "done"}, {"text": "write"}]}}


def cards_of(activity: Activity) -> list[dict]:
    """Return the plans of a status message, which Slack accepts."""
    content = status_content(activity, "run", 0, has_cards=True)
    check_blocks(json.loads(json.dumps(content.blocks)))
    return [block for block in content.blocks if block["type"] == "plan"]


def test_to_dos_and_tool_calls_are_cards_that_keep_their_ids():
    activity = after(("tool:start", LIST), ("tool:end", {**LIST, "success": True}), ("tool:start", READ))
    todo, steps = cards_of(activity)
    assert todo["title"] == "To do: 1 of 2 done"
    assert [(each["task_id"], each["title"], each["status"]) for each in todo["tasks"]] == [
        ("todo0", "read", "complete"),
        ("todo1", "write", "pending"),
    ]
    ((before,),) = (steps["tasks"],)
    assert before["status"] == "in_progress"
    assert "docs/notes.md" in json.dumps(before["details"])
    for event in (("tool:start", FETCH), ("tool:end", {**READ, "success": True, "duration": 12.4})):
        activity.on_event(*event)
    activity.on_event("tool:end", {**FETCH, "success": False, "duration": 0.2})
    activity.on_event("thinking", {})
    _, steps = cards_of(activity)
    assert [(each["task_id"], each["title"], each["status"]) for each in steps["tasks"]] == [
        ("3", "Reading notes · 12 s", "complete"),
        ("4", "Reading the news", "error"),
    ]
    assert steps["tasks"][1]["sources"] == [{"type": "url", "url": "https://a.b/news", "text": "https://a.b/news"}]


@example([("\r", "", False)])
@given(st.lists(st.tuples(st.text(max_size=300), st.text(max_size=300), st.booleans()), max_size=30))
def test_slack_accepts_the_cards_of_any_calls(calls):
    activity = Activity()
    for number, (label, argument, is_over) in enumerate(calls):
        given = {"tool": "t", "id": str(number), "label": label, "args": {"path": argument, "url": argument}}
        activity.on_event("tool:start", given)
        if is_over:
            activity.on_event("tool:end", {**given, "success": True, "duration": number})
    plans = cards_of(activity)
    assert sum(len(plan["tasks"]) for plan in plans) == min(len(calls), 8)


def test_a_retry_is_shown_until_it_is_over_and_the_next_phrase_once():
    activity = after(("retrying", retrying()))
    assert "trying again" in shown_again(activity)
    activity.on_event("thinking", {})
    assert activity.phrase() == "⚙️ Thinking…"
    activity.on_event("compacting", {})
    activity.on_event("thinking", {})
    assert activity.phrase() == "⚙️ Summarizing the conversation so far…", "not shown yet"
    assert shown_again(activity) == "⚙️ Thinking…"


def test_a_running_call_remains_visible_while_the_model_reads_an_urgent_message():
    activity = after(
        ("thinking", {}),
        ("tool:start", SEARCH),
        ("tool:start", TESTS),
        ("tool:end", {**SEARCH, "duration": 1.0, "success": True}),
        ("injection:applied", {"messages": ["!now"], "count": 1, "ids": ["T:C:1"]}),
        ("thinking", {}),
    )
    assert activity.phrase() == "⚙️ Incorporating your input… Running the tests…"
    assert shown_again(activity) == "⚙️ Incorporating your input… Running the tests…"
    activity.on_event("tool:start", {**SEARCH, "id": "3"})
    assert activity.phrase() == "⚙️ Running the tests… (2 tools active)"
    activity.on_event("tool:end", {**TESTS, "duration": 40.0, "success": True})
    assert activity.phrase() == "⚙️ Searching for “x”…"


def test_a_tool_is_shown_until_the_next_event_so_that_the_status_goes_straight_to_the_input():
    activity = after(("thinking", {}), ("tool:start", SEARCH))
    shown_again(activity)
    activity.on_event("tool:end", {**SEARCH, "duration": 1.0, "success": True})
    assert (activity.phrase(), activity.account(0)) == ("⚙️ Searching for “x”…", ""), "nothing to edit yet"
    activity.on_event("injection:applied", {"messages": ["now"], "count": 1, "ids": ["T:C:1"]})
    assert activity.phrase() == "⚙️ Incorporating your input…"
    assert activity.account(0) == "1 step done · 1 message read while working"


def test_a_to_do_list_has_the_only_count_of_steps():
    activity = Activity(todo=(StatusTodo("look", "done"), StatusTodo("write", "in_progress")))
    for success in (True, True, False):
        activity.on_event("tool:start", {"tool": "bash", "id": "1"})
        activity.on_event("tool:end", {"tool": "bash", "id": "1", "success": success})
    activity.on_event("thinking", {})
    assert activity.account(0) == "1 step with an error"


def test_of_several_tools_one_with_progress_is_shown():
    activity = after(("tool:start", TESTS), ("tool:start", SEARCH))
    assert activity.phrase() == "⚙️ Running the tests… (2 tools active)"
    activity.on_event("tool:progress", {"tool": "search_files", "id": "1", "text": "12 files searched…"})
    assert activity.phrase() == "⚙️ Searching for “x” — 12 files searched… (2 tools active)"


def test_progress_after_the_end_of_a_tool_is_ignored():
    activity = after(("tool:start", SEARCH), ("tool:end", SEARCH), ("tool:progress", {**SEARCH, "text": "late"}))
    assert activity.phrase() == "⚙️ Working…"


def test_the_words_of_a_tool_are_truncated():
    progress = {"tool": "bash", "id": "2", "text": "line\n\n\tof\n" * 500}
    phrase = after(("tool:start", {**TESTS, "label": "very " * 500}), ("tool:progress", progress)).phrase()
    assert len(phrase) < 260
    assert "\n" not in phrase


def test_steps_messages_and_retries_are_counted():
    end = {"tool": "bash", "id": "1"}
    activity = after(
        *[("tool:end", {**end, "success": success}) for success in (True, True, False)],
        ("injection:applied", {"ids": ["1"]}),
        ("retrying", retrying()),
        ("retrying", retrying()),
    )
    assert activity.account(0) == "3 steps done, 1 with an error · 1 message read while working · 2 retries"


def todo(*items: tuple[str, str]) -> dict:
    return {"tool": "todo", "id": "t", "args": {"items": [{"text": text, "status": status} for text, status in items]}}


def test_a_to_do_list_is_shown_when_the_tool_has_accepted_it():
    activity = after(("tool:start", todo(("look", "done"), ("write", "pending"))))
    assert activity.todo == ()
    activity.on_event("tool:end", {"tool": "todo", "id": "t", "success": True})
    activity.on_event("thinking", {})
    assert todo_lines(activity.todo) == ["To do: 1 of 2 done", "☑ look", "☐ write"]
    activity.on_event("tool:start", todo(("look", "in_progress")))
    activity.on_event("tool:end", {"tool": "todo", "id": "t", "success": False})
    activity.on_event("thinking", {})
    assert todo_lines(activity.todo)[0] == "To do: 1 of 2 done", "the tool has not accepted it"


def test_of_a_long_to_do_list_the_items_around_the_current_one_are_shown():
    items = [(f"step {n}", "done" if n < 10 else "in_progress" if n == 10 else "pending") for n in range(20)]
    shown = todo_lines(after(("tool:start", todo(*items)), ("tool:end", todo()), ("thinking", {})).todo)
    assert shown[:4] == ["To do: 10 of 20 done", "… 8 before", "☑ step 8", "☑ step 9"]
    assert shown[-2:] == ["☐ step 15", "… 4 more"]


@pytest.mark.parametrize(
    "args",
    [None, {}, {"items": None}, {"items": "one"}, {"action": "show", "items": []}, {"items": [{"text": 3}, "x", None]}],
)
def test_malformed_arguments_of_the_to_do_tool_are_ignored(args):
    call = {"tool": "todo", "id": "t", "args": args}
    assert after(("tool:start", call), ("tool:end", call), ("thinking", {})).todo == ()


@pytest.mark.parametrize(
    "args",
    [
        {"items": [{"text": "look", "status": "done"}, {"text": "write", "status": "in_progress"}, {"text": "rest"}]},
        {"action": "update", "todos": [{"content": "look", "status": "completed", "activeForm": "looking"}]},
    ],
)
async def test_the_shown_to_do_list_is_that_of_the_tool(args):
    tool = await tool_todo.mount(TestCoordinator(), {})
    await tool.execute(args)
    call = {"tool": tool.name, "id": "1", "args": args}
    activity = after(("tool:start", call), ("tool:end", {"tool": "x", "id": "1"}), ("thinking", {}))
    assert [(item.text, item.status) for item in activity.todo] == [(item.text, item.status) for item in tool.items()]


@pytest.mark.parametrize(
    ("minutes", "words"),
    [(0.9, ""), (1, "for 1 min"), (4.5, "for 3 min"), (59, "for 45 min"), (60, "for 1 h"), (200, "for 3 h")],
)
def test_the_elapsed_time_is_shown_in_steps(minutes, words):
    blocks = status_content(Activity(), "run", minutes * 60).blocks
    assert [block["elements"][0]["text"] for block in blocks if block["type"] == "context"] == [words][: bool(words)]


@pytest.mark.parametrize(("minutes", "until"), [(0, 1), (1, 1), (4, 1), (45, 15), (60, 60), (190, 50)])
def test_the_status_is_updated_at_the_next_step(minutes, until):
    assert until_next_step(minutes * 60) == until * 60


def test_a_clock_just_before_a_step_waits_for_the_step():
    assert until_next_step(math.nextafter(60, 0)) > 0.01


UNUSUAL = ["<!channel>", "&" * 700, "x" * 5000, "\n\n* ", "💥" * 400]
TEXTS = st.one_of(st.text(max_size=200), st.sampled_from(UNUSUAL))
TODOS = st.lists(st.builds(dict, text=TEXTS, status=st.sampled_from(["pending", "done", "odd"])), max_size=30)
EVENTS = st.one_of(
    st.tuples(st.just("tool:start"), st.builds(dict, tool=TEXTS, id=TEXTS, label=TEXTS, args=st.just({}))),
    st.tuples(st.just("tool:progress"), st.builds(dict, tool=TEXTS, id=TEXTS, text=TEXTS)),
    st.tuples(st.just("tool:end"), st.builds(dict, tool=TEXTS, id=st.just("t"), success=st.booleans())),
    TODOS.map(lambda items: ("tool:start", {"tool": "todo", "id": "t", "args": {"items": items}})),
    st.tuples(st.just("fallback"), st.builds(dict, to=TEXTS)),
    st.tuples(st.just("injection:applied"), st.builds(dict, ids=st.lists(TEXTS, max_size=5))),
)


@settings(max_examples=100, deadline=None)
@given(st.lists(EVENTS, max_size=20), st.floats(min_value=0, max_value=1e6))
def test_slack_accepts_the_status_whatever_tools_report_and_no_markup_of_theirs_is_live(events, elapsed_s):
    activity = Activity()
    for event, data in events:
        activity.on_event(event, data)
    content = status_content(activity, "run", elapsed_s)
    check_blocks(json.loads(json.dumps(content.blocks)))
    for text in (content.text, status_content(activity, "r", elapsed_s, is_plain=True).text):
        assert len(text) <= 4000
        assert text.startswith("⚙️")
        assert "<" not in text
    assert "<" not in json.dumps(content.blocks)


def test_the_writing_of_a_text_is_shown_until_the_next_step():
    activity = after(("thinking", {}), ("writing", {}))
    assert activity.phrase() == "⚙️ Writing the answer…"
    activity.on_event("tool:start", SEARCH)
    assert activity.phrase() == "⚙️ Searching for “x”…"


def test_one_of_several_instances_is_named():
    activity = Activity(worker="Beta")
    assert activity.phrase() == "⚙️ Beta is working…"
    activity.on_event("thinking", {})
    assert activity.phrase() == "⚙️ Beta: Thinking…"
