from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from connector.formatting.long_parts import without_long_parts

CODE = "\n".join(f"line {n}" for n in range(100))
ROWS = "\n".join(f'| {n} | a, "b" |' for n in range(80))


def test_long_code_and_long_tables_become_files_named_in_the_text():
    text = f"Here:\n\n```python\n{CODE}\n```\n\nand\n\n| n | text |\n|---|---|\n{ROWS}\n\nend"
    shown, parts = without_long_parts(text)
    assert shown == (
        "Here:\n\n📎 File 1 below: `code.py`, 100 lines.\n\nand\n\n📎 File 2 below: `table.csv`, 80 rows.\n\nend"
    )
    assert [part.kind for part in parts] == ["code.py", "table.csv"]
    assert parts[0].content == f"{CODE}\n"
    assert parts[1].content.splitlines()[:2] == ["n,text", '0,"a, ""b"""']


@pytest.mark.parametrize("indent", ["", " ", "   "])
def test_the_indentation_of_a_fence_is_no_part_of_its_code(indent):
    code = f"if x:\n    y\n  \n{CODE}"
    lines = "".join(f"{indent}{line}\n" for line in code.split("\n"))
    text = f"1. Do:\n\n{indent}```sh\n{lines}left\n{indent}```\n"
    [part] = without_long_parts(text)[1]
    assert part.content == f"{code}\nleft\n"


def test_a_language_that_is_no_ending_is_text():
    assert without_long_parts(f"~~~../etc/passwd x\n{CODE}\n~~~")[1][0].kind == "code.txt"


@given(st.lists(st.sampled_from(["word", "```", "```py", "- a", "| a |", "|---|", CODE, "> b", ""]), max_size=30))
def test_no_line_of_code_is_lost(lines):
    text = "\n".join(lines)
    shown, parts = without_long_parts(text)
    everything = "\n".join([shown, *(part.content for part in parts)])
    assert everything.count("line 99") == text.count("line 99")
    assert everything.count("word") >= text.count("word")
