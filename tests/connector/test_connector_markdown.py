from __future__ import annotations

import html
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from connector.outbound.markdown import markdown_to_slack, pieces

LIVE = re.compile(r"<[!@#]")


@pytest.mark.parametrize(
    ("markdown", "slack"),
    [
        ("**bold** and *slanted* and ~~gone~~ and `code`", "*bold* and _slanted_ and ~gone~ and `code`"),
        ("# A heading with **bold**", "*A heading with bold*"),
        ("- one\n- two\n  - three", "• one\n• two\n    • three"),
        ("3. three\n4. four", "3. three\n4. four"),
        ("> quoted\n> twice", "> quoted\n> twice"),
        ("```python\nif a < b:\n    pass\n```", "```\nif a &lt; b:\n    pass\n```"),
        ("see [the docs](https://a.b/c?d=1&e=2)", "see <https://a.b/c?d=1&amp;e=2|the docs>"),
        ("[call all](javascript:alert)", "[call all](javascript:alert)"),
        ("<!channel> <@U1> & <b>", "&lt;!channel&gt; &lt;@U1&gt; &amp; &lt;b&gt;"),
        ("| a | b |\n|---|---|\n| 1 | 22 |", "```\na  b\n1  22\n```"),
        ("| a |\n|---|\n| ```x <b> |", "```\na\n` ` `x &lt;b&gt;\n```"),
        ("~~~\n`````\n~~~", "```\n` ` ` ` `\n```"),
        ("not \\`\\`\\` a border", "not ` ` ` a border"),
        ("[one\ntwo](https://a.b)", "<https://a.b|one two>"),
        ("one\n\ntwo", "one\n\ntwo"),
        ("above\n\n---\n\nbelow", "above\n\n──────────\n\nbelow"),
    ],
)
def test_markdown_becomes_what_slack_shows(markdown, slack):
    assert markdown_to_slack(markdown) == slack


@pytest.mark.parametrize(
    ("markdown", "slack"),
    [
        ("[https://bank.com](https://evil.com)", "https://bank.com (<https://evil.com>)"),
        ("[bank.com](https://evil.com/bank.com)", "bank.com (<https://evil.com/bank.com>)"),
        ("[sign in at Bank.com now](https://evil.com)", "sign in at Bank.com now (<https://evil.com>)"),
        ("[**bank.com**](https://evil.com)", "*bank.com* (<https://evil.com>)"),
        ("[bank.com](https://bank.com.evil.com)", "bank.com (<https://bank.com.evil.com>)"),
        ("[bank.com](https://bank.com@evil.com)", "bank.com (<https://bank.com@evil.com>)"),
        ("[bank.com@evil.com](https://evil.com)", "bank.com@evil.com (<https://evil.com>)"),
        ("[bank\uff0ecom](https://evil.com)", "bank\uff0ecom (<https://evil.com>)"),
        ("[bank\u200b.com](https://evil.com)", "bank\u200b.com (<https://evil.com>)"),
        ("[http://localhost:1](https://evil.com)", "http://localhost:1 (<https://evil.com>)"),
        ("[10.0.0.1](https://evil.com)", "10.0.0.1 (<https://evil.com>)"),
        ("[ana@bank.com](mailto:eve@evil.com)", "ana@bank.com (<mailto:eve@evil.com>)"),
        ("[www.a.com/docs](https://a.com/other)", "<https://a.com/other|www.a.com/docs>"),
        ("[https://a.com](https://www.a.com/)", "<https://www.a.com/|https://a.com>"),
        ("[ana.b@a.com](mailto:ana.b@a.com)", "<mailto:ana.b@a.com|ana.b@a.com>"),
        ("<https://a.com/see/bank.com>", "<https://a.com/see/bank.com|https://a.com/see/bank.com>"),
        ("[version 1.2.3, e.g.](https://a.com)", "<https://a.com|version 1.2.3, e.g.>"),
    ],
)
def test_a_label_that_names_another_address_does_not_hide_the_target(markdown, slack):
    assert markdown_to_slack(markdown) == slack


DANGEROUS = st.sampled_from(
    ["<!channel>", "<@U0ANA>", "<#C1>", "<https://a.b|c>", "](", "[x](", "<", ">", "|", "&lt;", "```", "`"]
)
TEXTS = st.lists(st.one_of(st.text(max_size=20), DANGEROUS), max_size=20).map("".join)


@given(TEXTS)
def test_no_text_makes_a_live_mention(text):
    assert not LIVE.search(markdown_to_slack(text))


@given(TEXTS, st.integers(min_value=40, max_value=200))
def test_pieces_keep_to_the_limit_and_lose_nothing(text, limit):
    cut = pieces(text, limit)
    assert all(len(piece) <= limit for piece in cut)
    assert letters("".join(cut)) == letters(text)


def letters(text: str) -> str:
    # Fences are closed and opened again at a cut, and lines may be broken there.
    return re.sub(r"[\s`]", "", text)


def test_a_fence_that_is_cut_is_closed_and_opened_again():
    first, second = pieces("```\n" + "\n".join(f"line {n}" for n in range(12)) + "\n```", 80)
    assert first.startswith("```\n")
    assert first.endswith("\n```")
    assert second.startswith("```\n")
    assert second.endswith("\n```")


def test_a_code_block_that_fits_into_a_piece_is_not_cut():
    code = "```\n" + "\n".join(f"line {n}" for n in range(8)) + "\n```"
    assert pieces(f"above\n\nand more above\n\n{code}\n\nbelow it", 70) == ["above\n\nand more above", code, "below it"]


def test_a_cut_prefers_paragraphs_to_lines_and_lines_to_words():
    words = "one two three four five"
    assert pieces(f"{words}\n{words}\n\n{words}\n{words}", 90) == [f"{words}\n{words}"] * 2
    assert pieces(f"{words}\n{words} {words}", 50) == [words, f"{words} {words}"]
    assert pieces(f"{words} {words}", 40) == [f"{words} one two", "three four five"]


def test_a_link_that_is_longer_than_any_piece_is_written_as_text():
    text = markdown_to_slack(f"[the docs](https://a.b/?{'x=1&' * 2000})")
    assert text.startswith("the docs (https://a.b/?x=1&amp;")
    cut = pieces(text)
    assert letters("".join(cut)) == letters(text)
    assert not any(HALF_ENTITY.search(piece) for piece in cut)


HALF_ENTITY = re.compile(r"&(?!(?:amp|lt|gt);)")
WORDS = st.text(st.sampled_from("ab&<>*`|.\n "), min_size=1, max_size=12)
LINKS = st.builds("[{}](https://a.b/{})".format, st.text("ab &<>", max_size=6), st.text("xy&/", max_size=8))
CODE = st.lists(WORDS, max_size=12).map(lambda lines: "\n```\n" + "\n".join(lines).replace("`", "") + "\n```\n")
PROSE = st.lists(st.one_of(WORDS, LINKS, CODE, st.just("\n\n")), max_size=40).map(" ".join)


@given(PROSE, st.integers(min_value=90, max_value=200))
def test_a_cut_goes_through_no_character_no_link_and_no_border_of_a_code_block(markdown, limit):
    text = markdown_to_slack(markdown)
    cut = pieces(text, limit)
    assert letters(html.unescape("".join(cut))) == letters(html.unescape(text))
    links = re.compile(r"<https://[^<>]*>")
    assert [link for piece in cut for link in links.findall(piece)] == links.findall(text)
    for piece in cut:
        assert len(piece) <= limit
        assert not HALF_ENTITY.search(piece)
        assert piece.count("```") % 2 == 0
        assert "```\n```" not in piece, "an empty block is left of a cut"
