"""A stream reports each block, and keeps the complete blocks and the text of an interrupted answer."""

from orchestrator_interactive.kernel import ResponseStream
from orchestrator_interactive.kernel.contracts.messages import ContentBlock, TextBlock, ThinkingBlock, ToolCallBlock

SAID = TextBlock(text="I look.")
CALL = ToolCallBlock(id="c1", name="look", input={})


def test_each_finished_block_is_reported_in_order_after_it_was_added() -> None:
    reported: list[tuple[ContentBlock, list[ContentBlock]]] = []
    stream = ResponseStream(lambda block: reported.append((block, stream.valid_blocks(calls=["c1"]))))
    stream.text("I look.")
    assert reported == []
    stream.block(SAID)
    stream.block(CALL)
    assert reported == [(SAID, [SAID]), (CALL, [SAID, CALL])]


def test_halves_of_characters_in_texts_and_names_of_a_model_are_joined_or_replaced() -> None:
    stream = ResponseStream()
    for delta in ("a \ud83d", "\ude00 and half: \ud83d"):
        stream.text(delta)
    assert stream.valid_blocks() == [TextBlock(text="a 😀 and half: \ufffd")]
    assert ToolCallBlock(id="c1", name="look\udc00", input={}).name == "look\ufffd"


def test_an_interrupted_answer_keeps_its_complete_blocks_and_its_text() -> None:
    stream = ResponseStream()
    stream.block(ThinkingBlock(thinking="hm", signature="signed"))
    stream.block(ThinkingBlock(thinking="hm"))
    stream.block(SAID)
    stream.block(CALL)
    stream.text("And th")
    kept = stream.valid_blocks()
    assert kept == [ThinkingBlock(thinking="hm", signature="signed"), SAID, TextBlock(text="And th")]
    assert stream.valid_blocks([SAID]) == [SAID]


def test_thinking_alone_and_blank_text_are_not_kept() -> None:
    stream = ResponseStream()
    stream.block(ThinkingBlock(thinking="hm", signature="signed"))
    stream.text(" \n")
    assert stream.valid_blocks() == []


def test_every_piece_is_a_sign_of_life() -> None:
    stream = ResponseStream()
    stream.heartbeat()
    stream.text("I look.")
    stream.block(SAID)
    assert stream.pieces == 3
