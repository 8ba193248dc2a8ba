from __future__ import annotations

import json
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from connector.runs.status.activity import Activity
from connector.runs.status.blocks import plain_status, status_content, until_next_step
from connector.runs.status.todo_list import lines
from local_slack.blocks.blocks import check_blocks
from orchestrator_interactive.modules.tool_todo import TodoTool

SEARCH = {"tool": "search_files", "id": "1", "label": "Searching for “x”"}
TESTS = {"tool": "bash", "id": "2", "label": "Running the tests"}


def retrying(**data) -> dict:
    given = {"provider": "anthropic", "attempt": 2, "max_attempts": 3, "delay_s": 3.2, "reason": "rate_limit"}
    return {**given, "error": "529", **data}


def after(*events: tuple[str, dict]) -> Activity:
    activity = Activity()
    for event, data in events:
        activity.on_event(event, data)
    return activity


def told_once(activity: Activity) -> str:
    """What the status says, once people have read what it says now."""
    activity.mark_shown()
    return activity.phrase()


async def test_the_status_says_in_the_tools_own_words_how_far_it_is(scene):
    ts = await scene.ana.say("general", "@alpha look")
    run = await scene.sessions.next_run()
    await scene.status("general", ts)
    await run.progress("tool:start", args={}, **SEARCH)
    await run.progress("tool:progress", tool="search_files", id="1", text="1,200 files <searched>")
    await scene.posted("general", ts, "⚙️ Searching for “x” — 1,200 files &lt;searched&gt;…")
    await run.answer("ok")
    await scene.quiet("general", ts)


async def test_trouble_with_the_models_service_is_in_the_status_though_it_passes_at_once(scene):
    ts = await scene.ana.say("general", "@alpha look")
    run = await scene.sessions.next_run()
    await scene.status("general", ts)
    await run.progress("retrying", **retrying())
    await run.progress("thinking", iteration=1)
    await scene.posted("general", ts, "⚙️ The model's service is busy; trying again in 4 s (2 of 3)…")
    await scene.posted("general", ts, "⚙️ Thinking…")
    await run.progress("fallback", provider="anthropic", to="demo", error="down")
    await scene.posted("general", ts, "⚙️ Switching to demo…")
    await run.answer("ok")
    await scene.quiet("general", ts)


@pytest.mark.parametrize(
    ("told", "phrase"),
    [
        ({}, "The model's service is busy; trying again in 4 s (2 of 3)…"),
        (
            {"reason": "unavailable", "attempt": 1},
            "The model's service is not available; trying again in 4 s (1 of 3)…",
        ),
        ({"reason": "timeout", "delay_s": 60}, "The model does not answer; trying again in 60 s (2 of 3)…"),
        ({"reason": "timeout", "delay_s": 0.4}, "The model does not answer; trying again in 1 s (2 of 3)…"),
        ({"delay_s": 0}, "The model's service is busy; trying again (2 of 3)…"),
        ({"reason": "of a kind that nobody knows"}, "The model's service failed; trying again in 4 s (2 of 3)…"),
    ],
)
def test_a_retry_says_why_and_when(told, phrase):
    assert after(("thinking", {}), ("retrying", retrying(**told))).phrase() == f"⚙️ {phrase}"


def test_trouble_stays_in_the_status_until_it_is_over_and_has_been_read():
    activity = after(("retrying", retrying()))
    assert "trying again" in told_once(activity), "it is not over"
    activity.on_event("thinking", {})
    assert activity.phrase() == "⚙️ Thinking…"
    activity.on_event("compacting", {})
    activity.on_event("thinking", {})
    assert activity.phrase() == "⚙️ Summarizing the conversation so far…", "nobody has read it yet"
    assert told_once(activity) == "⚙️ Thinking…"


def test_a_call_that_is_still_at_work_stays_an_active_tool_while_the_model_reads_an_urgent_message():
    activity = after(
        ("thinking", {}),
        ("tool:start", SEARCH),
        ("tool:start", TESTS),
        ("tool:end", {**SEARCH, "duration": 1.0, "success": True}),
        ("injection:applied", {"messages": ["!now"], "count": 1, "ids": ["T:C:1"]}),
        ("thinking", {}),
    )
    assert activity.phrase() == "⚙️ Incorporating your input… Running the tests…"
    assert told_once(activity) == "⚙️ Incorporating your input… Running the tests…"
    activity.on_event("tool:start", {**SEARCH, "id": "3"})
    assert activity.phrase() == "⚙️ Running the tests… (2 tools active)"
    activity.on_event("tool:end", {**TESTS, "duration": 40.0, "success": True})
    assert activity.phrase() == "⚙️ Searching for “x”…"


def test_of_several_tools_the_one_that_has_something_to_tell_comes_first():
    activity = after(("tool:start", TESTS), ("tool:start", SEARCH))
    assert activity.phrase() == "⚙️ Running the tests… (2 tools active)"
    activity.on_event("tool:progress", {"tool": "search_files", "id": "1", "text": "12 files searched…"})
    assert activity.phrase() == "⚙️ Searching for “x” — 12 files searched… (2 tools active)"


def test_what_a_tool_says_after_its_end_is_not_heard():
    activity = after(("tool:start", SEARCH), ("tool:end", SEARCH), ("tool:progress", {**SEARCH, "text": "late"}))
    assert activity.phrase() == "⚙️ Working…"


def test_a_tool_cannot_flood_the_status():
    words = {"tool": "bash", "id": "2", "text": "line\n\n\tof\n" * 500}
    phrase = after(("tool:start", {**TESTS, "label": "very " * 500}), ("tool:progress", words)).phrase()
    assert len(phrase) < 260
    assert "\n" not in phrase


def todo(*items: tuple[str, str]) -> dict:
    return {"tool": "todo", "id": "t", "args": {"items": [{"text": text, "status": status} for text, status in items]}}


def test_the_to_do_list_is_shown_when_its_tool_has_taken_it():
    activity = after(("tool:start", todo(("look", "done"), ("write", "pending"))))
    assert activity.todo == ()
    activity.on_event("tool:end", {"tool": "todo", "id": "t", "success": True})
    assert lines(activity.todo) == ["To do: 1 of 2 done", "☑ look", "☐ write"]
    activity.on_event("tool:start", todo(("look", "in_progress")))
    activity.on_event("tool:end", {"tool": "todo", "id": "t", "success": False})
    assert lines(activity.todo)[0] == "To do: 1 of 2 done", "the tool has not taken it"


def test_of_a_long_to_do_list_people_see_what_is_around_the_item_at_work():
    given = [(f"step {n}", "done" if n < 10 else "in_progress" if n == 10 else "pending") for n in range(20)]
    activity = after(("tool:start", todo(*given)), ("tool:end", todo()))
    shown = lines(activity.todo)
    assert shown[:4] == ["To do: 10 of 20 done", "… 8 before", "☑ step 8", "☑ step 9"]
    assert shown[-2:] == ["☐ step 15", "… 4 more"]


@pytest.mark.parametrize(
    "args",
    [None, {}, {"items": None}, {"items": "one"}, {"action": "show", "items": []}, {"items": [{"text": 3}, "x", None]}],
)
def test_what_a_model_gives_the_to_do_tool_may_be_anything(args):
    call = {"tool": "todo", "id": "t", "args": args}
    assert after(("tool:start", call), ("tool:end", call)).todo == ()


async def test_the_list_that_the_to_do_tool_takes_is_the_one_that_people_see():
    args = {"items": [{"text": "look", "status": "done"}, {"text": "write", "status": "in_progress"}, {"text": "rest"}]}
    tool = TodoTool()
    await tool.execute(args)
    activity = after(
        ("tool:start", {"tool": tool.name, "id": "1", "args": args}), ("tool:end", {"tool": "x", "id": "1"})
    )
    assert [(item.text, item.status) for item in activity.todo] == [(item.text, item.status) for item in tool.items()]


@pytest.mark.parametrize(
    ("minutes", "words"),
    [(0.9, ""), (1, "for 1 min"), (4.5, "for 3 min"), (59, "for 45 min"), (60, "for 1 h"), (200, "for 3 h")],
)
def test_the_elapsed_time_is_told_in_steps(minutes, words):
    blocks = status_content(Activity(), "run", minutes * 60).blocks
    assert [block["elements"][0]["text"] for block in blocks if block["type"] == "context"] == [words][: bool(words)]


@pytest.mark.parametrize(("minutes", "until"), [(0, 1), (1, 1), (4, 1), (45, 15), (60, 60), (190, 50)])
def test_the_status_wakes_for_the_next_step_and_not_before(minutes, until):
    assert until_next_step(minutes * 60) == until * 60


def test_a_clock_that_stops_a_hairs_breadth_before_a_step_is_waited_for():
    assert until_next_step(math.nextafter(60, 0)) > 0.01


def test_what_was_done_so_far_is_counted():
    end = {"tool": "bash", "id": "1"}
    activity = after(
        *[("tool:end", {**end, "success": success}) for success in (True, True, False)],
        ("injection:applied", {"ids": ["1"]}),
        ("retrying", retrying()),
        ("retrying", retrying()),
    )
    assert activity.account() == ["3 steps done, 1 with an error", "1 message read while working", "2 retries"]


@pytest.mark.parametrize(
    ("tool", "words"),
    [
        ("read_file", "Reading file"),
        ("searchIssues", "Searching issues"),
        ("web.fetch_page", "Using web fetch page"),
        ("bash", "Using bash"),
        ("", "Using a tool"),
    ],
)
def test_a_tool_that_says_nothing_of_itself_is_told_in_plain_words(tool, words):
    assert after(("tool:start", {"tool": tool, "id": "1"})).phrase() == f"⚙️ {words}…"


ODD = ["<!channel>", "&" * 700, "x" * 5000, "\n\n* ", "💥" * 400]
ANY_TEXT = st.one_of(st.text(max_size=200), st.sampled_from(ODD))
TODOS = st.lists(st.builds(dict, text=ANY_TEXT, status=st.sampled_from(["pending", "done", "odd"])), max_size=30)
HEARD = st.one_of(
    st.tuples(st.just("tool:start"), st.builds(dict, tool=ANY_TEXT, id=ANY_TEXT, label=ANY_TEXT, args=st.just({}))),
    st.tuples(st.just("tool:progress"), st.builds(dict, tool=ANY_TEXT, id=ANY_TEXT, text=ANY_TEXT)),
    st.tuples(st.just("tool:end"), st.builds(dict, tool=ANY_TEXT, id=st.just("t"), success=st.booleans())),
    TODOS.map(lambda items: ("tool:start", {"tool": "todo", "id": "t", "args": {"items": items}})),
    st.tuples(st.just("fallback"), st.builds(dict, to=ANY_TEXT)),
    st.tuples(st.just("injection:applied"), st.builds(dict, ids=st.lists(ANY_TEXT, max_size=5))),
)


@settings(max_examples=100, deadline=None)
@given(st.lists(HEARD, max_size=20), st.floats(min_value=0, max_value=1e6))
def test_whatever_tools_say_the_status_is_one_that_slack_takes(heard, elapsed_s):
    activity = after(*heard)
    content = status_content(activity, "run", elapsed_s)
    check_blocks(json.loads(json.dumps(content.blocks)))
    for text in (content.text, plain_status(activity, elapsed_s).text):
        assert len(text) <= 4000
        assert text.startswith("⚙️")
        assert "<" not in text
    assert "<" not in json.dumps(content.blocks)
