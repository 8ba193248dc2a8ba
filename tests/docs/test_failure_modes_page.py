"""docs/failure-modes.md: every failure is there, and every test and every judge that it names."""

from __future__ import annotations

import re
from collections import Counter

import pytest
from named_tests import TESTS, names_of_tests, there_are

JUDGES = TESTS / "simulation" / "simulated" / "judge"
OF_THE_SERVICE = TESTS / "simulation" / "simulated" / "whole" / "judge" / "__init__.py"
PAGE = (TESTS.parent / "docs" / "failure-modes.md").read_text(encoding="utf-8")
KINDS = {
    "Lost input": range(1, 9),
    "Doubled or reordered": range(9, 15),
    "A log that the provider rejects": (*range(15, 21), *range(45, 48)),
    "Stop": range(21, 28),
    "Approvals": range(28, 29),
    "Slack": (*range(32, 39), *range(40, 45), *range(48, 52)),
    "Disk and memory": range(52, 55),
    "Tools": range(55, 57),
    "From outside": range(57, 62),
}


def _chapters(text: str, mark: str) -> dict[str, str]:
    """What stands under each heading of this rank."""
    _, *parts = re.split(rf"^{mark} (.+)$", text, flags=re.MULTILINE)
    return dict(zip(parts[::2], parts[1::2], strict=True))


FAILURES = {
    title: text for kind, chapter in _chapters(PAGE, "##").items() for title, text in _chapters(chapter, "###").items()
}


def _judges_named(text: str) -> list[str]:
    lines = re.findall(r"^- judges? (.+)$", text, re.MULTILINE)
    return [name for line in lines for name in re.findall(r"`(\w+)`", line)]


def _sitting() -> set[str]:
    """The judges that every schedule is brought before."""
    return set(re.findall(r"self\.\w+ = ([A-Z]\w+)\(", (JUDGES / "judges.py").read_text(encoding="utf-8")))


def test_all_are_there_in_their_order_and_under_their_kind() -> None:
    numbers = {
        kind: [int(title.partition(".")[0]) for title in _chapters(chapter, "###")]
        for kind, chapter in _chapters(PAGE, "##").items()
        if kind in KINDS
    }
    assert numbers == {kind: list(there) for kind, there in KINDS.items()}


@pytest.mark.parametrize("title", FAILURES)
def test_each_says_what_goes_wrong_what_prevents_it_and_where_that_is_shown(title: str) -> None:
    told, prevented, shown = FAILURES[title].strip().split("\n\n")
    assert told
    assert prevented.startswith("Here ")
    assert names_of_tests(shown)
    assert all(line.startswith("- ") for line in shown.splitlines())


@pytest.mark.parametrize("path", sorted({path for path, _ in names_of_tests(PAGE)}))
def test_every_test_that_is_named_exists(path: str) -> None:
    named = {name for each, name in names_of_tests(PAGE) if each == path}
    assert named - there_are(path) == set()


@pytest.mark.parametrize("title", FAILURES)
def test_no_failure_names_a_test_twice(title: str) -> None:
    assert [test for test, times in Counter(names_of_tests(FAILURES[title])).items() if times > 1] == []


@pytest.mark.parametrize("title", FAILURES)
def test_every_judge_that_is_named_sits(title: str) -> None:
    assert set(_judges_named(FAILURES[title])) - _sitting() == set()


def test_the_table_has_every_judge_once() -> None:
    assert sorted(re.findall(r"^\| `(\w+)` \|", PAGE, re.MULTILINE)) == sorted(_sitting())


def test_the_table_of_the_service_has_every_judge_once() -> None:
    judges = re.findall(r"yield from (\w+\.\w+)\(", OF_THE_SERVICE.read_text(encoding="utf-8"))
    assert sorted(re.findall(r"^\| `(\w+\.\w+)` \|", PAGE, re.MULTILINE)) == sorted(judges)


def test_its_list_of_chapters_leads_to_all_of_them() -> None:
    chapters = list(_chapters(PAGE, "##"))
    assert re.findall(r"^- \[(.+)\]\(#(.+)\)$", PAGE, re.MULTILINE) == [
        (chapter, chapter.lower().replace(" ", "-")) for chapter in chapters
    ]
