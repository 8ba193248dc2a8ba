from __future__ import annotations

from connector.formatting.markdown import markdown_to_slack


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
