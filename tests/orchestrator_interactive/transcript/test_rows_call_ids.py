"""Each call of a conversation gets a unique id, also if the model repeats one."""

from collections.abc import Sequence

import pytest
from agents import ScriptedProvider
from hypothesis import given
from hypothesis import strategies as st

from orchestrator_interactive.kernel.contracts.messages import ContentBlock, TextBlock, ToolCall, ToolCallBlock
from orchestrator_interactive.kernel.contracts.request_validation import problems_of
from orchestrator_interactive.transcript.rows import assistant_row, distinct, tool_row, user_row
from orchestrator_interactive.transcript.transcript import RequestBuilder

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
