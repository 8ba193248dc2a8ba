"""docs/failure-modes.md lists every failure, and names only tests and invariants that exist."""

from __future__ import annotations

import re
from collections import Counter

import pytest
from documented_tests import TESTS, names_of_tests, there_are

INVARIANTS = TESTS / "simulation" / "simulated" / "agent" / "invariants" / "__init__.py"
INVARIANTS_OF_THE_SERVICE = TESTS / "simulation" / "simulated" / "service" / "invariants" / "__init__.py"
PAGE = (TESTS.parent / "docs" / "failure-modes.md").read_text(encoding="utf-8")
KINDS = {
    "Lost input": range(1, 9),
    "Duplicates and reordering": range(9, 15),
    "A log that the provider rejects": (*range(15, 21), *range(45, 48)),
    "Stop": range(21, 28),
    "Approvals": range(28, 29),
    "Slack": (*range(32, 39), *range(40, 45), *range(48, 52)),
    "Disk and memory": range(52, 55),
    "Tools": range(55, 57),
    "Security and robustness": range(57, 62),
}


def _sections(text: str, mark: str) -> dict[str, str]:
    """The text under each heading of one level, by heading."""
    _, *parts = re.split(rf"^{mark} (.+)$", text, flags=re.MULTILINE)
    return dict(zip(parts[::2], parts[1::2], strict=True))


FAILURES = {
    title: text for kind, section in _sections(PAGE, "##").items() for title, text in _sections(section, "###").items()
}


def _named_invariants(text: str) -> list[str]:
    lines = re.findall(r"^- invariants? (.+)$", text, re.MULTILINE)
    return [name for line in lines for name in re.findall(r"`(\w+)`", line)]


def _checked_invariants() -> set[str]:
    """The invariants that are checked in every schedule of the loop."""
    return set(re.findall(r"self\.\w+ = ([A-Z]\w+)\(", INVARIANTS.read_text(encoding="utf-8")))


def test_all_failures_are_listed_in_order_under_their_kind() -> None:
    numbers = {
        kind: [int(title.partition(".")[0]) for title in _sections(section, "###")]
        for kind, section in _sections(PAGE, "##").items()
        if kind in KINDS
    }
    assert numbers == {kind: list(expected) for kind, expected in KINDS.items()}


@pytest.mark.parametrize("title", FAILURES)
def test_each_failure_has_a_description_a_prevention_and_tests(title: str) -> None:
    description, prevention, tests = FAILURES[title].strip().split("\n\n")
    assert description
    assert prevention.startswith("Here, ")
    assert names_of_tests(tests)
    assert all(line.startswith("- ") for line in tests.splitlines())


@pytest.mark.parametrize("path", sorted({path for path, _ in names_of_tests(PAGE)}))
def test_every_named_test_exists(path: str) -> None:
    named = {name for each, name in names_of_tests(PAGE) if each == path}
    assert named - there_are(path) == set()


@pytest.mark.parametrize("title", FAILURES)
def test_no_failure_names_a_test_twice(title: str) -> None:
    assert [test for test, times in Counter(names_of_tests(FAILURES[title])).items() if times > 1] == []


@pytest.mark.parametrize("title", FAILURES)
def test_every_named_invariant_is_checked(title: str) -> None:
    assert set(_named_invariants(FAILURES[title])) - _checked_invariants() == set()


def test_the_table_lists_every_invariant_once() -> None:
    assert sorted(re.findall(r"^\| `(\w+)` \|", PAGE, re.MULTILINE)) == sorted(_checked_invariants())


def test_the_service_table_lists_every_invariant_once() -> None:
    invariants = re.findall(r"yield from (\w+\.\w+)\(", INVARIANTS_OF_THE_SERVICE.read_text(encoding="utf-8"))
    assert sorted(re.findall(r"^\| `(\w+\.\w+)` \|", PAGE, re.MULTILINE)) == sorted(invariants)


def test_the_table_of_contents_links_to_every_section() -> None:
    sections = list(_sections(PAGE, "##"))
    assert re.findall(r"^- \[(.+)\]\(#(.+)\)$", PAGE, re.MULTILINE) == [
        (section, section.lower().replace(" ", "-")) for section in sections
    ]
