from __future__ import annotations

import html
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from connector.formatting.markdown import markdown_to_slack
from connector.formatting.splitting import complete_sentences, pieces


def letters(text: str) -> str:
    """Return a text without the characters that a cut may add or remove."""
    return re.sub(r"[\s`*>]", "", html.unescape(text))


def test_a_code_block_that_is_cut_is_closed_and_opened_again():
    cut = pieces("```\n" + "\n".join(f"line {n}" for n in range(12)) + "\n```", 80)
    assert len(cut) == 2
    assert all(piece.startswith("```\n") and piece.endswith("\n```") for piece in cut)


@pytest.mark.parametrize(("markdown", "slack"), [("**", "*"), ("`", "`"), ("*", "_"), ("~~", "~")])
def test_marked_words_that_are_cut_are_marked_in_each_piece(markdown, slack):
    text = markdown_to_slack(f"before {markdown}{'some words ' * 40}end{markdown} after")
    first, *between, last = pieces(text, 60)
    assert first.startswith(f"before {slack}some")
    assert last.endswith(f"end{slack} after")
    assert len(between) > 3
    assert all(piece[0] == piece[-1] == slack and piece.count(slack) == 2 for piece in between)


def test_a_character_that_marks_nothing_is_not_repeated_at_a_cut():
    text = "5 * 3 is *not bold, a_b is " + "word " * 40 + "2 * 2"
    assert "".join(pieces(text, 60)).count("*") == 3


def test_a_code_block_that_fits_into_a_piece_is_not_cut():
    code = "```\n" + "\n".join(f"line {n}" for n in range(8)) + "\n```"
    assert pieces(f"above\n\nand more above\n\n{code}\n\nbelow it", 70) == ["above\n\nand more above", code, "below it"]


def test_a_cut_prefers_paragraphs_to_lines_and_lines_to_words():
    words = "one two three four five"
    assert pieces(f"{words}\n{words}\n\n{words}\n{words}", 90) == [f"{words}\n{words}"] * 2
    assert pieces(f"{words}\n{words} {words}", 50) == [words, f"{words} {words}"]
    assert pieces(f"{words} {words}", 40) == [f"{words} one two", "three four five"]


def test_a_heading_and_a_line_that_announces_remain_with_the_next_paragraph():
    above, below = "word " * 11 + "word", "more " * 11 + "more"
    assert pieces(f"{above}\n\n*A heading*\n\n{below}", 110) == [above, f"*A heading*\n\n{below}"]
    assert pieces(f"{above}\n\nWhat to do:\n\n{below}", 110) == [above, f"What to do:\n\n{below}"]


def test_the_lines_of_a_list_item_remain_together():
    item = "• item\n    ◦ inside\n    and more"
    assert pieces("\n".join([item] * 4), 90) == ["\n".join([item] * 2)] * 2


def test_a_quote_that_is_cut_within_a_line_continues_as_a_quote():
    cut = pieces("> " + "word " * 30, 60)
    assert len(cut) > 2
    assert all(piece.startswith("> word") for piece in cut)


@pytest.mark.parametrize("character", ["&", "<", ">"])
def test_a_long_word_is_not_cut_within_an_escaped_character(character):
    text = "a" + character * 3000
    assert "".join(html.unescape(piece) for piece in pieces(markdown_to_slack(text))) == text


WORDS = st.text(st.sampled_from("ab&<>*`|.\n "), min_size=1, max_size=12)
LINKS = st.builds("[{}](https://a.b/{})".format, st.text("ab &<>", max_size=6), st.text("xy&/", max_size=8))
CODE = st.lists(WORDS, max_size=12).map(lambda lines: "\n```\n" + "\n".join(lines).replace("`", "") + "\n```\n")
PROSE = st.lists(st.one_of(WORDS, LINKS, CODE, st.just("\n\n")), max_size=40).map(" ".join)


@given(PROSE, st.integers(min_value=90, max_value=200))
def test_no_cut_is_within_a_character_a_link_or_the_fence_of_a_code_block(markdown, limit):
    text = markdown_to_slack(markdown)
    cut = pieces(text, limit)
    assert letters("".join(cut)) == letters(text)
    links = re.compile(r"<https://[^<>]*>")
    assert [link for piece in cut for link in links.findall(piece)] == links.findall(text)
    for piece in cut:
        assert len(piece) <= limit
        assert not re.search(r"&(?!(?:amp|lt|gt);)", piece)
        assert piece.count("```") % 2 == 0
        assert "```\n```" not in piece, "an empty block remains of a cut"


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.text(st.sampled_from("ab{} \t"), max_size=30), min_size=1, max_size=30),
    st.integers(min_value=40, max_value=99),
)
def test_no_space_of_a_long_code_block_is_lost(lines, limit):
    code = "\n".join(["begin", *lines, "end"])
    cut = pieces(markdown_to_slack(f"```\n{code}\n```"), limit)
    whole = "\n".join(piece.removeprefix("```\n").removesuffix("\n```") for piece in cut)
    assert whole.replace("\n", "") == code.replace("\n", "")


@settings(max_examples=150, deadline=None)
@given(
    st.text(st.sampled_from("ab*_~`>|-\n .") | st.characters(), max_size=300), st.integers(min_value=40, max_value=200)
)
def test_the_pieces_of_any_text_keep_to_the_limit_and_have_all_its_characters(text, limit):
    cut = pieces(text, limit)
    rest = iter(letters("".join(cut)))
    assert all(len(piece) <= limit for piece in cut)
    assert all(character in rest for character in letters(text))


@pytest.mark.parametrize(
    ("cut", "complete"),
    [
        ("**I", ""),
        ("The build is 3.5 times", ""),
        ("It is green. And the", "It is green."),
        ('She said "go!" Then', 'She said "go!"'),
        ("**Done.** I look", "**Done.**"),
        ("- one\n- two\n- thr", "- one\n- two"),
        ("Run this:\n\n```\nmake te", "Run this:"),
        ("Run this:\n\n```\nmake test\n```\nIt", "Run this:\n\n```\nmake test\n```"),
        ("Look.\n```py\nx = 1\n``` and th", "Look.\n```py\nx = 1\n```"),
        ("Steps:\n1. Do this\n2. Do th", "Steps:\n1. Do this"),
        ("これは文です。次の", "これは文です。"),
        ("All of it.", "All of it."),
        ("**Bold sentence. Not fini", ""),
        ("First. *Then this. Not", "First."),
        ("**A.\n\nAnd", ""),
        ("Done.**", ""),
        ("**1. Step.** Do it. Th", "**1. Step.** Do it."),
        ("Done. Use `x.y. z", "Done."),
        ("Read [the docs. Here](http://x", ""),
        ("Fine. Read [the docs](http://x. y", "Fine."),
        ("Look at <https://a.b/c. d", ""),
        ("Text:\n\n| a | b |\n", "Text:"),
        ("Text.\n\n| a | b |\n|---|---|\n| Done. x", "Text."),
        ("|a|b|\n|---|---|\n|1|2|\n| Done. x", "|a|b|\n|---|---|\n|1|2|"),
        ("# Heading\n", ""),
        ("Ok.\n\n## Part 2. Next\n\nMore", "Ok."),
        ("Steps:\n\n1. One\n2.\n", "Steps:\n\n1. One"),
        ("#1 is done. And", "#1 is done."),
        ("Dr.", ""),
        ("Yes. Ask Dr. Who", "Yes."),
        ("Yes. An owl, i.e. a", "Yes."),
        ("Yes (e.g. a", ""),
        ("2 * 3 is 6, a_b is <3. And", "2 * 3 is 6, a_b is <3."),
    ],
)
def test_a_cut_text_ends_with_its_last_complete_sentence(cut, complete):
    assert complete_sentences(cut) == complete


@given(st.text(alphabet="ab .!\n`*", max_size=80))
def test_the_complete_part_of_a_cut_text_is_its_beginning_and_stays(text):
    complete = complete_sentences(text)
    assert text.startswith(complete)
    assert complete_sentences(f"{complete}\n") == complete


plain = st.lists(
    st.sampled_from(["Owls", "hunt", "mice.", "Now!", "e.g.", "Dr.", "at", "3.5", "dusk:"]), min_size=1
).map(" ".join)
spans = st.one_of(
    plain,
    st.builds("{0}{1}{0}".format, st.sampled_from(["**", "*", "_", "~~", "`", "***"]), plain),
    st.builds("**{} *{}* {}.**".format, plain, plain, plain),
    st.builds("[{}](https://a.b/c)".format, plain),
    st.just("<https://a.b/c>."),
)
sentences = st.lists(spans, min_size=1, max_size=4).map(lambda parts: f"{' '.join(parts)} end.")
rows = st.lists(st.tuples(plain, spans).map("| {0[0]} | {0[1]} |".format), min_size=1, max_size=3)
blocks = st.one_of(
    sentences,
    sentences.map("# {}".format),
    st.lists(sentences.map("- {}".format), min_size=1, max_size=3).map("\n".join),
    rows.map(lambda lines: "\n".join(("| Owl | Mouse |", "|---|---|", *lines))),
    plain.map("```py\n**{} [\n\n# x\n```".format),
)


def raw_markup(markdown: str) -> str:
    """The signs that a reader of Markdown sees as text."""
    tokens = MarkdownIt("commonmark").enable(["strikethrough", "table"]).parse(markdown)
    texts = (child.content for token in tokens for child in token.children or () if child.type == "text")
    return "".join(sign for text in texts for sign in text if sign in "*_~`[]<>|#")


@settings(max_examples=200, deadline=None)
@given(st.lists(blocks, min_size=1, max_size=4).map("\n\n".join), st.floats(0, 1))
def test_wherever_an_answer_is_cut_no_markup_is_broken(answer, part):
    assert not raw_markup(answer)
    kept = complete_sentences(answer[: round(part * len(answer))])
    assert answer.startswith(kept)
    assert not raw_markup(kept)
    assert kept.count("```") % 2 == 0
    assert not kept.rpartition("\n")[2].startswith("#")
    if not answer.rpartition("\n")[2].startswith("#"):
        assert complete_sentences(f"{answer}\n\nAnd th") == answer
