from __future__ import annotations

from connector.runs.answers import posts_of


def test_an_answer_becomes_messages_or_a_file_with_a_summary():
    assert posts_of("**short**\n") == (("*short*",), "")
    assert posts_of("\n \n") == ((), "")
    (summary,), file = posts_of(f"begin \ud800\n\n{'words ' * 5000}")
    assert file.startswith("begin \ufffd\n\nwords ")
    assert "📎" in summary


def test_the_messages_of_an_answer_keep_to_the_size_of_a_message_and_contain_everything():
    part = (
        "# Title\n\n> quoted **bold**\n\n1. one\n   - two\n\n| a | b |\n|---|---|\n| 1 | <!here> |\n\n"
        "```sh\necho '```'\n```\n\n"
    )
    texts, _ = posts_of(part * 60)
    assert sum(text.count("*Title*") for text in texts) == 60
    assert all(len(text) <= 3900 and "<!" not in text and text.count("```") % 2 == 0 for text in texts)
