from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from connector.markdown import markdown_to_slack, pieces

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
        ("one\n\ntwo", "one\n\ntwo"),
        ("above\n\n---\n\nbelow", "above\n\n──────────\n\nbelow"),
    ],
)
def test_markdown_becomes_what_slack_shows(markdown, slack):
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
