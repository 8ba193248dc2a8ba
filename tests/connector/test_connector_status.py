from __future__ import annotations

import pytest

from connector.activity import Activity

SEARCH = {"tool": "search_files", "id": "1", "label": "Searching for “x”"}
TESTS = {"tool": "bash", "id": "2", "label": "Running the tests"}


def retrying(**data) -> dict:
    given = {"provider": "anthropic", "attempt": 2, "max_attempts": 3, "delay_s": 3.2, "reason": "rate_limit"}
    return {**given, "error": "529", **data}


def after(*events: tuple[str, dict]) -> Activity:
    activity = Activity()
    for event, data in events:
        activity.hear(event, data)
    return activity


def told_once(activity: Activity) -> str:
    """What the status says, once people have read what it says now."""
    activity.told()
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
    await scene.posted("general", ts, "⚙️ Going on with demo…")
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
    activity.hear("thinking", {})
    assert activity.phrase() == "⚙️ Thinking…"
    activity.hear("compacting", {})
    activity.hear("thinking", {})
    assert activity.phrase() == "⚙️ Summing up what was said so far…", "nobody has read it yet"
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
    activity.hear("tool:start", {**SEARCH, "id": "3"})
    assert activity.phrase() == "⚙️ Running the tests… (2 tools active)"
    activity.hear("tool:end", {**TESTS, "duration": 40.0, "success": True})
    assert activity.phrase() == "⚙️ Searching for “x”…"


def test_of_several_tools_the_one_that_has_something_to_tell_comes_first():
    activity = after(("tool:start", TESTS), ("tool:start", SEARCH))
    assert activity.phrase() == "⚙️ Running the tests… (2 tools active)"
    activity.hear("tool:progress", {"tool": "search_files", "id": "1", "text": "12 files searched…"})
    assert activity.phrase() == "⚙️ Searching for “x” — 12 files searched… (2 tools active)"


def test_what_a_tool_says_after_its_end_is_not_heard():
    activity = after(("tool:start", SEARCH), ("tool:end", SEARCH), ("tool:progress", {**SEARCH, "text": "late"}))
    assert activity.phrase() == "⚙️ Working…"


def test_a_tool_cannot_flood_the_status():
    words = {"tool": "bash", "id": "2", "text": "line\n\n\tof\n" * 500}
    phrase = after(("tool:start", {**TESTS, "label": "very " * 500}), ("tool:progress", words)).phrase()
    assert len(phrase) < 260
    assert "\n" not in phrase
