from __future__ import annotations

import pytest

from connector.formatting.markdown import markdown_to_slack


@pytest.mark.parametrize(
    ("markdown", "slack"),
    [
        (
            "Sources:\n\n[1]: https://a.b/c\n[2]: https://d.e/f 'A <title>'\n\nend",
            'Sources:\n\n[1]: <https://a.b/c>\n[2]: <https://d.e/f> "A &lt;title&gt;"\n\nend',
        ),
        ("[TODO]: fix", "[TODO]: fix"),
        ("see [1]\n\n[1]: https://a.b\n[1]: https://c.d", "see <https://a.b|1>\n\n[1]: <https://c.d>"),
    ],
)
def test_a_definition_without_a_link_is_shown_at_its_place(markdown, slack):
    assert markdown_to_slack(markdown) == slack
