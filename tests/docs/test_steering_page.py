"""docs/steering.md: its example runs, its tables are complete, and the tests that it names exist."""

from __future__ import annotations

import re
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from documented_tests import TESTS, names_of_tests, there_are

if TYPE_CHECKING:
    from pathlib import Path

PAGE = (TESTS.parent / "docs" / "steering.md").read_text(encoding="utf-8")


def test_every_test_that_the_page_names_exists() -> None:
    assert [f"{path}::{name}" for path, name in names_of_tests(PAGE) if name not in there_are(path)] == []


@pytest.mark.parametrize("columns", [3, 4])
def test_every_row_is_complete_and_names_a_test(columns: int) -> None:
    tables = [table.splitlines() for table in re.findall(r"(?:^\|.*\n)+", PAGE, re.MULTILINE)]
    (table,) = [lines for lines in tables if lines[1].count("---") == columns]
    rows = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in table[2:]]
    assert [row for row in rows if len(row) != columns or not all(row) or not names_of_tests(row[-1])] == []


def test_the_example_prints_what_the_page_says(tmp_path: Path) -> None:
    example, printed = re.findall(r"```(?:python)?\n(.*?)```", PAGE, re.DOTALL)
    ran = subprocess.run(  # noqa: S603 - the example of the page
        [sys.executable, "-c", example], cwd=tmp_path, capture_output=True, text=True, check=True, timeout=50
    )
    assert "".join(line for line in ran.stdout.splitlines(keepends=True) if "debug" not in line) == printed
