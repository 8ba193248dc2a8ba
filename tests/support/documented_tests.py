"""The tests that documentation pages name."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

TESTS = Path(__file__).parents[1]

_TEST = re.compile(r"`([\w/]+\.py)::([\w:]+)`")


def names_of_tests(page: str) -> list[tuple[str, str]]:
    """The files and tests that a page names, from `tests/` on."""
    return _TEST.findall(page)


@cache
def there_are(path: str) -> frozenset[str]:
    """The tests of a file, as `name` or `Class::name`."""
    tree = ast.parse((TESTS / path).read_text(encoding="utf-8"))
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef)]
    return frozenset(_functions(tree.body)).union(
        *([f"{each.name}::{name}" for name in _functions(each.body)] for each in classes)
    )


def _functions(body: list[ast.stmt]) -> list[str]:
    found = [node.name for node in body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    return [name for name in found if name.startswith("test_")]
