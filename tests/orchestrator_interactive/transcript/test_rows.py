"""Rows: refused tasks and malformed rows, call ids, and the estimated size in tokens."""

from collections.abc import Sequence
from typing import Any

import pytest
from agents import ScriptedProvider, call, echo, make_agent, say, use
from hypothesis import given
from hypothesis import strategies as st

from orchestrator_interactive.kernel.contracts.messages import ContentBlock, TextBlock, ToolCall, ToolCallBlock
from orchestrator_interactive.kernel.contracts.request_validation import problems_of
from orchestrator_interactive.transcript.rows import assistant_row, distinct, estimate, tool_row, user_row
from orchestrator_interactive.transcript.transcript import RequestBuilder

REFUSED = "refusal"


async def test_the_log_keeps_a_refused_task() -> None:
    agent = await make_agent(say("I will n", finish_reason=REFUSED))
    await agent.run("a bad one")
    rows = await agent.context.get_messages()
    assert [row["role"] for row in rows] == ["user", "assistant"]
    assert rows[-1]["metadata"]["refused"] is True


async def test_a_refused_answer_calls_no_tool() -> None:
    tool = echo()
    agent = await make_agent(call(use("echo", "a"), finish_reason=REFUSED), say("ok"), tools=[tool])
    await agent.run("a bad one")
    assert agent.progress.of("tool:start") == []
    assert agent.progress.of("complete")[-1]["reason"] == "refusal"
    assert await agent.run("a harmless one") == "ok"


@pytest.mark.parametrize(
    "steps",
    [
        [say("I will n", finish_reason=REFUSED)],
        [call(use("echo", "a")), say("so far", finish_reason=REFUSED)],
        [call(use("echo", "a")), say("", finish_reason=REFUSED)],
    ],
    ids=["at once", "after tools", "without a word"],
)
async def test_later_requests_leave_out_the_whole_refused_task_and_say_so(steps: list[Any]) -> None:
    agent = await make_agent(say("fine"), *steps, say("no", finish_reason=REFUSED), say("ok"), tools=[echo()])
    await agent.run("a harmless one")
    agent.progress.act_on("tool:start", lambda: agent.inject("be quick"))
    await agent.run("a bad one")
    await agent.run("another bad one")
    assert await agent.run("another harmless one") == "ok"
    sent = agent.provider.sent()
    assert [row["role"] for row in sent] == ["user", "assistant", "user", "user", "user"]
    assert sent[0]["content"] == "a harmless one"
    assert sent[-1]["content"] == "another harmless one"
    assert ["it was refused" in str(row) for row in sent[2:4]] == [True, True]
    assert not any(text in str(sent) for text in ("bad", "be quick", "so far", "will n"))


USER = {"role": "user", "content": "before"}
MALFORMED = [
    {"role": "user", "content": "x", "metadata": "a text"},
    {"role": "user", "content": "x", "metadata": ["a list"]},
    {"role": "tool", "content": "x", "metadata": {"pending": True}},
    {"role": "tool", "content": "x", "tool_call_id": "a", "metadata": {"pending": True}},
    {"role": "user", "content": "x", "metadata": {"results": 5}},
    {"role": "assistant", "content": "x", "metadata": {"usage": 7}},
    {"role": "assistant", "content": "x", "tool_calls": [{}]},
    {"role": "assistant", "content": "x", "tool_calls": "none"},
]


@pytest.mark.parametrize("row", MALFORMED)
@pytest.mark.parametrize("max_tokens", [100_000, 1])
async def test_a_malformed_row_does_not_prevent_the_next_run(row: dict[str, Any], max_tokens: int) -> None:
    agent = await make_agent(say("ok"), plan={"context": {"module": "watched", "config": {"max_tokens": max_tokens}}})
    await agent.context.set_messages([USER, row, USER])
    assert await agent.run("go on") == "ok"


IDS = st.lists(st.sampled_from(["a", "b", "a-2", "a-2-2", "", " ", "call", "call-2", "\ud83d"]), max_size=6)


def _block(call_id: str) -> ToolCallBlock:
    return ToolCallBlock(id=call_id, name="t", input={})


def _call(call_id: str) -> ToolCall:
    return ToolCall(id=call_id, name="t", arguments={})


def _distinct(inside: Sequence[str], beside: Sequence[str], used: Sequence[str] = ()) -> tuple[list[str], list[str]]:
    content: list[ContentBlock] = [TextBlock(text="Let me see."), *map(_block, inside)]
    blocks, calls = distinct(content, [_call(each) for each in beside], set(used).__contains__)
    assert blocks[0] == content[0]
    return [block.id for block in blocks if isinstance(block, ToolCallBlock)], [call.id for call in calls]


@pytest.mark.parametrize(
    ("inside", "beside", "used", "own_inside", "own_beside"),
    [
        (["a", "b"], ["a", "b"], [], ["a", "b"], ["a", "b"]),
        (["a", "a"], ["a", "a"], [], ["a", "a-2"], ["a", "a-2"]),
        (["a"], ["a"], ["a"], ["a-2"], ["a-2"]),
        (["a"], ["a"], ["a", "a-2", "a-3"], ["a-4"], ["a-4"]),
        (["a"], ["a"], ["a", "a-2", "a-3", "a-4", "a-5"], ["a-6"], ["a-6"]),
        (["a", "a", "a-2"], ["a", "a", "a-2"], [], ["a", "a-3", "a-2"], ["a", "a-3", "a-2"]),
        ([], ["a", "a"], [], [], ["a", "a-2"]),
        (["a"], ["a", "a"], [], ["a"], ["a", "a-2"]),
        (["", " "], ["", " "], [], ["call", "call-2"], ["call", "call-2"]),
    ],
)
def test_the_first_call_keeps_its_id_and_the_others_get_new_ones(
    inside: list[str], beside: list[str], used: list[str], own_inside: list[str], own_beside: list[str]
) -> None:
    assert _distinct(inside, beside, used) == (own_inside, own_beside)


def test_an_answer_with_unique_ids_is_unchanged() -> None:
    content, calls = [_block("a")], [_call("a")]
    blocks, listed = distinct(content, calls, set().__contains__)
    assert blocks is content
    assert listed is calls


@given(IDS, IDS, st.sets(st.sampled_from(["a", "a-2", "b", "call"])))
def test_every_id_is_unique_and_the_same_in_both_places_of_a_call(
    inside: list[str], beside: list[str], used: set[str]
) -> None:
    own_inside, own_beside = _distinct(inside, beside, sorted(used))
    for own in (own_inside, own_beside):
        assert len(set(own)) == len(own)
        assert not used.intersection(own)
    pairs = dict(zip(_numbered(inside), own_inside, strict=True)), dict(zip(_numbered(beside), own_beside, strict=True))
    assert all(pairs[1][call] == own for call, own in pairs[0].items() if call in pairs[1])


def _numbered(ids: list[str]) -> list[tuple[str, int]]:
    return [(each, ids[:place].count(each)) for place, each in enumerate(ids)]


@given(st.lists(IDS.filter(bool), max_size=5))
def test_answers_with_distinct_ids_need_no_repair(answers: list[list[str]]) -> None:
    builder, rows = RequestBuilder(ScriptedProvider(), {}), [user_row("Hello")]
    for ids in answers:
        request = builder.build(rows, tools_allowed=True)
        content, calls = distinct([_block(each) for each in ids], [_call(each) for each in ids], builder.is_used)
        rows += [assistant_row(content, calls), *(tool_row(call, "done") for call in calls)]
    request = builder.build(rows, tools_allowed=True)
    assert problems_of(request) == []
    assert [message.tool_call_id for message in request.messages] == [row.get("tool_call_id") for row in rows]


def test_a_thousand_calls_with_one_id_take_few_lookups() -> None:
    looks = 0
    used: set[str] = set()

    def is_used(call_id: str) -> bool:
        nonlocal looks
        looks += 1
        return call_id in used

    for _ in range(1000):
        _, [call] = distinct([], [_call("a")], is_used)
        used.add(call.id)
    assert len(used) == 1000
    assert looks < 1000 * 30


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
