"""Named tests exist, and the output of examples is that on the page."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest
from documented_tests import TESTS, names_of_tests, there_are

DOCS = TESTS.parent / "docs"
PAGES = [*sorted(TESTS.parent.glob("*.md")), *sorted(DOCS.glob("*.md"))]


def read(name):
    return (DOCS / f"{name}.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", ["failure-modes", "interaction-stack", "steering"])
def test_every_named_test_exists(name):
    named = names_of_tests(read(name))
    assert named
    assert [f"{path}::{test}" for path, test in named if test not in there_are(path)] == []


@pytest.mark.parametrize("page", PAGES, ids=[page.name for page in PAGES])
def test_every_link_leads_to_a_file_and_a_heading(page):
    dead = []
    for target in re.findall(r"\]\((?!https?:)([^)\s]+)\)", prose_of(page)):
        path, _, anchor = target.partition("#")
        file = page.parent / path if path else page
        if not file.exists() or (anchor and anchor not in anchors_of(file)):
            dead.append(target)
    assert dead == []


def prose_of(page):
    return re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)


def anchors_of(page):
    """Return the anchors of its headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", prose_of(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def examples_of(name):
    """Return each program of a page with the output that follows it."""
    blocks = re.findall(r"```(?:python)?\n(.*?)```", read(name), re.DOTALL)
    return [(code, blocks[place + 1]) for place, code in enumerate(blocks) if "asyncio.run" in code]


@pytest.mark.parametrize(
    ("example", "output"),
    [*examples_of("interaction-stack"), *examples_of("steering")],
    ids=["interaction-stack: stack", "interaction-stack: agents", "steering"],
)
def test_an_example_prints_what_the_page_says(example, output, tmp_path):
    ran = subprocess.run(  # noqa: S603 - the example of the page
        [sys.executable, "-c", example], cwd=tmp_path, capture_output=True, text=True, check=True, timeout=50
    )
    assert ran.stdout == output
