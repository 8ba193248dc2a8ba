from __future__ import annotations

import html

import pytest
from hypothesis import given
from hypothesis import strategies as st

from connector.formatting.markdown import markdown_to_slack
from connector.formatting.splitting import pieces


@pytest.mark.parametrize(
    ("written", "read"),
    [
        (":tada:", ":tada:"),
        ("👩‍👩‍👧 🏴󠁧󠁢󠁳󠁣󠁴󠁿", "👩‍👩‍👧 🏴󠁧󠁢󠁳󠁣󠁴󠁿"),
        ("&gt; quoted\n&gt; twice", "> quoted\n> twice"),
        ("```\nif a &lt; b:\n    stop\n```", "```\nif a < b:\n    stop\n```"),
        ("bell \x07 and escape \x1b[31mred", "bell \x07 and escape \x1b[31mred"),
        ("&amp;lt;not a tag&amp;gt;", "&lt;not a tag&gt;"),
        ("a <b", "a <b"),
        ("<https://a.b/?x=1&amp;y=2>", "https://a.b/?x=1&y=2"),
        ("<!here> <!date^1^{date}|today>", "@here @date"),
        ("x" * 30_000, "x" * 30_000),
        ("stop\nthen go on", "stop\nthen go on"),
    ],
)
async def test_an_odd_text_reaches_the_agent_as_it_was_written(scene, written, read):
    await scene.ana.say("general", f"@alpha {written}")
    run = await scene.sessions.next_run()
    assert run.prompt == read
    await run.answer("ok")


async def test_the_same_text_twice_is_two_messages(scene):
    ts = await scene.ana.say("general", "@alpha look")
    run = await scene.sessions.next_run()
    for _ in range(2):
        await scene.ana.say("general", "and again", thread=ts)
    await run.until(lambda r: len(r.steers) == 2)
    assert len({steer.id for steer in run.steers}) == 2
    await run.answer("ok")


@pytest.mark.parametrize("answer", ["```\n```", "&nbsp;"])
async def test_an_answer_that_shows_nothing_is_told_like_an_empty_one(scene, of_bot, answer):
    ts = await scene.ana.say("general", "@alpha look")
    run = await scene.sessions.next_run()
    await scene.status("general", ts)
    await run.answer(answer)
    await scene.reacted("general", ts, "hourglass_flowing_sand", gone=True)
    (text,) = scene.texts("general", ts)
    assert html.unescape(text).strip()


@pytest.mark.parametrize("character", ["&", "<", ">"])
def test_a_cut_does_not_go_through_an_escaped_character(character):
    text = "a" + character * 3000
    assert "".join(html.unescape(piece) for piece in pieces(markdown_to_slack(text))) == text


def test_a_cut_does_not_go_through_a_link():
    link = "[the documentation](https://example.org/a/rather/long/path)"
    for piece in pieces(markdown_to_slack("word " * 770 + link)):
        assert piece.count("<") == piece.count(">"), piece[-80:]


def test_a_cut_of_a_long_line_goes_between_words():
    words = [f"word{number}" for number in range(1500)]
    cut = pieces(markdown_to_slack(" ".join(words)))
    assert [word for piece in cut for word in piece.split()] == words


MARKS = st.sampled_from(
    ["*", "**", "_", "~~", "`", "```\n", "> ", "- ", "1. ", "# ", "|", "\n", "\n\n", "a", " ", "<", "[", "]", "("]
)


@given(st.lists(MARKS, max_size=60).map("".join))
def test_whatever_marks_a_model_writes_the_conversion_ends(text):
    for piece in pieces(markdown_to_slack(text), 40):
        assert len(piece) <= 40


async def test_an_answer_of_everything_at_once_comes_through_whole(scene, of_bot):
    answer = (
        "# Title\n\n> quoted **bold**\n\n1. one\n   - two\n\n| a | b |\n|---|---|\n| 1 | <!here> |\n\n"
        "```sh\necho '```'\n```\n\n"
    )
    ts = await scene.ana.say("general", "@alpha look")
    await (await scene.sessions.next_run()).answer(answer * 60)
    texts = of_bot(await scene.quiet("general", ts, posts=2))
    assert sum(text.count("*Title*") for text in texts) == 60
    assert not any("<!" in text for text in texts)
    assert all(text.count("```") % 2 == 0 for text in texts)
