"""What a stream tells while the answer is on its way, and what it keeps of one that is cut."""

from orchestrator_interactive.kernel import ResponseStream
from orchestrator_interactive.kernel.contracts.messages import ContentBlock, TextBlock, ThinkingBlock, ToolCallBlock

SAID = TextBlock(text="I look.")
CALL = ToolCallBlock(id="c1", name="look", input={})


def test_each_finished_block_is_told_in_order_when_it_has_been_added() -> None:
    told: list[tuple[ContentBlock, list[ContentBlock]]] = []
    stream = ResponseStream(lambda block: told.append((block, stream.kept(calls=["c1"]))))
    stream.text("I look.")
    assert told == []
    stream.block(SAID)
    stream.block(CALL)
    assert told == [(SAID, [SAID]), (CALL, [SAID, CALL])]


def test_of_a_cut_answer_stay_complete_blocks_and_the_text_as_far_as_it_came() -> None:
    stream = ResponseStream()
    stream.block(ThinkingBlock(thinking="hm", signature="signed"))
    stream.block(ThinkingBlock(thinking="hm"))
    stream.block(SAID)
    stream.block(CALL)
    stream.text("And th")
    kept = stream.kept()
    assert kept == [ThinkingBlock(thinking="hm", signature="signed"), SAID, TextBlock(text="And th")]
    assert stream.kept([SAID]) == [SAID]


def test_thinking_alone_and_blank_text_are_nothing_that_was_said() -> None:
    stream = ResponseStream()
    stream.block(ThinkingBlock(thinking="hm", signature="signed"))
    stream.text(" \n")
    assert stream.kept() == []


def test_everything_that_comes_is_a_sign_of_life() -> None:
    stream = ResponseStream()
    stream.alive()
    stream.text("I look.")
    stream.block(SAID)
    assert stream.pieces == 3
