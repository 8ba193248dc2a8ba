from __future__ import annotations

import html
import re
import unicodedata
from urllib.parse import unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_texts import links_of

from connector.formatting.content import use_of
from connector.formatting.inline import escape
from connector.formatting.markdown import markdown_to_slack
from connector.formatting.native import native_markdown
from connector.formatting.splitting import pieces

SOURCES = "Sources: 1 <https://a.b/c|The title> · 2 bank.com (<https://evil.com>)"
LINKS = pytest.mark.parametrize(
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


@LINKS
def test_a_label_with_another_address_is_shown_with_the_target(markdown, slack):
    assert markdown_to_slack(markdown) == slack


@LINKS
def test_a_markdown_block_has_the_same_links(markdown, slack):
    links = [(html.unescape(target), label) for target, label in re.findall(r"<([^|>]*)\|?([^>]*)>", slack)]
    assert links_of(native_markdown(markdown)) == [(target, label or target) for target, label in links]


HOSTS = st.text(st.sampled_from("$;&*~,:@/?#.\u3002\uff61\uff0e"), max_size=3)


@given(HOSTS, st.sampled_from(["", "evil.com", "%2Eevil.com", "%E3%80%82evil.com", "%40evil.com", "%2F@evil.com"]))
def test_a_link_is_labelled_with_a_host_only_if_it_leads_there(between, more):
    shown = html.unescape(markdown_to_slack(f"[bank.com](https://bank.com{between}{more})"))
    if found := re.fullmatch(r"<https://(?:[^/?#]*@)?([^/?#@:]*)(?::\d*)?(?:[/?#].*)?\|bank\.com>", shown):
        assert unicodedata.normalize("NFKC", unquote(found[1])).rstrip(".") == "bank.com"
    else:
        assert "|" not in shown


@given(HOSTS, st.sampled_from(["", "evil.com", "%2Eevil.com", "%E3%80%82evil.com", "%40evil.com", "%2F@evil.com"]))
def test_a_link_of_a_markdown_block_is_labelled_with_a_host_only_if_it_leads_there(between, more):
    for target, label in links_of(native_markdown(f"[bank.com](https://bank.com{between}{more})")):
        if label == "bank.com":
            host = re.match(r"https://(?:[^/?#]*@)?([^/?#@:]*)", target)[1]
            assert unicodedata.normalize("NFKC", unquote(host)).rstrip(".") == "bank.com"


def test_half_a_character_is_joined_with_its_other_half():
    assert escape("\ud83d\ude00") == "😀"


def test_a_link_that_is_longer_than_a_piece_is_written_as_text():
    text = markdown_to_slack(f"[the docs](https://a.b/?{'x=1&' * 2000})")
    assert text.startswith("the docs (https://a.b/?x=1&amp;")
    cut = pieces(text)
    assert re.sub(r"\s", "", "".join(cut)) == re.sub(r"\s", "", text)
    assert not any(re.search(r"&(?!(?:amp|lt|gt);)", piece) for piece in cut)


def test_a_link_that_is_longer_than_a_piece_only_when_it_is_escaped_is_written_as_text():
    assert "<" not in markdown_to_slack(f"see https://a.b/?{'&x' * 690} end")


@pytest.mark.parametrize(
    ("markdown", "slack"),
    [
        (
            "Sources:\n\n[1]: https://a.b/c\n[2]: https://d.e/f 'A <title>'\n\nend",
            'Sources:\n\n[1]: <https://a.b/c>\n[2]: <https://d.e/f> "A &lt;title&gt;"\n\nend',
        ),
        ("[TODO]: fix", "[TODO]: fix"),
        (
            "see [1]\n\n[1]: https://a.b\n[1]: https://c.d",
            "see <https://a.b|1>\n\n[1]: <https://c.d>\n\nSources: 1 <https://a.b|a.b>",
        ),
        (
            "a[^1] b[^2]\n\n[^1]: https://a.b/c 'The title'\n[^2]: https://evil.com 'bank.com'",
            "a<https://a.b/c|^1> b<https://evil.com|^2>\n\n" + SOURCES,
        ),
    ],
)
def test_a_definition_without_a_link_is_shown_at_its_place(markdown, slack):
    assert markdown_to_slack(markdown) == slack


@pytest.mark.parametrize(
    ("tool", "words"),
    [
        ("read_file", "Reading file"),
        ("searchIssues", "Searching issues"),
        ("web.fetch_page", "Using web fetch page"),
        ("bash", "Using bash"),
        ("", "Using a tool"),
    ],
)
def test_the_name_of_a_tool_becomes_a_label(tool, words):
    assert use_of(tool) == words
