from __future__ import annotations

import json
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from connector.runs.status.activity import Activity
from connector.runs.status.blocks import plain_status, status_content, until_next_step
from local_slack.blocks.blocks import check_blocks


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
    for text in (content.text, plain_status(activity, elapsed_s).text):
        assert len(text) <= 4000
        assert text.startswith("⚙️")
        assert "<" not in text
    assert "<" not in json.dumps(content.blocks)
