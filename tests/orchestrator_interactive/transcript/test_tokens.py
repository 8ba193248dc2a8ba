"""The estimated size of a row in tokens."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator_interactive.kernel.contracts.messages import ToolCall
from orchestrator_interactive.transcript.rows import assistant_row, estimate, tool_row, user_row

CALL = ToolCall(id="c1", name="look", arguments={"path": "notes/" + "deep/" * 40, "lines": [1, 2, 3]})


def test_a_text_is_a_quarter_of_its_bytes_and_a_little() -> None:
    assert estimate(user_row("x" * 4000)) == 1004
    assert estimate(user_row("ü" * 2000)) == 1004
    assert estimate({"role": "user", "content": [{"type": "text", "text": "x" * 4000}]}) == pytest.approx(1004, abs=4)


def test_metadata_do_not_count() -> None:
    row = tool_row(CALL, "short")
    assert estimate({**row, "metadata": {"whole": "x" * 100_000, "is_error": True}}) == estimate(row)


def test_an_image_counts_the_same_whatever_its_bytes() -> None:
    small, large = (
        {"role": "user", "content": [{"type": "image", "source": {"type": "base64", "data": "x" * length}}]}
        for length in (100, 1_000_000)
    )
    assert estimate(small) == estimate(large)
    assert 1_000 < estimate(large) < 3_000


def test_a_call_in_both_places_counts_once() -> None:
    both = assistant_row([], [CALL])
    inside = {**both, "tool_calls": None}
    beside = {**both, "content": None}
    assert estimate(both) == estimate(inside)
    assert estimate(beside) == pytest.approx(estimate(inside), rel=0.3)
    assert estimate(beside) > 50


def test_thinking_counts_with_its_signature() -> None:
    thinking = {"type": "thinking", "thinking": "t" * 400, "signature": "s" * 400}
    assert estimate({"role": "assistant", "content": [thinking]}) > 200


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.characters(categories=["Cs"]),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


@given(values, values)
def test_any_row_can_be_measured(content: object, given: object) -> None:
    call = {"id": "c", "function": {"name": "look", "arguments": given}}
    row = {"role": "assistant", "content": content, "tool_calls": [call]}
    assert estimate(row) > 0
    assert estimate({**row, "content": [{"type": "text", "text": "and more"}, content]}) > 0


def test_deep_values_and_huge_numbers_can_be_measured() -> None:
    nested: list[object] = []
    for _ in range(10_000):
        nested = [nested]
    assert estimate({"role": "user", "content": [{"type": "odd", "holds": nested, "number": 10**10_000}]}) > 0
