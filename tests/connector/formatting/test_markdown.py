from __future__ import annotations

import html
import re
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_texts import HIDDEN, MARKUP_OR_WORD, TEXTS, WORD, quickly

from connector.formatting.markdown import markdown_to_slack
from connector.formatting.splitting import pieces
from connector.runs.posts import agent_post


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
        ("**注意。**请不要", "*注意。*\u200b请不要"),
        ("これは**「重要」**です。", "これは\u200b*「重要」*\u200bです。"),
        ("**결과(2024)**입니다", "*결과(2024)*\u200b입니다"),
        ("~~旧的。~~新的", "~旧的。~\u200b新的"),
        ("a * b 和 2 * 3, 価格は5*3です, 数 * 倍", "a * b 和 2 * 3, 価格は5*3です, 数 * 倍"),
        ("__重要。__a _x_的", "__重要。__a _x_的"),
        ("请删除*.log和*.tmp文件", "请删除*.log和*.tmp文件"),
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
        ("$a_1*b_2$ or \\(x_1\\); $5 and $10, $HOME/$USER", "`a_1*b_2` or `x_1`; $5 and $10, $HOME/$USER"),
        ("$$\na_1 *b*\n$$\n\n\\[ x^2 \\]", "```\na_1 *b*\n```\n\n```\nx^2\n```"),
        ("a $$x_1$$ and \\[no\\](https://a.b)", "a `x_1` and [no](<https://a.b>)"),
        ("one\n\ntwo", "one\n\ntwo"),
        ("above\n\n---\n\nbelow", "above\n\n──────────\n\nbelow"),
    ],
)
def test_markdown_is_converted_to_the_markup_of_slack(markdown, slack):
    assert markdown_to_slack(markdown) == slack


def test_half_a_character_is_replaced():
    assert markdown_to_slack("a \ud800 **b**") == "a \ufffd *b*"


@pytest.mark.parametrize(
    "deep",
    [
        "> " * 200 + "word",
        "".join(f"{'  ' * n}- word\n" for n in range(200)),
        f"{'![' * 900}word{'](u)' * 900}",
        "[" * 20_000 + "word",
    ],
)
def test_deeply_nested_words_are_kept(deep):
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
        *((markup, 60) for markup in ("*<", "&**", "_**", "*_*_", "&_~<", "**a*b", "]_(", "a*", "&", "`*")),
    ],
)
def test_the_conversion_takes_a_bounded_number_of_steps_whatever_the_markup(unit, most_steps_per_char):
    left = most_steps_per_char * LONGEST_CHARS

    def step(_frame, _event, _argument):
        nonlocal left
        left -= 1
        assert left > 0, "the conversion takes too many steps"

    before = sys.getprofile()
    sys.setprofile(step)
    try:
        post, *_ = agent_post("1", (unit * LONGEST_CHARS)[:LONGEST_CHARS])
    finally:
        sys.setprofile(before)
    assert post.texts
    assert len(post.texts) <= 5 or post.file


def test_a_paragraph_with_very_much_markup_is_not_converted_but_the_code_beside_it_is():
    marked, plain = "**a** x " * 700, "**b** " * 100
    slack = markdown_to_slack(f"{marked}\n\n```\n{'<*_>' * 1000}\n```\n\n{plain}")
    assert slack.startswith("*a* x *a*")
    assert "```\n&lt;*_&gt;" in slack
    assert slack.endswith("**b** **b**")


@quickly
@given(TEXTS)
def test_of_the_entities_that_a_model_writes_only_links_to_the_web_and_to_mail_are_live(text):
    assert not re.search(r"<(?!https?://|mailto:)", markdown_to_slack(text), re.IGNORECASE)


@quickly
@given(TEXTS, st.integers(min_value=40, max_value=200))
def test_the_pieces_keep_to_the_limit_and_have_no_live_mention(text, limit):
    cut = pieces(markdown_to_slack(text), limit)
    assert not any(len(piece) > limit or re.search(r"<[!@#]", piece) for piece in cut)


@quickly
@given(st.lists(MARKUP_OR_WORD, max_size=40))
def test_every_visible_word_of_a_markdown_text_is_in_its_pieces(parts):
    text = "".join(f"w{number}w" if part is None else part for number, part in enumerate(parts))
    shown = html.unescape("".join(pieces(markdown_to_slack(text), 200)))
    assert [word for word in WORD.findall(HIDDEN.sub("", text)) if word not in shown] == []


def test_the_columns_of_a_table_are_aligned_also_with_wide_characters():
    rows = ["| Name | Kind | Count |", "|:--|:-:|--:|", "| **a** | `b` | 1 |", "| 漢字e\u0301 | c | 22 |"]
    lines = ["Name   Kind  Count", "-----  ----  -----", "a       b        1", "漢字e\u0301   c       22"]
    assert markdown_to_slack("\n".join(rows)) == "\n".join(["```", *lines, "```"])


def test_a_table_that_is_too_wide_or_has_links_becomes_a_list_for_each_row():
    wide = f"| Name | What |\n|---|---|\n| a | {'long ' * 20}|\n| b | |"
    assert markdown_to_slack(wide) == f"*Name*: *a*\n• What: {('long ' * 20).strip()}\n\n*Name*: *b*\n• What"
    assert markdown_to_slack("| Name |\n|---|\n| [a](https://a.b) |") == "*Name*: *<https://a.b|a>*"


def test_a_bar_in_code_separates_cells_as_in_other_viewers():
    assert markdown_to_slack("| a |\n|---|\n| 1 | `2|3` |") == "```\na\n---------\n1 | 2 | 3\n```"


def test_a_table_with_very_many_cells_is_not_converted():
    few, many = ("|a|b|\n|-|-|\n" + "|1|2|\n" * rows for rows in (500, 1500))
    assert markdown_to_slack(few).startswith("```\na")
    assert markdown_to_slack(many) == many.strip()
