"""Parsing the answer of a reflection agent."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator_interactive.registries.verdict import Verdict, verdict_in


@pytest.mark.parametrize(
    ("answer", "verdict"),
    [
        ('{"score": 0.8, "comment": "Good."}', Verdict(0.8, "Good.")),
        ('Here you are:\n```json\n{"comment": " Good. ", "score": 1}\n```\nBye {now}.', Verdict(1.0, "Good.")),
        ('{"score": "0.5"}', Verdict(0.5, "")),
        ('{"score": 0, "comment": ["a"]}', Verdict(0.0, "")),
        ('The tool said {"a": 1}. {"score": 0.25, "comment": "Odd."}', Verdict(0.25, "Odd.")),
        ("Score: 0.7. It found all.", Verdict(0.7, "Score: 0.7. It found all.")),
        ("**score** = 1", Verdict(1.0, "**score** = 1")),
        ('{"score": 2}', None),
        ('{"score": -0.5}', None),
        ('{"score": true}', None),
        ('{"score": NaN}', None),
        ('{"score": Infinity}', None),
        ('{"score": null, "comment": "score: 0.5"}', None),
        ("Score: 8/10", None),
        ("Score: 1/10", None),
        ("Score: 1 out of 5", None),
        ("Score: 80%", None),
        ("Score: 8", None),
        ("Of 5 towns 1 was found.", None),
        ("", None),
        ("{" * 10_000, None),
    ],
)
def test_a_verdict_has_a_score_from_0_to_1_and_a_comment(answer: str, verdict: Verdict | None) -> None:
    assert verdict_in(answer) == verdict


@given(st.text() | st.floats().map(lambda score: f'{{"score": {score}}}') | st.text().map(lambda t: f'{{"score": {t}'))
def test_any_answer_gives_a_valid_score_or_none(answer: str) -> None:
    verdict = verdict_in(answer)
    assert verdict is None or 0 <= verdict.score <= 1


def test_a_long_comment_is_truncated() -> None:
    verdict = verdict_in(f'{{"score": 1, "comment": "{"a" * 5000}"}}')
    assert verdict is not None
    assert len(verdict.comment) == 2000
