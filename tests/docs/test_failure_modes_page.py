"""docs/failure-modes.md lists all failures and all invariants of the simulation."""

from __future__ import annotations

import re
from collections import Counter

import pytest
from documented_tests import TESTS, names_of_tests

SIMULATED = TESTS / "simulation" / "simulated"
PAGE = (TESTS.parent / "docs" / "failure-modes.md").read_text(encoding="utf-8")
KINDS = {
    "Lost input": range(1, 9),
    "Duplicates and reordering": range(9, 15),
    "A log that the provider rejects": (*range(15, 21), *range(45, 48)),
    "Stop": range(21, 28),
    "Approvals": (28, 62),
    "Slack": (*range(32, 39), *range(40, 45), *range(48, 52), *range(63, 67)),
    "Disk and memory": range(52, 55),
    "Tools": range(55, 57),
    "Security and robustness": range(57, 62),
}


def sections(text, mark):
    """Return the text under each heading of one level."""
    _, *parts = re.split(rf"^{mark} (.+)$", text, flags=re.MULTILINE)
    return dict(zip(parts[::2], parts[1::2], strict=True))


FAILURES = {
    title: text for section in sections(PAGE, "##").values() for title, text in sections(section, "###").items()
}


@pytest.fixture(scope="module")
def loop_invariants():
    text = (SIMULATED / "agent" / "invariants" / "__init__.py").read_text(encoding="utf-8")
    return set(re.findall(r"self\.\w+ = ([A-Z]\w+)\(", text))


def test_all_failures_are_listed_in_order_under_their_kind():
    numbers = {
        kind: [int(title.partition(".")[0]) for title in sections(section, "###")]
        for kind, section in sections(PAGE, "##").items()
        if kind in KINDS
    }
    assert numbers == {kind: list(expected) for kind, expected in KINDS.items()}


@pytest.mark.parametrize("title", FAILURES)
def test_each_failure_has_a_description_a_prevention_and_tests(title, loop_invariants):
    description, prevention, tests = FAILURES[title].strip().split("\n\n")
    assert description
    assert prevention.startswith("Here, ")
    assert names_of_tests(tests)
    assert all(line.startswith("- ") for line in tests.splitlines())
    assert [test for test, times in Counter(names_of_tests(tests)).items() if times > 1] == []
    lines = re.findall(r"^- invariants? (.+)$", tests, re.MULTILINE)
    assert {name for line in lines for name in re.findall(r"`(\w+)`", line)} <= loop_invariants


def test_the_table_of_the_loop_lists_every_invariant_once(loop_invariants):
    assert sorted(re.findall(r"^\| `(\w+)` \|", PAGE, re.MULTILINE)) == sorted(loop_invariants)


def test_the_table_of_the_service_lists_every_invariant_once():
    text = (SIMULATED / "service" / "invariants" / "__init__.py").read_text(encoding="utf-8")
    invariants = set(re.findall(r"yield from (\w+\.\w+)\(", text))
    assert sorted(re.findall(r"^\| `(\w+\.\w+)` \|", PAGE, re.MULTILINE)) == sorted(invariants)


def test_the_table_of_contents_links_to_every_section():
    assert re.findall(r"^- \[(.+)\]\(#(.+)\)$", PAGE, re.MULTILINE) == [
        (section, section.lower().replace(" ", "-")) for section in sections(PAGE, "##")
    ]
