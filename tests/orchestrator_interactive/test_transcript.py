"""Whatever rows a conversation holds, what leaves for a provider is valid, and grows at its tail only."""

from __future__ import annotations

from typing import Any

import pytest
from agents import ScriptedProvider, echo, faults, refusals
from hypothesis import given
from hypothesis import strategies as st

from orchestrator_interactive.requests import NO_RESULT, RequestBuilder, Transcript

Row = dict[str, Any]

IDS = st.sampled_from("abcd")


def _assistant(call_ids: list[str], blocks: list[Row], *, wire: bool) -> Row:
    content = blocks + [{"type": "tool_call", "id": i, "name": "t", "input": {}} for i in call_ids]
    row: Row = {"role": "assistant", "content": content}
    if wire:  # other people's contexts keep the calls beside the text only
        function = {"name": "t", "arguments": "{}"}
        row = {"role": "assistant", "content": "x" if blocks else None}
        row["tool_calls"] = [{"id": i, "type": "function", "function": function} for i in call_ids]
    return row


def _tool(call_id: str) -> Row:
    return {"role": "tool", "tool_call_id": call_id, "name": "t", "content": f"result of {call_id}"}


BLOCKS = st.lists(
    st.sampled_from(
        [
            {"type": "text", "text": "hello"},
            {"type": "thinking", "thinking": "hm", "signature": "s"},
            {"type": "thinking", "thinking": "cut"},
        ]
    ),
    max_size=3,
)
ROWS = st.lists(
    st.one_of(
        st.sampled_from([{"role": "user", "content": "hi"}, {"role": "system", "content": "be good"}]),
        st.builds(_assistant, st.lists(IDS, unique=True, max_size=3), BLOCKS, wire=st.booleans()),
        st.builds(_tool, IDS),
    ),
    max_size=12,
)


def _sent(rows: list[Row], transcript: Transcript | None = None) -> list[Row]:
    messages = (transcript or Transcript()).messages(rows)
    return [message.model_dump(exclude_none=True) for message in messages]


@given(ROWS)
def test_every_call_has_exactly_one_result_right_after_it(rows: list[Row]) -> None:
    assert faults(_sent(rows)) == []


@given(ROWS)
def test_no_answer_is_empty_and_no_thinking_unsigned(rows: list[Row]) -> None:
    sent = [row for row in _sent(rows) if row["role"] == "assistant"]
    assert all(row["content"] or row.get("tool_calls") for row in sent)
    blocks = [block for row in sent if isinstance(row["content"], list) for block in row["content"]]
    assert all(block.get("signature") for block in blocks if block["type"] == "thinking")


@given(ROWS, st.data())
def test_growing_row_by_row_gives_the_same_as_starting_afresh(rows: list[Row], data: st.DataObject) -> None:
    grown = Transcript()
    cuts = sorted(data.draw(st.sets(st.integers(0, len(rows)))))
    for cut in [*cuts, len(rows)]:
        assert _sent(rows[:cut], grown) == _sent(rows[:cut])


@given(ROWS, st.data())
def test_a_valid_conversation_is_sent_as_it_is(rows: list[Row], data: st.DataObject) -> None:
    repaired = _sent(rows)
    transcript = Transcript()
    cut = data.draw(st.integers(0, len(repaired)))
    transcript.messages(repaired[:cut])
    assert _sent(repaired, transcript) == repaired


def test_a_call_without_a_result_gets_one_that_says_so() -> None:
    rows = [_assistant(["a", "b"], [], wire=False), _tool("b"), {"role": "user", "content": "hi"}]
    sent = _sent(rows)
    assert [(row["role"], row.get("tool_call_id")) for row in sent[1:]] == [
        ("tool", "b"),
        ("tool", "a"),
        ("user", None),
    ]
    assert sent[2]["content"] == NO_RESULT


def test_a_result_without_a_call_is_left_out() -> None:
    transcript = Transcript()
    assert _sent([{"role": "user", "content": "hi"}, _tool("a")], transcript) == [{"role": "user", "content": "hi"}]
    assert transcript.problems == ["result without a call"]


def test_a_second_result_for_a_call_is_left_out() -> None:
    sent = _sent([_assistant(["a"], [], wire=False), _tool("a"), _tool("a")])
    assert [row["role"] for row in sent] == ["assistant", "tool"]


def test_a_row_between_a_call_and_its_result_never_reaches_the_provider() -> None:
    rows = [_assistant(["a"], [], wire=False), {"role": "user", "content": "hi"}, _tool("a")]
    assert [row["role"] for row in _sent(rows)] == ["assistant", "tool", "user"]


@pytest.mark.parametrize("content", [[], "", None, [{"type": "thinking", "thinking": "cut"}]])
def test_an_answer_without_content_is_left_out(content: Any) -> None:
    assert _sent([{"role": "assistant", "content": content}]) == []


@pytest.mark.parametrize("text", ["", " \n"])
def test_a_blank_text_block_is_left_out(text: str) -> None:
    signed = {"type": "thinking", "thinking": "hm", "signature": "s"}
    row = {"role": "assistant", "content": [signed, {"type": "text", "text": text}, {"type": "text", "text": "yes"}]}
    request = RequestBuilder(ScriptedProvider(), {}).build([row, {"role": "user", "content": "hi"}], tools_allowed=True)
    assert refusals(request) == []


def test_an_answer_of_blank_text_only_is_left_out() -> None:
    assert _sent([{"role": "assistant", "content": [{"type": "text", "text": ""}]}]) == []


def test_the_list_is_the_callers_own() -> None:
    transcript, rows = Transcript(), [{"role": "user", "content": "hi"}]
    transcript.messages(rows).clear()
    assert len(transcript.messages(rows)) == 1


def test_rows_that_were_rewritten_begin_a_new_transcript() -> None:
    builder = RequestBuilder(ScriptedProvider(), {})
    builder.build([{"role": "user", "content": "one"}, {"role": "user", "content": "two"}], tools_allowed=True)
    request = builder.build([{"role": "user", "content": "short"}], tools_allowed=True)
    assert [message.content for message in request.messages] == ["short"]


def test_tools_are_declared_with_their_schemas() -> None:
    tool = echo()
    request = RequestBuilder(ScriptedProvider(), {"echo": tool}).build([], tools_allowed=True)
    assert [(spec.name, spec.description, spec.parameters) for spec in request.tools or ()] == [
        ("echo", tool.description, tool.input_schema)
    ]


def test_no_tools_are_declared_as_none() -> None:
    request = RequestBuilder(ScriptedProvider(), {}).build([], tools_allowed=False)
    assert (request.tools, request.tool_choice) == (None, None)
