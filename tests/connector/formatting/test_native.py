from __future__ import annotations

import html
import re
import sys
from urllib.parse import unquote

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from markdown_texts import HIDDEN, MARKUP_OR_WORD, TEXTS, WORD, links_of, quickly

from connector.formatting.markdown import markdown_to_slack
from connector.formatting.native import GrowingText, native_markdown

REPORT = """# The *plan* <!here>

Some **bold** words, `a<b>`, snake_case, 1 * 2 and :white_check_mark: for <@U1>.

| step | cost |
|:-----|-----:|
| [build](https://a.b/c_(d)) | `x|y` |

- [ ] to do
- [x] done
  1. first
  2. second

     more of it
- ```py
  if a < b:
      pass
  ```

> quoted
> - by ana

\\- no list, \\# no heading, ~~gone~~

```mermaid
graph <a>
```
"""
WRITTEN = """# The *plan* &lt;!here&gt;

Some **bold** words, `a&lt;b&gt;`, snake_case, 1 \\* 2 and :white_check_mark: for &lt;@U1&gt;.

| step | cost |
|---|--:|
| [build](https://a.b/c_(d)) | `x |

- [ ] to do
- [x] done
  1. first
  2. second

     more of it
- ```py
  if a &lt; b:
      pass
  ```

> quoted
>
> - by ana

\\- no list, # no heading, ~~gone~~

```mermaid
graph &lt;a&gt;
```"""


def test_markdown_is_written_for_a_markdown_block():
    written = native_markdown(REPORT.replace("x|y", "x"))
    assert written == WRITTEN.replace("`x |", "`x` |")
    assert native_markdown(written.replace("&lt;", "<").replace("&gt;", ">")) == written


@pytest.mark.parametrize(
    ("markdown", "written"),
    [
        ("| a |\n|---|\n| b \\| c |", "| a |\n|---|\n| b \\| c |"),
        ("1. one\n2. two\n\n7) seven", "1. one\n2. two\n\n7. seven"),
        ("&copy; &amp;lt; a&b", "© &amp;lt; a&b"),
        ("`` a`b `` ``` `` ```", "``a`b`` ``` `` ```"),
        ("````\n```\n````", "````\n```\n````"),
        ("a\\*b \\_c\\_ d\\\\e", "a\\*b \\_c\\_ d\\e"),
        ("2\\. two\n\\+ three", "2\\. two\n\\+ three"),
        ("**a***b*", "**a**\u200b*b*"),
        ("**注意。**请不要", "**注意。\u200b**请不要"),
        ("これは**「重要」**です。", "これは**\u200b「重要」\u200b**です。"),
        ("**结果(2024)**の **注意:**请看**重点**", "**结果(2024)\u200b**の **注意:\u200b**请看**重点**"),
        ("请看**(a)**吧 **API:**请 run **`a`** now", "请看**\u200b(a)\u200b**吧 **API:\u200b**请 run **`a`** now"),
        ("请删除*.log和*.tmp文件", "请删除\\*.log和\\*.tmp文件"),
        ("$a_1*b_2$ and $$\n\nno", "`a_1*b_2` and $$\n\nno"),
        ("$$\na_1\n$$", "```\na_1\n```"),
        ("![a](https://a.b/c.png)", "[a](https://a.b/c.png)"),
        ("[a](https://a.b/(c)", "\\[a\\]([https://a.b/(c)](https://a.b/(c))"),
    ],
)
def test_markup_is_written_anew(markdown, written):
    assert native_markdown(markdown) == written


@pytest.mark.parametrize(
    ("markdown", "is_rich"),
    [("# a", True), ("|a|\n|-|\n|b|", True), ("- [ ] a", True), ("- a\n\n**b** `c`", False), ("[ ] a", False)],
)
def test_headings_tables_and_tasks_are_better_in_a_markdown_block(markdown, is_rich):
    assert bool(native_markdown(markdown, only_rich=True)) == is_rich


def test_a_text_that_is_nested_too_deeply_is_not_written():
    assert native_markdown("> " * 200 + "word") == ""


@quickly
@given(TEXTS)
def test_nothing_that_a_model_writes_is_live_but_links_to_the_web_and_to_mail(text):
    written = native_markdown(text)
    assert "<" not in written
    assert all(re.match(r"https?://|mailto:", target, re.IGNORECASE) for target, _ in links_of(written))


@quickly
@given(TEXTS)
@example("](https://a.b)\x7f")
@example("](https://a.b)@\x80")
def test_both_notations_have_the_same_links(text):
    links = re.findall(r"<((?:https?://|mailto:)[^|>]*)\|?[^>]*>", markdown_to_slack(text), re.IGNORECASE)
    if written := native_markdown(text):
        found = [unquote(target) for target, _ in links_of(written)]
        # As a reader of Markdown finds them: it writes the names of hosts in ASCII.
        assert found == [unquote(MarkdownIt().normalizeLink(html.unescape(link))) for link in links]


@quickly
@given(st.lists(MARKUP_OR_WORD, max_size=40))
def test_every_visible_word_of_a_text_is_visible(parts):
    text = "".join(f"w{number}w" if part is None else part for number, part in enumerate(parts))
    written = native_markdown(text)
    shown = "".join(token.content for token in MarkdownIt("commonmark", {"html": False}).parse(written))
    assert not written or [word for word in WORD.findall(HIDDEN.sub("", text)) if word not in shown] == []


# Without spaces between words.
UNSPACED = """\
**注意。**请不要。**「重要。」**です。これは**重要。**次。

- **步骤一。**打开。**결과(2024)**입니다. *强调。*的 **完。**"""


@pytest.mark.parametrize(
    "text",
    [
        REPORT,
        REPORT.replace("\n\n", "\n"),
        f"{REPORT}\n\n{REPORT}",
        UNSPACED,
    ],
)
@pytest.mark.parametrize("step", [1, 7, 100])
def test_a_text_that_grows_is_shown_up_to_a_sentence_and_the_shown_part_stays(text, step):
    growing = GrowingText()
    shown = [growing.visible(text[:cut]) for cut in range(0, len(text), step)]
    assert all(native_markdown(text).startswith(each) for each in shown)
    assert len(max(shown, key=len)) > len(native_markdown(text)) - 200


def test_a_code_block_that_grows_is_shown_line_by_line():
    text = "See:\n\n```py\na = 1\nb < 2\nc"
    assert GrowingText().visible(text) == "See:\n\n```py\na = 1\nb &lt; 2"
    assert GrowingText().visible(text[:10]) == "See:"


def test_settled_blocks_are_converted_once():
    """A text of eight times the length takes about eight times as many steps, not 64 times."""

    def steps_of(parts):
        growing, text, steps = GrowingText(), REPORT * parts, 0

        def step(_frame, _event, _argument):
            nonlocal steps
            steps += 1

        before = sys.getprofile()
        sys.setprofile(step)
        try:
            for cut in range(0, len(text), 100):
                growing.visible(text[:cut])
        finally:
            sys.setprofile(before)
        return steps

    assert steps_of(16) < 12 * steps_of(2)
