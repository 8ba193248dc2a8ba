"""The texts that docs/troubleshooting.md and docs/upgrading.md quote are those of the service."""

from __future__ import annotations

import ast
import re

import pytest


def texts_of_the_service(root):
    for files in ("*.py", "connector/**/*.py", "service/**/*.py", "orchestrator_interactive/**/*.py"):
        for path in root.glob(files):
            yield from (node.value for node in ast.walk(ast.parse(path.read_text("utf-8"))) if is_text(node))


def is_text(node):
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


@pytest.mark.parametrize("name", ["troubleshooting", "upgrading"])
def test_the_service_says_what_the_page_quotes(page, root, name):
    tables = type(page)(root / "docs" / f"{name}.md").tables()
    cells = [cell for rows in tables for row in rows[2:] for cell in row]
    quoted = [piece for cell in cells for text in re.findall(r'"(.+?)"', cell) for piece in re.split("[…⚠️📭⏳]+", text)]
    quoted += [event for rows in tables for row in rows[2:] for event in re.findall(r"`([a-z_]+\.[a-z_]+)`", row[0])]
    said = "\n".join(texts_of_the_service(root))
    assert len(quoted) > 3
    assert [piece for piece in quoted if piece.strip(" .:") not in said] == []
