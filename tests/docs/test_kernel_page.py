"""docs/kernel.md: its example runs, and its table names the contract tests."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest
from documented_tests import TESTS, names_of_tests, there_are

from orchestrator_interactive import kernel

KERNEL = Path(inspect.getfile(kernel)).parent
PAGE = (TESTS.parent / "docs" / "kernel.md").read_text(encoding="utf-8")
NAMED = names_of_tests(PAGE)
CONTRACT_TESTS = {
    (path, name)
    for path in (str(file.relative_to(TESTS)) for file in TESTS.rglob("test_*_contract*.py"))
    for name in there_are(path)
}


def test_every_test_that_the_table_names_exists() -> None:
    assert [f"{path}::{name}" for path, name in NAMED if name not in there_are(path)] == []


def test_every_contract_test_is_in_the_table() -> None:
    assert CONTRACT_TESTS - set(NAMED) == set()


def test_every_row_of_a_table_is_complete() -> None:
    tables = re.findall(r"(?:^\|.*\n)+", PAGE, re.MULTILINE)
    assert tables
    for table in tables:
        rows = [[cell.strip() for cell in row.strip("|").split("|")] for row in table.splitlines()]
        assert {len(row) for row in rows} == {len(rows[0])}
        assert all(cell for row in rows for cell in row)


def test_every_file_of_the_kernel_is_named() -> None:
    named = set(re.findall(r"^\| (`.*?) \|", PAGE, re.MULTILINE))
    files = {name for cell in named for name in re.findall(r"`([a-z_]+(?:\.py|/))(?:[a-z_]+\.py)?`", cell)}
    there_are = {f"{path.name}/" if path.is_dir() else path.name for path in KERNEL.iterdir()}
    assert files == {name for name in there_are if not name.startswith("__")}


@pytest.mark.parametrize("number", range(2))
def test_an_example_prints_what_the_page_says(number: int) -> None:
    code = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    printed = re.findall(r"```text\n(.*?)```", PAGE, re.DOTALL)
    assert len(code) == len(printed) == 2
    run = subprocess.run([sys.executable, "-c", code[number]], capture_output=True, text=True, check=True)  # noqa: S603 - the page's own example
    assert run.stdout == printed[number]
