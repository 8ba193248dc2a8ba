from __future__ import annotations

import pytest

from connector.formatting.content import use_of


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
