from __future__ import annotations

import html
import re
import sys
import unicodedata
from urllib.parse import unquote

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from connector.formatting.links import escape
from connector.formatting.markdown import markdown_to_slack
from connector.formatting.splitting import pieces
from connector.runs.answers import posts_of

LIVE = re.compile(r"<[!@#]")


@pytest.mark.parametrize(
    ("markdown", "slack"),
    [
        ("**bold** and *slanted* and ~~gone~~ and `code`", "*bold* and _slanted_ and ~gone~ and `code`"),
        ("# A heading with **bold**", "*A heading with bold*"),
        ("## A [link](https://a.b) and `code`", "*A <https://a.b|link> and `code`*"),
        (
            "- one\n- two\n  - three\n    - four\n      - five",
            "• one\n• two\n    ◦ three\n        ▪ four\n            ▪ five",
        ),
        ("1. one\n   - two\n     7. three\n2. four", "1. one\n    ◦ two\n        7. three\n2. four"),
        ("- one\n\n  more\n- two", "• one\n    more\n• two"),
        (
            "1. run\n   ```\n   a\n     b\n   ```\n   then\n2. ```\n   c\n   ```",
            "1. run\n```\na\n  b\n```\n    then\n2.\n```\nc\n```",
        ),
        ("- [ ] to *do*\n- [x] done\n\n1. [X] first\n- [x]", "☐ to _do_\n☑ done\n\n1. ☑ first\n\n• [x]"),
        ("3. three\n4. four", "3. three\n4. four"),
        ("> quoted\n> twice", "> quoted\n> twice"),
        ("> a\n>\n> b", "> a\n> \n> b"),
        ("> a\n> > b", "> a\n> \n> &gt; b"),
        ("> - a\n>   - b\n> ```\n> c\n> ```\n> d", "> • a\n>     ◦ b\n```\nc\n```\n> d"),
        ("- > a\n  > b", "• &gt; a\n    &gt; b"),
        ("\\> a\n\\>>> b", "\u200b&gt; a\n\u200b&gt;&gt;&gt; b"),
        ("```python\nif a < b:\n    pass\n```", "```\nif a &lt; b:\n    pass\n```"),
        ("``` never closed, and all of it is text", "```\nnever closed, and all of it is text\n```"),
        ("```sh on the server\nls\n```", "```\nsh on the server\nls\n```"),
        ("wo**r**d, **a**b, **漢**字", "wo\u200b*r*\u200bd, *a*\u200bb, *漢*\u200b字"),
        ("**a**~~b~~ ***c*** **d *e* f**", "*a*\u200b~b~ _*c*_ *d _e_ f*"),
        ('(**a**), "*b*". **c:** d', '(*a*), "_b_". *c:* d'),
        ("**a\nb**", "*a*\n*b*"),
        ("**&nbsp;a&nbsp;** b", "*a*\xa0 b"),
        ("the `x`s and ``a`b`` and `` `c ``", "the `x`\u200bs and `a\u02cbb` and `\u02cbc`"),
        (":white_check_mark: :a_b: snake_case_name", ":white_check_mark: :a_b: snake_case_name"),
        ("[a](https://a.b/c_(d)) [e]\n\n[e]: https://e.f", "<https://a.b/c_(d)|a> <https://e.f|e>"),
        (
            "[**a** b](https://a.b) [**c**](https://a.b) [`d`](https://a.b)",
            "<https://a.b|a b> *<https://a.b|c>* <https://a.b|d>",
        ),
        ("(see https://a.b/c_d_e.) <ana@a.b>", "(see <https://a.b/c_d_e>.) <mailto:ana@a.b|ana@a.b>"),
        ("[a](docs/b.md) [c](#d) [e](HTTPS://f.g)", "a (docs/b.md) c <HTTPS://f.g|e>"),
        ("![a](https://a.b/c.png) [![d](https://e.f)](https://g.h)", "<https://a.b/c.png|a> <https://g.h|d>"),
        ("one  \ntwo\nthree", "one\ntwo\nthree"),
        ("a<br>b &copy; &amp;lt;", "a&lt;br&gt;b © &amp;lt;"),
        ("see [the docs](https://a.b/c?d=1&e=2)", "see <https://a.b/c?d=1&amp;e=2|the docs>"),
        ("[call all](javascript:alert)", "[call all](javascript:alert)"),
        ("<!channel> <@U1> & <b>", "&lt;!channel&gt; &lt;@U1&gt; &amp; &lt;b&gt;"),
        ("| a | b |\n|---|---|\n| 1 | 22 |", "```\na  b\n-  --\n1  22\n```"),
        ("| a |\n|---|\n| ```x <b> |", "```\na\n--------\n` ` `x &lt;b&gt;\n```"),
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
        ("[**bank.com**](https://evil.com)", "*bank.com (<https://evil.com>)*"),
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
        ("<https://a.com/see/bank.com>", "<https://a.com/see/bank.com>"),
        ("[bank.com](https://bank.com%2Eevil.com)", "bank.com (<https://bank.com%2Eevil.com>)"),
        ("[bank.com](https://bank.com%E3%80%82evil.com)", "bank.com (<https://bank.com%E3%80%82evil.com>)"),
        ("[bank.com](https://bank.com$.evil.com)", "bank.com (<https://bank.com$.evil.com>)"),
        ("[bank.com](https://bank.com;.evil.com)", "bank.com (<https://bank.com;.evil.com>)"),
        ("[bank.com](https://bank.com&x.evil.com)", "bank.com (<https://bank.com&amp;x.evil.com>)"),
        ("[bank.com](https://bank.com:1@evil.com)", "bank.com (<https://bank.com:1@evil.com>)"),
        ("[bank\u3002com](https://evil.com)", "bank\u3002com (<https://evil.com>)"),
        ("[a.com&bank.com](https://a.com)", "a.com&amp;bank.com (<https://a.com>)"),
        ("[bank.com](mailto:x@bank.com?cc=eve@evil.com)", "bank.com (<mailto:x@bank.com?cc=eve@evil.com>)"),
        ("[ana@bank.com](mailto:eve@bank.com)", "ana@bank.com (<mailto:eve@bank.com>)"),
        ("[write to us](mailto:ana@a.com?subject=a)", "<mailto:ana@a.com?subject=a|write to us>"),
        ("[a.com:443](https://a.com:443/)", "<https://a.com:443/|a.com:443>"),
        ("[version 1.2.3, e.g.](https://a.com)", "<https://a.com|version 1.2.3, e.g.>"),
    ],
)
def test_a_label_that_names_another_address_does_not_hide_the_target(markdown, slack):
    assert markdown_to_slack(markdown) == slack


HOSTS = st.text(st.sampled_from("$;&*~,:@/?#.\u3002\uff61\uff0e"), max_size=3)


@given(HOSTS, st.sampled_from(["", "evil.com", "%2Eevil.com", "%E3%80%82evil.com", "%40evil.com", "%2F@evil.com"]))
def test_a_link_hides_behind_a_host_only_where_it_leads_to_it(between, more):
    shown = html.unescape(markdown_to_slack(f"[bank.com](https://bank.com{between}{more})"))
    if found := re.fullmatch(r"<https://(?:[^/?#]*@)?([^/?#@:]*)(?::\d*)?(?:[/?#].*)?\|bank\.com>", shown):
        assert unicodedata.normalize("NFKC", unquote(found[1])).rstrip(".") == "bank.com"
    else:
        assert "|" not in shown


def test_a_definition_that_no_link_uses_is_shown_where_it_stands():
    sources = "Sources:\n\n[1]: https://a.b/c\n[2]: https://d.e/f 'A <title>'\n\nend"
    shown = 'Sources:\n\n[1]: <https://a.b/c>\n[2]: <https://d.e/f> "A &lt;title&gt;"\n\nend'
    assert markdown_to_slack(sources) == shown
    assert markdown_to_slack("[TODO]: fix") == "[TODO]: fix"
    assert (
        markdown_to_slack("see [1]\n\n[1]: https://a.b\n[1]: https://c.d")
        == "see <https://a.b|1>\n\n[1]: <https://c.d>"
    )


def test_half_a_character_does_not_keep_a_text_from_being_sent():
    assert markdown_to_slack("a \ud800 **b**") == "a \ufffd *b*"
    assert escape("\ud83d\ude00") == "😀"


def test_a_link_that_is_longer_than_any_piece_only_because_it_is_escaped_is_written_as_text():
    assert "<" not in markdown_to_slack(f"see https://a.b/?{'&x' * 690} end")


def test_columns_stand_under_each_other_also_where_letters_are_wide():
    rows = ["| Name | Kind | Count |", "|:--|:-:|--:|", "| **a** | `b` | 1 |", "| 漢字e\u0301 | c | 22 |"]
    lines = ["Name   Kind  Count", "-----  ----  -----", "a       b        1", "漢字e\u0301   c       22"]
    assert markdown_to_slack("\n".join(rows)) == "\n".join(["```", *lines, "```"])


def test_a_table_that_is_too_wide_or_leads_somewhere_becomes_a_list_for_each_row():
    wide = f"| Name | What |\n|---|---|\n| a | {'long ' * 20}|\n| b | |"
    assert markdown_to_slack(wide) == f"*Name*: *a*\n• What: {('long ' * 20).strip()}\n\n*Name*: *b*\n• What"
    assert markdown_to_slack("| a |\n|---|\n| 1 | `2|3` |") == "```\na\n---------\n1 | 2 | 3\n```"
    assert markdown_to_slack("| Name |\n|---|\n| [a](https://a.b) |") == "*Name*: *<https://a.b|a>*"


@pytest.mark.parametrize(
    "deep",
    [
        "> " * 200 + "word",
        "".join(f"{'  ' * n}- word\n" for n in range(200)),
        f"{'![' * 900}word{'](u)' * 900}",
        "[" * 20_000 + "word",
    ],
)
def test_what_is_nested_too_deeply_is_not_lost(deep):
    assert markdown_to_slack(deep).count("word") == deep.count("word")


ROW = "|a" * 200 + "|\n" + "|-" * 200 + "|\n"
LONGEST_CHARS = 19_500


@pytest.mark.parametrize(
    ("unit", "most_steps_per_char"),
    [
        ("[" * 400 + "\n\n", 200),
        ("[" * 499 + "]" * 499 + "\n", 200),
        (">" * 50 + "a\n" + "b\n" * LONGEST_CHARS, 200),
        (">" * 18 + "a\n" + "b\n" * LONGEST_CHARS, 200),
        (ROW + "a\n" * 8 + "\n", 200),
        ("|a|b|c|d|\n|-|-|-|-|\n" + "|\n" * LONGEST_CHARS, 200),
        *((signs, 60) for signs in ("*<", "&**", "_**", "*_*_", "&_~<", "**a*b", "]_(", "a*", "&", "`*")),
    ],
)
def test_an_answer_takes_a_bounded_number_of_steps_whatever_its_markup(unit, most_steps_per_char):
    left = most_steps_per_char * LONGEST_CHARS

    def step(_frame, _event, _argument):
        nonlocal left
        left -= 1
        assert left > 0, "the conversion takes too many steps"

    before = sys.getprofile()
    sys.setprofile(step)
    try:
        texts, file = posts_of((unit * LONGEST_CHARS)[:LONGEST_CHARS])
    finally:
        sys.setprofile(before)
    assert texts
    assert len(texts) <= 5 or file


def test_a_paragraph_with_very_many_signs_is_shown_as_it_was_written_but_code_is_code():
    marked, plain = "**a** x " * 700, "**b** " * 100
    shown = markdown_to_slack(f"{marked}\n\n```\n{'<*_>' * 1000}\n```\n\n{plain}")
    assert shown.startswith("*a* x *a*")
    assert "```\n&lt;*_&gt;" in shown
    assert shown.endswith("**b** **b**")


def test_a_table_with_very_many_cells_is_shown_as_it_was_written():
    few, many = ("|a|b|\n|-|-|\n" + "|1|2|\n" * rows for rows in (500, 1500))
    assert markdown_to_slack(few).startswith("```\na")
    assert markdown_to_slack(many) == many.strip()


MARKUP = [
    *"*_~`#>|-[]()!&<\n ",
    "**",
    "~~",
    "```",
    "\n```\n",
    "\n\n",
    "> ",
    "- ",
    "1. ",
    "- [x] ",
    "    ",
    "|---|\n",
    "\\",
    "<br>",
]
ENTITIES = [
    "<!channel>",
    "<@U0ANA>",
    "<#C1>",
    "<!subteam^S1>",
    "<https://a.b|c>",
    "[x](",
    "](https://a.b)",
    "&lt;!here&gt;",
]
PARTS = st.one_of(st.text(max_size=8), st.sampled_from(MARKUP), st.sampled_from(ENTITIES))
TEXTS = st.lists(PARTS, max_size=40).map("".join)
quickly = settings(max_examples=150, deadline=None)


@quickly
@given(TEXTS)
def test_nothing_that_a_model_writes_is_live_but_links_to_the_web_and_to_mail(text):
    assert not re.search(r"<(?!https?://|mailto:)", markdown_to_slack(text), re.IGNORECASE)


@quickly
@given(TEXTS, st.integers(min_value=40, max_value=200))
def test_in_no_piece_anything_else_is_live(text, limit):
    assert not any(LIVE.search(piece) for piece in pieces(markdown_to_slack(text), limit))


@quickly
@given(
    st.lists(
        st.one_of(st.sampled_from([*MARKUP, *ENTITIES, "[1]: ", "](", "\n[1]: https://a.b/"]), st.none()), max_size=40
    )
)
def test_every_word_of_a_markdown_text_is_in_its_pieces(parts):
    text = "".join(f"w{number}w" if part is None else part for number, part in enumerate(parts))
    there = html.unescape("".join(pieces(markdown_to_slack(text), 200)))
    assert [word for word in WORD.findall(NOT_SHOWN.sub("", text)) if word not in there] == []


WORD = re.compile(r"w\d+w")
# The language of a code block, a link's title, and where a link within the answer leads to.
NOT_SHOWN = re.compile(r"^[\W\d]*(?:```|~~~).*$|\]\([^)]*\s\([^)]*\)|\]\(\s*<?#\S*", re.MULTILINE)


@quickly
@given(TEXTS, st.integers(min_value=40, max_value=200))
def test_pieces_keep_to_the_limit_and_lose_nothing(text, limit):
    cut = pieces(text, limit)
    assert all(len(piece) <= limit for piece in cut)
    assert is_within(letters(text), letters("".join(cut)))


def shown(text: str) -> str:
    return html.unescape(text)


def is_within(part: str, whole: str) -> bool:
    """Whether these characters are in the other text in this order."""
    rest = iter(whole)
    return all(character in rest for character in part)


def letters(text: str) -> str:
    # Fences and marks are closed and opened again at a cut, and lines may be broken there.
    return re.sub(r"[\s`*]", "", text)


def test_a_fence_that_is_cut_is_closed_and_opened_again():
    first, second = pieces("```\n" + "\n".join(f"line {n}" for n in range(12)) + "\n```", 80)
    assert first.startswith("```\n")
    assert first.endswith("\n```")
    assert second.startswith("```\n")
    assert second.endswith("\n```")


@pytest.mark.parametrize(("mark", "slack"), [("**", "*"), ("`", "`"), ("*", "_"), ("~~", "~")])
def test_what_is_marked_and_cut_is_marked_in_each_piece(mark, slack):
    text = markdown_to_slack(f"before {mark}{'some words ' * 40}end{mark} after")
    first, *between, last = pieces(text, 60)
    assert first.startswith(f"before {slack}some")
    assert last.endswith(f"end{slack} after")
    assert len(between) > 3
    assert all(piece[0] == piece[-1] == slack and piece.count(slack) == 2 for piece in between)


def test_a_sign_that_marks_nothing_is_not_repeated_at_a_cut():
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
    # A quote that is cut goes on as one.
    assert letters(html.unescape("".join(cut))).replace(">", "") == letters(html.unescape(text)).replace(">", "")
    links = re.compile(r"<https://[^<>]*>")
    assert [link for piece in cut for link in links.findall(piece)] == links.findall(text)
    for piece in cut:
        assert len(piece) <= limit
        assert not HALF_ENTITY.search(piece)
        assert piece.count("```") % 2 == 0
        assert "```\n```" not in piece, "an empty block is left of a cut"


def test_a_heading_and_a_line_that_announces_stay_with_what_follows():
    above, below = "word " * 11 + "word", "more " * 11 + "more"
    assert pieces(f"{above}\n\n*A heading*\n\n{below}", 110) == [above, f"*A heading*\n\n{below}"]
    assert pieces(f"{above}\n\nWhat to do:\n\n{below}", 110) == [above, f"What to do:\n\n{below}"]


def test_what_belongs_to_an_item_of_a_list_stays_with_it():
    item = "• item\n    ◦ inside\n    and more"
    assert pieces("\n".join([item] * 4), 90) == ["\n".join([item] * 2)] * 2


def test_a_quote_that_is_cut_within_a_line_goes_on_as_a_quote():
    cut = pieces("> " + "word " * 30, 60)
    assert len(cut) > 2
    assert all(piece.startswith("> word") for piece in cut)


@quickly
@given(
    st.lists(st.text(st.sampled_from("ab{} \t"), max_size=30), min_size=1, max_size=30),
    st.integers(min_value=40, max_value=99),
)
def test_no_space_of_a_long_code_block_is_lost(lines, limit):
    code = "\n".join(["begin", *lines, "end"])
    cut = pieces(markdown_to_slack(f"```\n{code}\n```"), limit)
    whole = "\n".join(piece.removeprefix("```\n").removesuffix("\n```") for piece in cut)
    assert whole.replace("\n", "") == code.replace("\n", "")
